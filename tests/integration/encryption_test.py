"""What goes over a network in clear text is reported, and rejected where encryption is required."""

import os
import socket
import subprocess

import servers


def own_address():
    """An address of this machine that is not loopback: nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address = probe.getsockname()[0]
    if address.startswith("127."):
        raise servers.Unavailable("a network address besides loopback")
    return address


def warnings(walpost, peer="postgresql"):
    return [line for line in walpost.log_events() if line["event"] == "clear_text" and line["peer"] == peer]


def switch_tls_on(postgres):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=db", "-keyout",
                    postgres.data / "server.key", "-out", postgres.data / "server.crt"], check=True, capture_output=True)
    for name in ("server.key", "server.crt"):
        (postgres.data / name).chmod(0o600)
        if postgres.user:
            os.chown(postgres.data / name, postgres.user.pw_uid, postgres.user.pw_gid)
    postgres.execute("ALTER SYSTEM SET ssl = on")
    postgres.execute("SELECT pg_reload_conf()")


# Failure 95.
def test_clear_text_over_the_network_is_warned_of_and_rejected_where_encryption_is_required(make_pipeline, workspace):
    address = own_address()
    postgres = workspace.postgres(settings={"listen_addresses": "'*'"})
    with open(postgres.data / "pg_hba.conf", "a", encoding="utf-8") as hba:
        hba.write(f"host all all {address}/32 trust\n")
    postgres.execute("SELECT pg_reload_conf()")
    p = make_pipeline(on_postgres=postgres).start()
    assert warnings(p.walpost) == [], "a unix socket"
    assert p.walpost.stop() == 0

    network = f"host=db hostaddr={address} port={postgres.port} dbname={p.database} user=postgres"
    clear = p.another(conninfo=network).start()
    warning, = warnings(clear)
    assert address in warning["msg"] and "sslmode=verify-full" in warning["msg"], warning
    assert warnings(clear, "kafka") == [], "loopback"
    assert clear.stop() == 0
    assert f"({address})" in clear.verb("check", check=False).stdout

    kafka = {"kafka": {"properties": {"bootstrap.servers": p.kafka.bootstrap, "security.protocol": "SSL"}}}
    strict = p.another(conninfo=network, config={"security": {"require_encryption": "true"}, "sink": kafka})
    rejected = strict.verb("run", check=False)
    assert rejected.returncode == 78 and "source.conninfo" in rejected.stderr and "sslmode is prefer" in rejected.stderr, rejected
    assert "sink.kafka" not in rejected.stderr

    switch_tls_on(postgres)
    encrypted = p.another(conninfo=f"{network} sslmode=require").start()
    p.insert(1, 10)
    encrypted.wait_delivered(10)
    assert warnings(encrypted) == []
    assert p.judge() == 0
