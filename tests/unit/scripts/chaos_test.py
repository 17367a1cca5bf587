"""The parts of scripts/chaos that must be right before it can judge anything: plan, history, judge and proxy."""

import collections
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "chaos"), str(TESTS / "support")]
from history import History, Part, event_id, event_number, key_of, parse_id  # noqa: E402 - the path above makes it importable
from judge import FATAL, Judge, Look, Seen, commit_lsn  # noqa: E402
from plan import KINDS, SCENES, make_plan  # noqa: E402
from tcp_proxy import TcpProxy  # noqa: E402
from watch import CpuTime  # noqa: E402

TOPIC = "t"
WHERE = (TOPIC, "k")


def test_a_seed_is_one_plan_and_deals_the_kinds_evenly():
    plan = make_plan(1, 15)
    assert str(plan) == str(make_plan(1, 15)) != str(make_plan(2, 15))
    times = collections.Counter(fault.kind for fault in plan.faults)
    assert len(plan.faults) >= 40
    assert set(times) == set(KINDS)
    assert min(times.values()) >= 3
    assert all(0 < fault.begin_s < plan.seconds for fault in plan.faults)


def test_every_seed_of_some_sets_the_server_back_in_another_way():
    assert {make_plan(seed, 1).scene for seed in range(50)} == set(SCENES)


def test_what_was_broken_meanwhile_does_not_count_as_delay():
    judge = Judge({WHERE: [1, 2]}, set())
    for event, committed_s, appended_s in ((1, 100, 200), (2, 0, 29)):
        judge.see(Seen(TOPIC, 0, event, "k", event, position(event), event, appended_s * 1000, committed_s * 1000))
    assert judge.longest_undisturbed_s([]) == 100, "and nothing of what took less than 30 s"
    assert judge.longest_undisturbed_s([(90, 110), (105, 120), (300, 400)]) == 80
    assert judge.longest_undisturbed_s([(0, 1000)]) == 0
    assert judge.longest_undisturbed_s([(150, 160), (120, 130), (155, 158)]) == 80


def test_what_a_hostile_event_in_front_may_hold_up_does_not_count_as_delay():
    judge = Judge({WHERE: [1, 2, 3]}, set())
    for event, committed_s, appended_s in ((1, 40, 100), (2, 100, 200), (3, 150, 210)):
        judge.see(Seen(TOPIC, 0, event, "k", event, position(event), event, appended_s * 1000, committed_s * 1000))
    assert judge.longest_undisturbed_s([], [50, 90, 100], 2) == 100 - 3 * 2, "it stood behind the first event, and so behind these"
    assert judge.longest_undisturbed_s([], [39, 101], 2) == 100, "behind it, or delivered when it was committed"
    assert judge.longest_undisturbed_s([(40, 100), (110, 195)], [50, 90, 100], 2) == 15 - 2, "the third, with one of them in front"
    assert judge.longest_undisturbed_s([], [100] * 60, 2) == 60, "no less than nothing"


def processor_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_processor_time_of_a_busy_loop_is_noticed():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        cpu = CpuTime(while_s=1.0)
        # By a clock on which it takes a whole core, since this machine may have none to spare.
        while (now := processor_s(process.pid)) < 2.5:
            cpu.look(process.pid, now)
            time.sleep(0.1)
        process.kill()
    assert 0.7 <= cpu.worst <= 1.3
    cpu.look(process.pid, now)
    assert cpu.total_s <= 3


def test_processor_time_of_a_quiet_process_is_not_noticed():
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        cpu, begin = CpuTime(while_s=1.0), time.monotonic()
        while (now := time.monotonic()) < begin + 2.5:
            cpu.look(process.pid, now)
            time.sleep(0.1)
        process.kill()
    assert cpu.worst <= 0.1


def test_ids_are_read_back_and_foreign_ones_are_none():
    event = event_number(3, 123456)
    assert parse_id(event_id(event)) == event
    assert parse_id("7466bc03-8a13-4146-b2ad-95d334b8fda5") is None
    assert parse_id("no id") is None


def test_history_knows_what_is_expected_and_what_was_rolled_back(tmp_path):
    history = History(tmp_path)
    history.add(1, 2, True, [Part(TOPIC, 4, 4, key="shared", turn=1)])
    history.add(1, 1, True, [Part(TOPIC, 1, 1), Part(TOPIC, 2, 2, kept=False), Part(TOPIC, 3, 3, key="shared", turn=2)])
    history.add(2, 1, False, [Part(TOPIC, 1, 2)])
    history.close()
    expected, rolled_back = history.expected()
    first, second = event_number(1, 4), event_number(1, 3)
    assert expected == {(TOPIC, key_of(1, 1)): [event_number(1, 1)], (TOPIC, "shared"): [first, second]}
    assert rolled_back == {event_number(1, 2), event_number(2, 1), event_number(2, 2)}
    assert (history.committed, history.rolled_back, history.commits) == (3, 3, 2)


