"""The Debian package in clean roots of each Debian: installed, run on real servers, upgraded, removed, purged.

The roots share the network of this machine, where PostgreSQL and Kafka listen. No systemd runs in them; systemd_test.py has that.
"""

import re

import hardening
import pytest
import servers
from debian_package import CONFFILE, ROOT, Shop, build, install, leftovers, mode_of, newer, output

LIBRDKAFKA = {"12": "2.0.2", "13": "2.8.0"}

# Types $1 and two tabs into a zsh that has a terminal, and prints what that shows until the last option of all.
ZSH = """zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -Uz compinit && compinit -u && zstyle ":completion:*" list-colors "" && PS1="rea""dy> "'
zpty -r shell shown '*ready> *'
zpty -w -n shell "$1"$'\\t\\t'
zpty -r shell shown '*--yes*'
print -r -- "$shown"
"""


@pytest.fixture
def installed(root, package):
    """As a user installs it."""
    install(root, package[1])
    return root


def test_installed_it_runs_is_upgraded_with_its_configuration_kept_and_leaves_nothing_when_purged(installed, package, postgres, kafka, tmp_path):
    root, (version, built) = installed, package
    printed = output(root, "walpost", "version")
    assert f"librdkafka {LIBRDKAFKA[version]}\n" in printed
    assert mode_of(root, CONFFILE) == mode_of(root, "/etc/default/walpost") == "640 root:walpost"

    shop = Shop(root, postgres, kafka)
    edited = shop.configure()
    output(root, "walpost", "init", user="walpost")
    checked = output(root, "walpost", "check", user="walpost")
    shop.order(1)
    shop.run_until_confirmed()
    assert shop.keys() == [b"1"]

    install(root, newer(built, tmp_path), "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
    assert output(root, "dpkg-query", "-W", "-f", "${Version} ${db:Status-Status}", "walpost") == "99.0.0-1 installed"
    assert (root.path / CONFFILE[1:]).read_text(encoding="utf-8") == edited
    assert mode_of(root, CONFFILE) == "640 root:walpost"
    shop.order(2)
    shop.run_until_confirmed()
    assert shop.keys() == [b"1", b"2"]

    # As `systemctl enable` leaves it.
    wanted = root.path / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    (wanted / "walpost.service").symlink_to("/usr/lib/systemd/system/walpost.service")
    output(root, "apt-get", "remove", "-y", "walpost")
    assert (root.path / CONFFILE[1:]).read_text(encoding="utf-8") == edited
    assert not (root.path / "usr/bin/walpost").exists()
    output(root, "apt-get", "purge", "-y", "walpost")
    assert leftovers(root) == []
    print(f"\nDebian {version}, {built.name}, {postgres_version(postgres)}, Kafka {servers.KAFKA_VERSION}:\n{printed}{checked}")


def postgres_version(postgres):
    return postgres.execute("SELECT 'PostgreSQL ' || current_setting('server_version')")[0][0]


def test_manual_completions_unit_and_documents_are_where_the_system_looks(installed):
    root = installed
    for path in ("usr/share/man/man1/walpost.1.gz", "usr/share/man/man5/walpost.yaml.5.gz", "usr/share/bash-completion/completions/walpost",
                 "usr/share/zsh/vendor-completions/_walpost", "usr/share/fish/vendor_completions.d/walpost.fish",
                 "usr/share/doc/walpost/docs/runbook.md", "usr/share/walpost/sql/inbox/V1__inbox.up.sql"):
        # Roots for containers leave documents out; these do not.
        assert (root.path / path).is_file(), path
    assert output(root, "systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/walpost.service") == ""


def test_the_binary_is_hardened(installed):
    assert hardening.missing(installed.path / "usr/bin/walpost") == []


def test_shells_complete_with_what_the_package_brings(installed):
    root = installed
    root.install("bash-completion", "fish", "zsh")
    assert "-F _walpost" in output(root, "bash", "-c", ". /usr/share/bash-completion/bash_completion; _completion_loader walpost; complete -p walpost")
    assert output(root, "fish", "-c", "complete -C 'walpost --config /x slot rec'").startswith("recreate\tDrop the slot")
    assert "--leave-gap\tSend nothing of what Kafka lacks\n" in output(root, "fish", "-c", "complete -C 'walpost slot recreate --lea'")
    assert re.search(r"^--leave-gap +-- Send nothing", output(root, "timeout", "60", "zsh", "-f", "-c", ZSH, "zsh", "walpost slot recreate --"), re.M)


def test_configuration_that_was_not_edited_is_replaced_by_that_of_the_next_release(installed, package, tmp_path):
    install(installed, newer(package[1], tmp_path))
    assert (installed.path / CONFFILE[1:]).read_text(encoding="utf-8").startswith("# Of the next release.\n")
    assert mode_of(installed, CONFFILE) == "640 root:walpost"


def test_configuration_of_the_manifests_is_usable(installed):
    """ConfigMap's walpost.yaml, with a secret's files where the pod has them."""
    manifest = (ROOT / "docs" / "kubernetes" / "configmap.yaml").read_text(encoding="utf-8")
    content = re.sub(r"^    ", "", manifest.split("  walpost.yaml: |\n")[1], flags=re.M)
    (installed.path / "tmp/walpost.yaml").write_text(content, encoding="utf-8")
    secrets = installed.path / "run/secrets/walpost"
    secrets.mkdir(parents=True)
    for name in re.findall(r"/run/secrets/walpost/([\w.-]+)", content):
        (secrets / name).write_text("0123456789abcdef" if name == "http-token" else "x y\n", encoding="utf-8")
    assert output(installed, "walpost", "--config", "/tmp/walpost.yaml", "config", "validate") == "ok\n"


def test_a_second_build_in_another_folder_is_the_same_to_the_byte(package):
    version, built = package
    assert build(version).read_bytes() == built.read_bytes()
