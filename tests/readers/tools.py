"""What consumers need: a Python of their own with their packages, Java's jars, and the classes that protoc generates."""

import glob
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import servers  # noqa: E402 - the path above makes it importable

HERE = Path(__file__).resolve().parent
PROTOS = ("walpost/v1/envelope.proto", "io/cloudevents/v1/cloudevents.proto")


def cache(name):
    """A folder that scripts/bootstrap --full has filled by the list that is here now."""
    wanted = {"python-readers": HERE / "requirements.lock", "java-readers": HERE / "java" / "pom.xml"}[name]
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "walpost" / name
    complete = folder / "complete"
    if not complete.exists() or complete.read_bytes() != wanted.read_bytes():
        raise servers.Unavailable(f"the packages of {wanted.relative_to(servers.ROOT)} in {folder} (run scripts/bootstrap --full)")
    return folder


def python():
    return cache("python-readers") / "bin" / "python"


def generate(language, folder):
    """What a consumer makes of our .proto files, and of an application's."""
    folder.mkdir(parents=True)
    subprocess.run(["protoc", f"--{language}_out={folder}", f"-I{servers.ROOT / 'proto'}", f"-I{HERE}", *PROTOS, "shop.proto"],
                   check=True)
    return folder


def load(path):
    """A generated module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_java(folder):
    """The class path of our reader, compiled with the generated classes."""
    jars = f"{cache('java-readers')}/*"
    sources = [*glob.glob(f"{generate('java', folder / 'generated')}/io/walpost/**/*.java", recursive=True),
               *map(str, (HERE / "java").glob("*.java"))]
    subprocess.run(["javac", "-nowarn", "-proc:none", "-cp", jars, "-d", str(folder / "classes"), *sources], check=True)
    return f"{folder / 'classes'}:{jars}"
