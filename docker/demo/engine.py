"""The Docker engine's API, as much as the chaos needs: containers of this compose project, by service."""

import http.client
import json
import socket
import urllib.parse


class _Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Engine:
    def __init__(self, path="/var/run/docker.sock"):
        self._path = path
        labels = self._request("GET", f"/containers/{socket.gethostname()}/json")["Config"]["Labels"]
        self.project = labels["com.docker.compose.project"]

    def _request(self, method, path, body=None, fine=()):
        connection = _Connection(self._path)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body), headers={"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            if answer.status >= 400 and answer.status not in fine:
                raise RuntimeError(f"{method} {path}: {answer.status} {content.decode(errors='replace')}")
            return json.loads(content) if content else None
        finally:
            connection.close()

    def container(self, service):
        """Its id; None where the project has no such service."""
        filters = json.dumps({"label": [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]})
        found = self._request("GET", f"/containers/json?all=1&filters={urllib.parse.quote(filters)}")
        return found[0]["Id"] if found else None

    def act(self, service, action, fine=(304, 409)):
        """start, stop, kill, pause, unpause; what is so already is fine."""
        self._request("POST", f"/containers/{self.container(service)}/{action}", fine=fine)

    def unplug(self, service):
        self._request("POST", f"/networks/{self.project}_default/disconnect", {"Container": self.container(service), "Force": True})

    def plug_in(self, service):
        if self._networks(service):
            return
        self._request("POST", f"/networks/{self.project}_default/connect",
                      {"Container": self.container(service), "EndpointConfig": {"Aliases": [service]}})

    def _networks(self, service):
        return self._request("GET", f"/containers/{self.container(service)}/json")["NetworkSettings"]["Networks"]
