"""A proxy before a PostgreSQL that changes what goes through, as a broken pooler would: every inserted row arrives as a message of no known kind.

Without TLS and GSS, so that the server's bytes are messages from the first on: conninfo with sslmode=disable gssencmode=disable.
"""

import contextlib
import socket
import threading

# A CopyData with WAL data: 'w', three numbers of eight bytes, then pgoutput's message, which begins with its kind.
KIND_AT = 25


class ManglingProxy:
    def __init__(self, server_port):
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._ends += [client, server]
                for pump in (lambda c=client, s=server: _copy(c, s), lambda c=client, s=server: _mangle(s, c)):
                    threading.Thread(target=_until_closed, args=(pump, client, server), daemon=True).start()

    def close(self):
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._thread.join(5)


def _until_closed(pump, *ends):
    with contextlib.suppress(OSError):
        pump()
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)


def _mangle(server, client):
    pending = b""
    while data := server.recv(65536):
        pending += data
        while len(pending) >= 5 and len(pending) > (size := int.from_bytes(pending[1:5], "big")):
            message, pending = bytearray(pending[:size + 1]), pending[size + 1:]
            if message[0:1] == b"d" and message[5:6] == b"w" and message[5 + KIND_AT:6 + KIND_AT] == b"I":
                message[5 + KIND_AT] = ord("?")
            client.sendall(message)
