#!/usr/bin/python3
"""Chaos on real servers; `scripts/chaos --minutes` runs it. docs/reliability.md says what it does and checks."""

import argparse
import json
import os
import random
import signal
import statistics
import sys
import time
import zlib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "support")]
import hostile  # noqa: E402 - the path above makes it importable
import machine  # noqa: E402
import report as reports  # noqa: E402
import servers  # noqa: E402
import setback  # noqa: E402
from faults import Injector  # noqa: E402
from history import WRITER_SHIFT, History, parse_id  # noqa: E402
from judge import Judge, Seen  # noqa: E402
from plan import KINDS, make_plan  # noqa: E402
from watch import Watch, longest, wait_until_confirmed  # noqa: E402
from with_kafka import quick_java  # noqa: E402
from world import UNKNOWN_TOPIC_WAIT_S, World  # noqa: E402
from writers import Writer  # noqa: E402

WRITERS = 3
PROGRESS_S = 5
CONFIRM_S = 300
WRITERS_END_S = 120
IDLE_S_MAX = 60  # PostgreSQL is never away for so long
RSS_BYTES_MAX = 64 << 20
DELAY_S_MAX = 60  # of an event, while nothing is broken
# Of the processor: ten times of what is normal, so that a busy loop is noticed.
CPU_S_PER_RECORD_MAX = 0.0005
CPU_SHARE_MAX = 0.1
CPU_SHARE_MAX_FOR_A_WHILE = 0.6
EX_USAGE = 64


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        self.exit(EX_USAGE, f"scripts/chaos: {message} (see --help)\n")


def arguments():
    parser = Arguments(prog="scripts/chaos")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--faults", type=int, default=None)
    parser.add_argument("--rate", type=int, default=1200, help="events a second that are offered, all writers together")
    parser.add_argument("--plan", action="store_true", help="print the faults of the seed, and do nothing")
    parser.add_argument("--report", action="store_true", help="write docs/reliability.md even when a longer run is in it")
    chosen = parser.parse_args()
    if chosen.seed is None:
        chosen.seed = random.SystemRandom().randrange(10**9)
    return chosen


def command_of(chosen):
    faults = f" --faults {chosen.faults}" if chosen.faults is not None else ""
    return f"scripts/chaos --minutes {chosen.minutes:g} --seed {chosen.seed}{faults}"


def under_fire(world, plan, chosen, history, report):
    """Load and faults for the time of the plan; then everything is healed and drained. Returns what was observed."""
    injector = Injector(world, plan, report)
    watch = Watch(world, injector, report)
    enemy = hostile.Hostile(world.postgres, "chaos", plan.seed)
    writers = [Writer(world.postgres, "chaos", n, plan.seed, chosen.rate / WRITERS, history) for n in range(1, WRITERS + 1)]
    begin = time.monotonic()
    for each in (watch, injector, enemy, *writers):
        each.start()
    try:
        wait_out(plan, begin, injector, history, watch, [enemy, *writers], report)
    except BaseException:  # interrupted: nobody may start anything again while all is being stopped
        watch.stop()
        raise
    finally:
        elapsed = time.monotonic() - begin
        injector.finish()
        for writer in (enemy, *writers):
            writer.stop()
        for writer in (enemy, *writers):
            writer.join(WRITERS_END_S)
    for writer in writers:
        if writer.is_alive() or writer.error:
            raise RuntimeError(f"{writer.name} cannot say what became of its last transaction") from writer.error
    history.end_load()
    if history.longest_idle_s > IDLE_S_MAX:
        report.finding(f"the load was quiet for {history.longest_idle_s:.0f} s: what was broken then proves little")
    report.say(f"all healed after {time.monotonic() - begin:.0f} s; waiting until everything is confirmed")
    drain_s = 0.0
    if not watch.halted.is_set():
        try:
            drain_s = wait_until_confirmed(world, CONFIRM_S)
            world.walpost.wait_state("streaming", 30)
        except (TimeoutError, RuntimeError) as error:
            report.finding(str(error))
    watch.stop()
    return injector, watch, enemy, drain_s, elapsed


def wait_out(plan, begin, injector, history, watch, writers, report):
    """Until the time of the plan is over, or nothing can be learned any more."""
    shown = begin
    while (now := time.monotonic()) - begin < plan.seconds and not watch.halted.is_set():
        time.sleep(0.2)
        if now - shown >= PROGRESS_S:
            shown = now
            report.progress(now - begin, plan, injector, history, watch)
        for each in (watch, *writers):
            if each.error:
                raise RuntimeError(f"{each.name} ended") from each.error


def judged(world, history, watch):
    expected, rolled_back = history.expected()
    judge = Judge(expected, rolled_back)
    envelope = servers.load_envelope()

    def take(message):
        headers = dict(message.headers() or [])
        parsed = envelope.FromString(message.value())
        event = parse_id(parsed.id)
        if event is not None and not payload_is_right(event, parsed.payload):
            event = None
        judge.see(Seen(message.topic(), message.partition(), message.offset(), message.key().decode(), event,
                       headers["walpost-position"].decode(), zlib.crc32(message.value()), message.timestamp()[1],
                       parsed.committed_at.ToMilliseconds()))

    world.read(take)
    judge.finish(watch.looks)
    return judge


