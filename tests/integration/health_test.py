"""What health says while a side is silent: a network that takes everything and lets nothing through, without FIN or RST. No process is killed."""

import contextlib
import signal
import time

import psycopg2.extensions
import pytest
import servers
from tcp_proxy import TcpProxy

# Of the server: it is how soon silence is noticed.
SENDER_TIMEOUT_MS = 4_000


@pytest.fixture(scope="module")
def behind_network(module_workspace):
    """A PostgreSQL that notices silence soon, and proxies to it and to a Kafka of its own, which advertises the proxy."""
    with contextlib.ExitStack() as stack:
        postgres = module_workspace.postgres(settings={"wal_sender_timeout": SENDER_TIMEOUT_MS})
        to_postgres = TcpProxy("postgres", ("127.0.0.1", postgres.port))
        stack.callback(to_postgres.close)
        port = servers.free_port()
        to_kafka = TcpProxy("kafka", ("127.0.0.1", port))
        stack.callback(to_kafka.close)
        kafka = module_workspace.kafka(port=port, settings={
            "listeners": f"PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{(proxied := servers.free_port())},CONTROLLER://127.0.0.1:{(c := servers.free_port())}",
            "controller.quorum.voters": f"1@127.0.0.1:{c}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{to_kafka.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT"})
        to_kafka.target = ("127.0.0.1", proxied)
        yield postgres, kafka, to_postgres, to_kafka


@pytest.fixture
def p(make_pipeline, behind_network):
    postgres, kafka, to_postgres, to_kafka = behind_network
    made = make_pipeline(on_postgres=postgres, on_kafka=kafka)
    parts = psycopg2.extensions.parse_dsn(postgres.conninfo(made.database, tcp=True))
    parts.update(host="127.0.0.1", port=to_postgres.port)
    made.walpost_options = {"conninfo": psycopg2.extensions.make_dsn(**parts), "bootstrap": f"127.0.0.1:{to_kafka.port}",
                            "properties": {"socket.timeout.ms": "4000"}}
    made.walpost = made.another(**made.walpost_options)
    made.start()
    made.insert(1, 20)
    made.wait_confirmed()
    yield made
    to_postgres.make_filter = None
    to_postgres.set_mode("pass")
    to_kafka.set_mode("pass")


class NoLogin:
    """A connection that asks for replication gets no answer; any other does."""

    def __init__(self):
        self.silent = False

    def up(self, data):
        self.silent = self.silent or b"\0replication\0" in data
        return (b"" if self.silent else data), b""

    def down(self, data):
        return data


def healthy(p):
    return p.walpost.get("/livez")[0] == 200 and p.walpost.get("/readyz")[0] == 200


def test_silent_postgres_is_noticed_and_left_and_the_stream_goes_on(p, behind_network):
    to_postgres = behind_network[2]
    pid = p.walpost.process.pid
    to_postgres.set_mode("hold")
    p.insert(21, 40)
    # Noticed after the server's own time-out; ten times that would be a hang.
    p.walpost.wait_state("reconnecting", 10 * SENDER_TIMEOUT_MS / 1000)
    assert healthy(p), "a dependency must not take walpost out of service"
    verbose = p.walpost.get("/readyz?verbose")[1]
    assert "[-] source connected" in verbose and "silent" in p.walpost.status()["last_error"]
    to_postgres.set_mode("pass")
    p.walpost.wait_state("streaming", 60)
    p.wait_confirmed()
    p.judge()
    assert p.walpost.process.pid == pid and p.walpost.process.poll() is None


def test_silent_kafka_is_noticed_and_nothing_is_given_up(p, behind_network):
    to_kafka = behind_network[3]
    to_kafka.set_mode("hold")
    confirmed = p.slot()["confirmed"]
    p.insert(21, 40)
    servers.wait_for(lambda: (s := p.walpost.status()) and not s["sink"]["connected"], 60, "the silence to be noticed")
    status = p.walpost.status()
    assert status["state"] == "streaming" and status["in_flight"]["events"] == 20 and status["in_flight"]["oldest_commit_at"]
    assert healthy(p) and "[-] sink connected" in p.walpost.get("/readyz?verbose")[1]
    assert p.slot()["confirmed"] == confirmed or p.slot()["confirmed"] <= servers.lsn(status["source"]["safe_lsn"])
    to_kafka.set_mode("pass")
    p.wait_confirmed()
    p.judge()
    servers.wait_for(lambda: p.walpost.status()["sink"]["connected"], 30, "the connection to be reported")


def test_readiness_follows_the_states_that_only_walpost_can_change(p):
    second = p.another().start(wait="standby")
    assert second.get("/readyz")[0] == 200, "a hot standby is ready"
    assert second.stop() == 0
    assert p.walpost.stop() == 0
    p.execute("SELECT pg_drop_replication_slot(%s)", p.name)
    p.walpost.start(wait="halted")
    assert p.walpost.get("/livez")[0] == 200 and p.walpost.get("/readyz")[0] == 503


