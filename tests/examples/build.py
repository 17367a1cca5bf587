"""Builds the examples as docs/examples/README.md says, and says how each is run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import servers  # noqa: E402 - the path above makes it importable

EXAMPLES = servers.ROOT / "docs" / "examples"
LISTS = {"java": "pom.xml", "go": "go.sum", "node": "package.json"}


def cache(language):
    """A folder that scripts/bootstrap --full has filled by the list that is here now."""
    wanted = EXAMPLES / language / LISTS[language]
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "walpost" / f"{language}-examples"
    complete = folder / "complete"
    if not complete.exists() or complete.read_bytes() != wanted.read_bytes():
        raise servers.Unavailable(f"the packages of {wanted.relative_to(servers.ROOT)} in {folder} (run scripts/bootstrap --full)")
    return folder


def run(*command, **options):
    subprocess.run([str(word) for word in command], check=True, **options)


def protoc(*arguments, **options):
    run("protoc", f"-I{servers.ROOT / 'proto'}", *arguments, "walpost/v1/envelope.proto", **options)


class Program:
    def __init__(self, *command):
        self.command = command

    def start(self, log, environment, *arguments):
        with open(log, "ab") as out:
            return subprocess.Popen([str(word) for word in [*self.command, *arguments]], env={**os.environ, **environment},
                                    stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True)


def copy(language, folder):
    """Without what somebody has built there."""
    built = [line.rstrip("/").rpartition("/")[2] for line in (EXAMPLES / ".gitignore").read_text(encoding="utf-8").splitlines()]
    return Path(shutil.copytree(EXAMPLES / language, folder / language, ignore=shutil.ignore_patterns(*built)))


def python(folder):
    here = copy("python", folder)
    protoc(f"--python_out={here}")
    return {name: Program("/usr/bin/python3", here / f"{name}.py") for name in ("producer", "consumer")}


def java(folder):
    here, jars = copy("java", folder), f"{cache('java')}/*"
    protoc(f"--java_out={here}")
    run("javac", "-nowarn", "-cp", jars, "-d", here / "classes", *here.rglob("*.java"))
    return {name: Program("java", "-cp", f"{here / 'classes'}:{jars}", name.title()) for name in ("producer", "consumer")}


def go(folder):
    here = copy("go", folder)
    with_plugin = {**os.environ, "PATH": f"{cache('go')}:{os.environ['PATH']}"}
    protoc(f"--go_out={here}", "--go_opt=module=example", "--go_opt=Mwalpost/v1/envelope.proto=example/walpostv1", env=with_plugin)
    run("go", "build", "-o", f"{here}/bin/", "./...", cwd=here)
    return {name: Program(here / "bin" / name) for name in ("producer", "consumer")}


def node(folder):
    here = copy("node", folder)
    (here / "node_modules").symlink_to(cache("node") / "node_modules")
    return {"producer": Program("node", here / "producer.js")}


LANGUAGES = {"python": python, "java": java, "go": go, "node": node}
