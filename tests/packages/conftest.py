"""Servers, and a package for each Debian, that all tests of a run share."""

import shutil
import tempfile
from pathlib import Path

import debian_package  # makes the next two importable
import debian_root
import pytest
import servers


@pytest.fixture(scope="session")
def kafka():
    with servers.Workspace() as workspace:
        yield workspace.kafka()


@pytest.fixture(scope="session")
def postgres():
    with servers.Workspace() as workspace:
        yield workspace.postgres()


@pytest.fixture(scope="session", params=debian_root.SUITES)
def package(request, tmp_path_factory):
    """(version of Debian, the package built for it)"""
    return request.param, Path(shutil.copy(debian_package.build(request.param), tmp_path_factory.mktemp("packages")))


@pytest.fixture
def root(package):
    """A clean root of its Debian, which apt knows."""
    debian_root.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=debian_root.CACHE, prefix="install-") as folder:
        root = debian_root.DebianRoot(package[0], folder)
        root.run("apt-get", "update", "-qq")
        yield root