def take_over(p, last):
    """A second instance, beside the proxies, delivers up to `last`; then it leaves, and the first one goes on."""
    second = p.another().start()
    p.insert(last - 19, last)
    servers.wait_for(lambda: {f"event {n}".encode() for n in range(21, last + 1)} <= payloads(p), 60, "the second instance to deliver")
    return second


def payloads(p):
    return {record.envelope.payload for record in p.records()}


# Failure 83.
def test_process_that_lost_the_slot_does_not_publish_what_another_has_delivered(p, behind_network):
    """In flight here, Kafka and PostgreSQL away only for this process: another one delivers, and goes on."""
    to_postgres, to_kafka = behind_network[2:]
    to_kafka.set_mode("cut")
    servers.wait_for(lambda: not p.walpost.status()["sink"]["connected"], 60, "Kafka to be away")
    p.insert(21, 25)
    servers.wait_for(lambda: p.walpost.status()["in_flight"]["events"] == 5, 30, "events in flight")
    to_postgres.set_mode("cut")
    cut = time.monotonic()
    p.walpost.wait_state("reconnecting", 30)
    second = take_over(p, 45)
    # What is in flight may be published for wal_sender_timeout after the loss, and no longer.
    servers.wait_for(lambda: time.monotonic() > cut + 2 * SENDER_TIMEOUT_MS / 1000, 30, "the time to publish alone to be over")
    to_kafka.set_mode("pass")
    to_postgres.set_mode("pass")
    p.walpost.wait_state("standby", 60)
    assert second.stop() == 0
    p.walpost.wait_state("streaming", 60)
    p.insert(46, 60)
    p.wait_confirmed()
    assert p.judge() == 0, "nothing twice: what another has delivered is not sent again"


# What it reads after the pause may be from long ago. The server answers everybody else.
# Failure 83.
@pytest.mark.parametrize("passes", ["nothing", "new connections", pytest.param("pings", marks=pytest.mark.full)])
def test_process_that_lost_the_slot_while_it_read_nothing_does_not_publish(p, behind_network, passes):
    to_postgres, to_kafka = behind_network[2:]
    assert p.walpost.stop() == 0
    p.walpost = p.another(**p.walpost_options, config={"delivery": {"in_flight_bytes_max": "64KiB"}}).start()
    to_kafka.set_mode("cut")
    servers.wait_for(lambda: not p.walpost.status()["sink"]["connected"], 60, "Kafka to be away")
    p.insert_transactions(1001, 1300, keys=1, payload_bytes=500)
    p.walpost.wait_state("backpressured", 30)
    if passes == "nothing":
        to_postgres.set_mode("hold")
    else:
        to_postgres.make_filter = NoLogin if passes == "pings" else None
        to_postgres.hold_those_of_now()
    servers.wait_for(lambda: not p.slot()["active"], 60, "the server to give the connection up")
    gone = time.monotonic()
    second = p.another().start()
    p.insert_transactions(1301, 1400, keys=1, payload_bytes=500)
    servers.wait_for(lambda: second.status()["events"]["delivered"] == 400, 60, "the second instance to deliver")
    delivered = len(p.records())
    servers.wait_for(lambda: time.monotonic() > gone + 2 * SENDER_TIMEOUT_MS / 1000, 30, "the time to publish alone to be over")
    to_kafka.set_mode("pass")
    if passes == "pings":  # long enough for a process that believes them
        p.walpost.wait_state("reconnecting", 120)
        to_postgres.make_filter = None
    to_postgres.set_mode("pass")
    p.walpost.wait_state("standby", 120)
    assert second.stop() == 0
    p.walpost.wait_state("streaming", 60)
    p.insert_transactions(1401, 1410, keys=1)
    p.wait_confirmed()
    assert len(p.records()) == delivered + 10, "nothing twice: what another has delivered is not sent again"


# Failure 83.
@pytest.mark.parametrize("busy", [False, True])
def test_process_that_was_stopped_as_a_whole_while_another_took_over(p, busy):
    if busy:
        p.insert_transactions(1001, 1500)  # some of it is in flight
    p.walpost.signal(signal.SIGSTOP)
    pid = servers.wait_for(lambda: p.slot()["pid"], 30, "a walsender")
    p.execute("SELECT pg_terminate_backend(%s)", pid)
    servers.wait_for(lambda: p.slot()["pid"] != pid, 30, "the walsender to end")
    second = take_over(p, 40)
    p.walpost.signal(signal.SIGCONT)
    p.walpost.wait_state("standby", 60)
    assert second.stop() == 0
    p.walpost.wait_state("streaming", 60)
    p.insert(41, 60)
    p.wait_confirmed()
    repeats = p.judge()  # in order for whoever drops what is not above the last position of its key
    assert busy or repeats == 0, "a stopped process may send what its producer held, and nothing else"