def position(place):
    return f"0000000000000001-00000001-{place:016x}-00000000"


def verdict(stream, expected=(1, 2, 3, 4), rolled_back=(), looks=(), places=None):
    """What the judge says of a partition with these events, event n having been committed at n."""
    judge = Judge({WHERE: list(expected)}, set(rolled_back))
    for offset, event in enumerate(stream):
        place = (places or {}).get(offset, event or 0)
        judge.see(Seen(TOPIC, 0, offset, "k", event, position(place), event or 0, offset, offset))
    counts = judge.finish(looks)
    return {name: count for name, count in counts.items() if count and name != "records"}


def test_each_event_once_in_order_is_balanced():
    assert verdict([1, 2, 3, 4]) == {}


def test_a_suffix_that_is_repeated_is_no_failure():
    assert verdict([1, 2, 3, 2, 3, 4]) == {"repeats": 2, "replays": 1}


def test_a_missing_event_is_lost_and_its_follower_out_of_order():
    assert verdict([1, 2, 4]) == {"lost": 1, "order violations": 1}
    assert verdict([1, 2, 3]) == {"lost": 1}


def test_an_event_that_was_overtaken_is_out_of_order_although_it_arrives():
    assert verdict([1, 3, 2, 4])["order violations"] > 0
    assert "lost" not in verdict([1, 3, 2, 4])


def test_what_was_rolled_back_or_never_written_is_a_phantom():
    assert verdict([1, 2, 9, 3, 4], rolled_back=[9]) == {"phantoms": 1}
    assert verdict([1, 2, None, 3, 4]) == {"phantoms": 1}


def test_a_wrong_key_is_a_phantom_and_a_loss():
    assert verdict([1], expected=()) == {"phantoms": 1}


def test_a_repeat_that_ends_before_the_newest_record_is_stale_but_no_failure():
    found = verdict([1, 2, 3, 1, 4])
    assert found == {"repeats": 1, "replays": 1, "stale repeats": 1}
    assert not set(found) & set(FATAL)


def test_a_repeat_with_another_position_is_changed_and_fools_the_consumer():
    found = verdict([1, 2, 2, 3, 4], places={2: 5})
    assert found["changed repeats"] == 1
    assert found["order violations"] > 0


def test_what_was_confirmed_before_it_was_in_kafka_is_found():
    assert commit_lsn(position(3)) == 3
    assert verdict([1, 2, 3, 4], looks=[Look(3, {(TOPIC, 0): 2})]) == {}
    assert verdict([1, 2, 3, 4], looks=[Look(4, {(TOPIC, 0): 2})]) == {"confirmed too early": 1}


@pytest.fixture
def echo():
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection):
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
        except OSError:
            pass
        connection.close()

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()
    listener.close()


@pytest.fixture
def proxy(echo):
    made = TcpProxy("echo", echo)
    yield made
    made.close()


def client(proxy):
    made = socket.create_connection(("127.0.0.1", proxy.port))
    made.settimeout(10)
    return made


def answer(connection, text, timeout=10):
    connection.settimeout(timeout)
    connection.sendall(text)
    return connection.recv(100)


def test_the_proxy_passes_everything_and_the_end(proxy):
    connection = client(proxy)
    assert answer(connection, b"one") == b"one"
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b""


def test_a_cut_resets_what_is_there_and_what_comes(proxy):
    connection = client(proxy)
    assert answer(connection, b"one") == b"one"
    proxy.set_mode("cut")
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    with pytest.raises(ConnectionResetError):
        answer(client(proxy), b"two")
    proxy.set_mode("pass")
    wait_in_force(proxy)
    assert answer(client(proxy), b"three") == b"three"


def wait_in_force(proxy):
    while (proxy._mode, proxy._delay_s) != proxy._wanted:
        threading.Event().wait(0.01)


def test_a_black_hole_is_silent_and_lets_everything_through_afterwards(proxy):
    before = client(proxy)
    assert answer(before, b"one") == b"one"
    proxy.set_mode("hold")
    wait_in_force(proxy)
    within = client(proxy)
    for connection in (before, within):
        with pytest.raises(TimeoutError):
            answer(connection, b"two", timeout=0.2)
    proxy.set_mode("pass")
    for connection in (before, within):
        connection.settimeout(10)
        assert connection.recv(100) == b"two"


@pytest.mark.parametrize("mode", ["drop_up", "drop_down"])
def test_half_open_loses_bytes_and_resets_what_lost_them(proxy, mode):
    quiet, talking = client(proxy), client(proxy)
    assert answer(quiet, b"one") == answer(talking, b"one") == b"one"
    proxy.set_mode(mode)
    wait_in_force(proxy)
    with pytest.raises(TimeoutError):
        answer(talking, b"two", timeout=0.2)
    proxy.set_mode("pass")
    wait_in_force(proxy)
    with pytest.raises(ConnectionResetError):
        talking.settimeout(10)
        talking.recv(1)
    assert answer(quiet, b"three") == b"three"
