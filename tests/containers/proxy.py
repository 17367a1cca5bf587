"""An HTTP proxy that listens in one network namespace and connects from another: the way out for an engine that has a network of its own.

GET of http:// addresses (apt's archives) and CONNECT. Threads serve requests; the namespace of the listening socket is that of the
thread that made it, and no other.
"""

import ctypes
import http.client
import http.server
import os
import select
import socket
import socketserver
import threading
import urllib.parse

CLONE_NEWNET = 0x40000000
CHUNK_BYTES = 64 * 1024
HOP_BY_HOP = {"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer"}


def listen_in(namespace, port):
    """A listening socket of the network namespace at this path of /proc."""
    made = []

    def make():
        with open(namespace, "rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
                made.append(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
                return
        made.append(socket.create_server(("0.0.0.0", port)))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        upstream = http.client.HTTPConnection(url.netloc, timeout=120)
        try:
            upstream.request(self.command, urllib.parse.urlunsplit(("", "", url.path or "/", url.query, "")), headers=headers)
            answer = upstream.getresponse()
            self._pass_on(answer)
        except OSError as error:
            self.send_error(502, str(error))
        finally:
            upstream.close()

    do_HEAD = do_GET

    def _pass_on(self, answer):
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if answer.getheader("Content-Length") is None:
            self.send_header("Connection", "close")  # which ends the body
            self.close_connection = True
        self.end_headers()
        while chunk := answer.read(CHUNK_BYTES):
            self.wfile.write(chunk)

    def do_CONNECT(self):
        host, port = self.path.rsplit(":", 1)
        try:
            upstream = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        except OSError as error:
            self.send_error(502, str(error))
            return
        with upstream:
            self.send_response_only(200)
            self.end_headers()
            self._tunnel(upstream)
        self.close_connection = True

    def _tunnel(self, upstream):
        ends = {self.connection: upstream, upstream: self.connection}
        while True:
            for end in select.select(list(ends), [], [])[0]:
                chunk = end.recv(CHUNK_BYTES)
                if not chunk:
                    return
                ends[end].sendall(chunk)

    def log_message(self, *_):
        pass


class Proxy(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self, namespace, port):
        super().__init__(("", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listen_in(namespace, port)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()