def judge_bounds(watch, judge, undisturbed_s, elapsed, report):
    """Memory, time and processor: what is not lost may still be wrong."""
    if watch.peak_rss_bytes > RSS_BYTES_MAX:
        report.finding(f"walpost took {watch.peak_rss_bytes / (1 << 20):.0f} MiB of memory")
    if undisturbed_s > DELAY_S_MAX:
        report.finding(f"an event took {undisturbed_s:.0f} s, although nothing was broken")
    cpu_s_max = CPU_SHARE_MAX * elapsed + CPU_S_PER_RECORD_MAX * judge.counts["records"]
    if watch.cpu.total_s > cpu_s_max:
        report.finding(f"walpost took {watch.cpu.total_s:.0f} s of processor time; {cpu_s_max:.0f} s are plenty")
    if watch.cpu.worst > CPU_SHARE_MAX_FOR_A_WHILE:
        report.finding(f"walpost took {watch.cpu.worst:.0%} of a processor for a while: {watch.busiest}")


def payload_is_right(event, payload):
    text = f"{event >> WRITER_SHIFT}:{event & (1 << WRITER_SHIFT) - 1}:".encode()
    return payload.lstrip(b'"').startswith(text)


def play(chosen, plan, folder, report):
    os.environ["WALPOST_KAFKA_JAVA"] = quick_java()  # brokers are killed often, and processors are few
    with servers.Workspace() as workspace:
        report.say(f"{command_of(chosen)}: starting PostgreSQL, three Kafka nodes, walpost ({servers.walpost_binary()})")
        world = World(workspace, plan)
        history = History(folder)
        try:
            injector, watch, enemy, drain_s, elapsed = under_fire(world, plan, chosen, history, report)
            report.say("reading everything back")
            judge = judged(world, history, watch)
            undisturbed_s = judge.longest_undisturbed_s(injector.disturbed, enemy.held, UNKNOWN_TOPIC_WAIT_S)
            judge_bounds(watch, judge, undisturbed_s, elapsed, report)
            for record in hostile.believed_too_much(world):
                report.finding(f"walpost reads back what it did not write: {record}")
            if not watch.halted.is_set():
                setback.play(world, plan, workspace.path / "copies", report)
            version = world.postgres.execute("SHOW server_version")[0][0].split()[0]
        finally:
            history.close()
            keep_logs(world, folder)
    median, longest_delay = judge.delays_s()
    return judge, {
        "seed": plan.seed, "minutes": elapsed / 60, "command": command_of(chosen), "machine": machine.describe(), "postgres": version,
        "faults": dict(injector.done), "counts": dict(judge.counts), "findings": report.findings, "looks": len(watch.looks),
        "history": {name: getattr(history, name) for name in ("committed", "commits", "rolled_back", "resolved", "largest",
                                                              "longest_idle_s")},
        "longest_gap_s": judge.longest_gap_s(), "delay_median_s": median, "delay_longest_s": longest_delay,
        "recovery_median_s": statistics.median(watch.recoveries_s or [0.0]), "recovery_longest_s": longest(watch.recoveries_s),
        "drain_s": drain_s, "sigterm_s": injector.longest_sigterm_s, "fast_stop_s": injector.longest_fast_stop_s,
        "peak_rss_bytes": watch.peak_rss_bytes, "cpu_s": watch.cpu.total_s, "cpu_worst": watch.cpu.worst, "undisturbed_s": undisturbed_s,
        "hostile": dict(enemy.tried), "hostile_rejected": enemy.rejected, "errors": sum(answers.spoilt for answers in world.answers),
        "scene": plan.scene,
    }


def keep_logs(world, folder):
    named = {"walpost.log": world.walpost.log, "postgres.log": world.postgres.log, "walpost.yaml": world.walpost.file}
    named.update({f"broker{n}.log": node.path / "log" for n, node in enumerate(world.kafka.nodes, 1)})
    for name, path in named.items():
        if path.exists():
            (folder / name).write_bytes(path.read_bytes())


def main():
    chosen = arguments()
    plan = make_plan(chosen.seed, chosen.minutes, chosen.faults)
    if chosen.plan:
        print(plan)
        return 0
    folder = servers.ROOT / "build" / "chaos" / f"{time.strftime('%Y%m%d-%H%M%S')}-seed-{plan.seed}"
    folder.mkdir(parents=True)
    (folder / "plan").write_text(f"{plan}\n", encoding="utf-8")
    report = reports.Report(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    judge, run = play(chosen, plan, folder, report)
    (folder / "account.json").write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
    report.say("the account\n" + reports.as_text(run))
    missing = set(KINDS) - set(run["faults"])
    if missing:
        report.say(f"not among the faults of this run: {', '.join(sorted(missing))}")
    failed = reports.failures(report.findings, judge.counts)
    for name, examples in judge.examples.items():
        for example in examples:
            report.event(name, example)
            if name in reports.FATAL:
                print(f"!! {name}: {example}")
    if failed:
        for finding in report.findings:
            report.say(f"!! {finding}")
        report.say(f"FAILED: history, logs and account are in {folder}; again: {command_of(chosen)}")
    else:
        report.say(f"balanced: nothing lost, nothing invented, order kept ({folder})")
        if chosen.report or run["minutes"] > reports.longest_minutes() + 0.1:
            reports.write_document(run)
            report.say("docs/reliability.md: written")
    report.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
