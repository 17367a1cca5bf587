"""The image: what is in it, how large it is, whom it runs as, and whether it is the same when it is made again."""

import json
import subprocess

import hardening
import pytest
from conftest import ROOT, note

OWN_LAYERS_MAX_BYTES = 45_000_000
LABELS = ("title", "description", "licenses", "version", "revision", "base.name")


def docker(engine, *arguments, **options):
    return engine.run("docker", *arguments, **{"capture_output": True, **options})


@pytest.fixture(scope="module")
def image(engine, walpost_image):
    return json.loads(docker(engine, "image", "inspect", "walpost:latest").stdout)[0]


@pytest.fixture(scope="module")
def sbom(engine, walpost_image):
    return json.loads(docker(engine, "run", "--rm", "--entrypoint", "cat", "walpost:latest", "/usr/share/sbom/walpost.spdx.json").stdout)


def in_image(engine, *command):
    return docker(engine, "run", "--rm", "--entrypoint", command[0], "walpost:latest", *command[1:]).stdout


def test_own_layers_are_small(engine, image):
    base = json.loads(docker(engine, "image", "inspect", "debian:trixie-slim").stdout)[0]
    assert image["RootFS"]["Layers"][:len(base["RootFS"]["Layers"])] == base["RootFS"]["Layers"], "not on its base"
    own = image["Size"] - base["Size"]
    note(f"image: {own / 1e6:.1f} MB in {len(image['RootFS']['Layers']) - len(base['RootFS']['Layers'])} layers of its own, on {base['Size'] / 1e6:.1f} MB")
    assert 0 < own <= OWN_LAYERS_MAX_BYTES


def test_it_is_labelled_has_a_healthcheck_and_no_root(image):
    config = image["Config"]
    assert config["User"] == "65532:65532"
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/walpost", "healthcheck"]
    assert (config["Entrypoint"], config["Cmd"]) == (["/usr/bin/walpost"], ["run"])
    for label in LABELS:
        assert config["Labels"][f"org.opencontainers.image.{label}"] not in ("", "0", "unknown"), label


def test_it_runs_with_nothing_to_write_and_no_rights(engine, image):
    hardened = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none")
    done = docker(engine, "run", "--rm", *hardened, "walpost:latest", "version")
    assert done.stdout.startswith(f"walpost {image['Config']['Labels']['org.opencontainers.image.version']}\n")
    assert "librdkafka 2.8" in done.stdout
    # The shipped configuration is there, and what it leaves to the environment is taken from there.
    shown = docker(engine, "run", "--rm", *hardened, "-e", "WALPOST_NAME=other", "walpost:latest", "config", "show").stdout
    assert "name: other" in shown and "0.0.0.0:9464" in shown


def test_the_binary_is_hardened(engine, walpost_image, tmp_path):
    container = docker(engine, "create", "walpost:latest").stdout.strip()
    docker(engine, "cp", f"{container}:/usr/bin/walpost", tmp_path / "walpost")
    docker(engine, "rm", container)
    assert hardening.missing(tmp_path / "walpost") == []


def test_a_user_without_a_name_may_run_it(engine, walpost_image):
    source = "WALPOST_SOURCE_CONNINFO=host=postgres dbname=shop user=outbox_relay"
    assert docker(engine, "run", "--rm", "--user", "12345:0", "-e", source, "walpost:latest", "config", "validate").stdout == "ok\n"


def test_what_walpost_loads_is_in_it(engine, walpost_image):
    assert "not found" not in in_image(engine, "ldd", "/usr/bin/walpost")
    plugins = in_image(engine, "sh", "-c", "for plugin in /usr/lib/*/sasl2/*.so.*; do ldd $plugin; done")
    assert "libgssapi" in plugins and "not found" not in plugins
    assert "BEGIN CERTIFICATE" in in_image(engine, "head", "-2", "/etc/ssl/certs/ca-certificates.crt")


def test_every_package_of_which_it_has_files_is_listed(engine, sbom):
    listed = {package["name"]: package for package in sbom["packages"]}
    assert listed["walpost"]["licenseDeclared"] == "Apache-2.0"
    checksum = in_image(engine, "sha256sum", "/usr/bin/walpost").split()[0]
    assert listed["walpost"]["checksums"] == [{"algorithm": "SHA256", "checksumValue": checksum}]
    for name in in_image(engine, "ls", "/var/lib/dpkg/status.d").split():
        assert name in listed and in_image(engine, "cat", f"/usr/share/doc/{name}/copyright")
    assert {"librdkafka1", "libpq5", "nlohmann-json3-dev", "ca-certificates", "libc6"} <= set(listed)
    for line in in_image(engine, "dpkg-query", "-W", "-f", "${Package} ${Version}\n").splitlines():
        name, version = line.split()
        assert listed[name]["versionInfo"] == version
    # Every shared object beyond the base belongs to one of them.
    files = {path for package in listed.values() for path in package.get("comment", "").removeprefix("files: ").split()}
    loaded = {line.split("=> ")[1].split()[0] for line in in_image(engine, "ldd", "/usr/bin/walpost").splitlines() if "=> /" in line}
    of_base = set(in_image(engine, "sh", "-c", "cat /var/lib/dpkg/info/*.list").split())
    for path in loaded:
        assert {path, f"/usr{path}"} & (files | of_base), path


def test_made_again_its_layers_are_the_same(engine, image, walpost_image):
    before = image["RootFS"]["Layers"]
    walpost_image("--no-cache-filter", "root,walpost")
    assert json.loads(docker(engine, "image", "inspect", "walpost:latest").stdout)[0]["RootFS"]["Layers"] == before


def test_saved_and_loaded_it_is_the_same_image(engine, walpost_image):
    """As scripts/release makes it."""
    file = ROOT / "build" / "walpost-image.tar.gz"
    note(walpost_image("--save", file))
    look = ("image", "inspect", "--format", "{{json .RootFS}} {{json .Config}} {{.Created}}", "walpost:latest")
    made = docker(engine, *look).stdout
    docker(engine, "image", "rm", "--force", "walpost:latest")
    assert docker(engine, "load", "--quiet", "--input", file).stdout == "Loaded image: walpost:latest\n"
    assert docker(engine, *look).stdout == made


def test_a_walpost_that_does_not_answer_is_unhealthy(engine, walpost_image):
    with pytest.raises(subprocess.CalledProcessError):
        docker(engine, "run", "--rm", "--network", "none", "walpost:latest", "healthcheck")
