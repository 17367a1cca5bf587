"""A real Schema Registry for tests: Apicurio, by its API that is compatible with Confluent's.

Its archive comes from Maven (scripts/bootstrap --full) and needs Java 21; it keeps everything in memory. Use /usr/bin/python3.

What 3.3.3 does, tried:
- /apis/ccompat/v7 and v8 are there and answer alike. None knows GUIDs: not in answers, and /schemas/guids/... is a 404 without content.
- A protobuf schema may be .proto text or the base64 of a FileDescriptorProto. It is kept as it came, and the two are different
  schemas with different ids, with ?normalize=true too. Whitespace and comments of text do not count, with or without it. Imports of
  google/protobuf/*.proto need no references. The same schema under two subjects has one id.
- ?format=serialized of GET /schemas/ids/N, which Confluent's ProtobufDeserializer asks for, is broken: 500 for base64, no base64 for text.
- Unknown subject: 404, error_code 40401; version: 40402; schema of a known subject, and id: 40403. Not a schema: 422, 42201.
  Incompatible: 409, 409. A content type other than JSON: 415 without content.
- POST /compatibility/subjects/S/versions/latest says is_compatible without messages, and true for an unknown subject.
- Compatibility is NONE until it is set; GET /config/S then answers 200 with that.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import servers

REGISTRY_VERSION = "3.3.3"
JAVA_MIN = 21


def cache():
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "walpost"


def java_version(java):
    """The major version; 0 of what does not run."""
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', text)
    return int(found[1]) if found else 0


def java():
    """One that is new enough, wherever it is installed."""
    candidates = [shutil.which("java"), *sorted(glob.glob("/usr/lib/jvm/*/bin/java")), str(cache() / "java-21" / "bin" / "java")]
    if os.environ.get("JAVA_HOME"):
        candidates.insert(0, f"{os.environ['JAVA_HOME']}/bin/java")
    for candidate in candidates:
        if candidate and java_version(candidate) >= JAVA_MIN:
            return candidate
    raise servers.Unavailable(f"a Java runtime of version {JAVA_MIN} or newer for the Schema Registry (run scripts/bootstrap --full)")


class Registry:
    def __init__(self, path, heap_mb=512):
        self.path = Path(path)
        self.path.mkdir(parents=True)
        self.jar = cache() / f"apicurio-registry-{REGISTRY_VERSION}" / "quarkus-run.jar"
        if not self.jar.exists():
            raise servers.Unavailable(f"Apicurio Registry in {self.jar.parent} (run scripts/bootstrap --full)")
        self.java = java()
        self.heap_mb = heap_mb
        self.port = servers.free_port()
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        self.log = self.path / "log"
        self.process = None

    def start(self, seconds=120):
        settings = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": self.port, "quarkus.management.host": "127.0.0.1",
                    "quarkus.management.port": servers.free_port()}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.java, f"-Xmx{self.heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                 *(f"-D{name}={value}" for name, value in settings.items()), "-jar", self.jar],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.path)
        servers.wait_for(self._ready, seconds, "the registry to answer", every=0.1)
        return self

    def _ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the registry ended: {self.log.read_text(errors='replace')[-3000:]}")
        return self.request("GET", "/subjects")[0] == 200

    def request(self, method, path, body=None):
        """(code, decoded answer); (0, None) while nothing listens."""
        request = urllib.request.Request(self.url + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/vnd.schemaregistry.v1+json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, decode(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, decode(error.read())
        except OSError:
            return 0, None

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def decode(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text.decode(errors="replace")
