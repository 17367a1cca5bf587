"""An engine with the images, and the demo that all tests of a run share: they go through the tour in its order."""

import json
import os
import subprocess
import time
from pathlib import Path

import engine as engines
import pytest
from stand_ins import Images

ROOT = Path(__file__).resolve().parents[2]
notes = []  # what the run has to say at its end


def note(line):
    notes.append(line)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("containers")
    for line in notes:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def engine():
    engine = engines.start()
    version = engine.run("docker", "version", "--format", "{{.Server.Version}}", capture_output=True).stdout.strip()
    note(f"engine: Docker {version}, {'started by the test' if engine.own else 'that of the machine'}")
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def images(engine):
    images = Images(engine)
    yield images
    for image, what in images.stood_in.items():
        note(f"stand-in: {image} was {what}")
    for image in images.absent:
        note(f"not run: {image} (its registry cannot be reached, and nothing stands in for it)")


class Demo:
    """The compose project, in docker/."""

    def __init__(self, engine):
        self.engine = engine

    def shell(self, command, timeout=600, env=None):
        """As a reader types it."""
        return self.engine.run("sh", "-c", f"cd '{ROOT}/docker' && {command}", check=False, capture_output=True, timeout=timeout, env=env)

    def compose(self, *arguments, **options):
        done = self.shell(" ".join(["docker compose", *arguments]), **options)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def get(self, url):
        return self.shell(f"curl -sS --max-time 5 '{url}'").stdout

    def sql(self, statement, database="shop"):
        return self.compose("exec", "-T", "postgres", "psql", "-U", "postgres", "-At", database, "-c", f'"{statement}"').strip()

    def wait_for(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds} s: {what}; {self.shell('docker compose ps -a; docker compose logs --tail 30').stdout[-6000:]}")
            time.sleep(0.5)
        return value

    def state(self, service="walpost"):
        """What walpost says of itself; nothing while it is away."""
        said = self.shell(f"docker compose exec -T {service} walpost status --json").stdout
        return json.loads(said)["state"] if said.startswith("{") else None


@pytest.fixture(scope="session")
def walpost_image(engine, images):
    """walpost:latest, of the sources as they are; or the saved image that WALPOST_IMAGE_FILE names, so that a release tests what it ships."""
    assert images.provide("debian:trixie-slim")
    revision = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    epoch = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False).stdout.strip()
    build = [ROOT / "scripts" / "image", "--tag", "walpost:latest"]
    environment = {name: value for name, value in (("REVISION", revision), ("SOURCE_DATE_EPOCH", epoch)) if value}

    def make(*arguments):
        done = engine.run(*build, *arguments, *engine.build_arguments(), check=False, capture_output=True, env=environment)
        assert done.returncode == 0, f"{done.stdout}{done.stderr[-5000:]}"
        return done.stdout.strip().splitlines()[-1]

    saved = os.environ.get("WALPOST_IMAGE_FILE")
    if saved:
        loaded = engine.run("docker", "load", "--quiet", "--input", saved, capture_output=True).stdout.strip().removeprefix("Loaded image: ")
        engine.run("docker", "tag", loaded, "walpost:latest")
        note(f"image: {loaded} of {saved}")
    else:
        note(make())
    return make


@pytest.fixture(scope="session")
def demo(engine, images, walpost_image):
    """Not started; ended and emptied afterwards."""
    demo = Demo(engine)
    demo.compose("--profile '*'", "down", "--volumes", "--remove-orphans")
    wanted = set(demo.compose("--profile '*'", "config", "--images").split()) - {"walpost:latest", "walpost-demo:latest"}
    for image in sorted(wanted):
        images.provide(image)
    demo.compose("build", *engine.build_arguments(), "shop", timeout=1200)
    yield demo
    if os.environ.get("WALPOST_KEEP_DEMO") != "1":
        demo.compose("--profile '*'", "down", "--volumes", "--remove-orphans")
