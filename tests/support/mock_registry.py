"""A Schema Registry in this process, for what no real one does on demand: to be away, to reject, to answer nonsense.

It knows only what tests set, compares schemas as text, and gives GUIDs. Real ones have tests of their own.
"""

import base64
import http.server
import json
import ssl
import threading
import urllib.parse
import uuid

from servers import free_port

USER, PASSWORD, TOKEN = "walpost", "s3cret", "t0ken"


class MockRegistry:
    """With `tls` (paths of the server's certificate, its key, and who signed clients') it lets in only clients with a certificate and the token."""

    def __init__(self, tls=None):
        self.port = free_port()
        self.tls = tls
        self.subjects = {}  # subject: [(schema type, schema, id)]
        self.incompatible = set()  # subjects that take no other version
        self.fault = None  # "unauthorized", "garbage" or "error"
        self.forbidden = set()  # subjects that this user may not read
        self.guids = True
        self.asked = []  # "POST /subjects/..."
        self.server = None

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def config(self, **more):
        who = {"token": TOKEN} if self.tls else {"username": USER, "password": PASSWORD}
        return {"url": self.url, "timeout": "2s", **who, **more}

    def start(self):
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                registry.answer(self, None)

            def do_POST(self):
                registry.answer(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        if self.tls:
            certificate, key, clients = self.tls
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
            # Shaken hands in the client's own thread, not where the next one is waited for.
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def close(self):
        """Away: nobody listens any more."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def register(self, subject, schema, schema_type="PROTOBUF"):
        versions = self.subjects.setdefault(subject, [])
        if (schema_type, schema) not in [version[:2] for version in versions]:
            versions.append((schema_type, schema, 100 + sum(len(each) for each in self.subjects.values())))
        return versions[-1][2]

    def id_of(self, subject):
        return self.subjects[subject][-1][2]

    @staticmethod
    def guid(schema_id):
        return uuid.UUID(int=schema_id)

    def answer(self, handler, body):
        path = urllib.parse.urlsplit(handler.path).path
        self.asked.append(f"{handler.command} {path}")
        wanted = f"Bearer {TOKEN}" if self.tls else "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.fault == "unauthorized" or handler.headers.get("Authorization") != wanted:
            code, content = 401, {"error_code": 40101, "message": "who are you?"}
        elif self.fault == "error":
            code, content = 500, {"error_code": 50001, "message": "the store is away"}
        elif self.fault == "garbage":
            code, content = 200, "<html>a proxy</html>"
        else:
            code, content = self.judge([urllib.parse.unquote(part) for part in path.split("/")[1:]], body)
        text = (content if isinstance(content, str) else json.dumps(content)).encode()
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    def shown(self, subject, index):
        schema_type, schema, schema_id = self.subjects[subject][index]
        found = {"subject": subject, "version": index + 1, "id": schema_id, "schema": schema, "schemaType": schema_type}
        return 200, {**found, **({"guid": str(self.guid(schema_id))} if self.guids else {})}

    def judge(self, path, body):
        if path[:2] == ["schemas", "types"]:
            return 200, ["PROTOBUF", "JSON", "AVRO"]
        if path[:2] == ["schemas", "ids"]:
            return 200, {"schema": "..."}
        subject = path[path.index("subjects") + 1]
        if subject in self.forbidden:
            return 403, {"error_code": 40301, "message": "User is denied operation Read on Subject"}
        versions = self.subjects.get(subject, [])
        same = [i for i, version in enumerate(versions) if body and version[:2] == (body["schemaType"], body["schema"])]
        if path[0] == "compatibility":
            if not versions:
                return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
            fits = subject not in self.incompatible
            return 200, {"is_compatible": fits, "messages": [] if fits else ["the field 'total' was removed"]}
        if path[-1] == "versions" and not same:
            if subject in self.incompatible:
                return 409, {"error_code": 409, "message": "the field 'total' was removed"}
            return 200, {"id": self.register(subject, body["schema"], body["schemaType"])}
        if path[-1] == "latest" and versions:
            return self.shown(subject, len(versions) - 1)
        if same:
            return self.shown(subject, same[0])
        if versions:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
