"""The images that are not built here: from their registry, or, in an engine of the test's own that reaches none, images of the same name
made from Debian's packages and Maven's artifacts.

A stand-in bears a label. It is never made in the machine's own engine, where it could be taken for the real one.
"""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple, Optional

import debian_root

HERE = Path(__file__).resolve().parent / "stand_ins"
BASE = "debian:trixie-slim"
LABEL = "walpost.stand-in"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "walpost"  # of scripts/bootstrap


class StandIn(NamedTuple):
    folder: str
    what: str
    artifacts: Optional[Path] = None  # for its build
    base: str = BASE


MADE_OF = {
    "postgres": StandIn("postgres", "PostgreSQL of Debian 13"),
    "apache/kafka": StandIn("kafka", "Kafka 4.1.0 from Maven, Java of Debian 13",
                            Path(os.environ["KAFKA_HOME"]) / "libs" if os.environ.get("KAFKA_HOME") else CACHE / "kafka-4.1.0"),
    "prom/prometheus": StandIn("prometheus", "Prometheus of Debian 13"),
    "quay.io/apicurio/apicurio-registry": StandIn("apicurio-registry", "Apicurio Registry 3.3.3 from Maven, Java of Debian 13",
                                                  CACHE / "apicurio-registry-3.3.3"),
    "quay.io/debezium/connect": StandIn("connect", "Debezium 3.6.1 on Kafka Connect 4.1.0, both from Maven", CACHE / "debezium-3.6.1.Final",
                                        "apache/kafka:4.1.0"),
}


class Images:
    def __init__(self, engine):
        self._engine = engine
        self.stood_in = {}  # image: what stands in for it
        self.absent = []

    def provide(self, image):
        """True when it is there afterwards."""
        if self._is_real(image) or self._pull(image):
            return True
        if not self._engine.own or not (image == BASE or image.split(":")[0] in MADE_OF):
            self.absent.append(image)
            return False
        if image == BASE:
            self._import_base()
            self.stood_in[image] = "a root of Debian 13 by mmdebstrap"
        else:
            stand_in = MADE_OF[image.split(":")[0]]
            self.provide(stand_in.base)
            self._build(image, stand_in)
            self.stood_in[image] = stand_in.what
        return True

    def _is_real(self, image):
        done = self._engine.run("docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{LABEL}"}}}}', image, check=False,
                                capture_output=True)
        return done.returncode == 0 and not done.stdout.strip()

    def _pull(self, image):
        return self._engine.run("docker", "pull", "--quiet", image, check=False, capture_output=True).returncode == 0

    def _import_base(self):
        command = ["docker", "import", "--change", 'CMD ["bash"]', "--change", f"LABEL {LABEL}=yes", "-", BASE]
        with open(debian_root.archive("13"), "rb") as root:
            self._engine.run(*command, stdin=root, capture_output=True)

    def _build(self, image, stand_in):
        print(f"stand-in: {image}", flush=True)
        contexts = ["--build-context", f"artifacts={self._engine.share(stand_in.artifacts)}"] if stand_in.artifacts else []
        self._engine.run("docker", "build", "--quiet", *self._engine.build_arguments(), *contexts, "--label", f"{LABEL}=yes", "-t", image,
                         HERE / stand_in.folder, stdout=subprocess.DEVNULL)
