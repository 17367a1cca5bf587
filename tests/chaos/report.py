"""What a run says: lines while it goes, the account at its end, and docs/reliability.md."""

import re
import subprocess
import threading
import time

import servers
from judge import FATAL, LATE_MS
from plan import KINDS

DOCUMENT = servers.ROOT / "docs" / "reliability.md"
BAR = 20


class Report:
    def __init__(self, folder):
        self.folder = folder
        self.findings = []
        self._log = open(folder / "events.log", "w", encoding="utf-8")
        self._lock = threading.Lock()
        self._begin = time.monotonic()

    def say(self, text):
        with self._lock:
            print(text, flush=True)
            self._log.write(f"{time.monotonic() - self._begin:8.2f} {text}\n")
            self._log.flush()

    def event(self, what, text):
        with self._lock:
            self._log.write(f"{time.monotonic() - self._begin:8.2f} {time.strftime('%H:%M:%S', time.gmtime())} {what}: {text}\n")
            self._log.flush()

    def finding(self, text):
        self.findings.append(text)
        self.say(f"!! {text}")

    def progress(self, elapsed, plan, injector, history, watch):
        filled = min(BAR, int(BAR * elapsed / plan.seconds))
        happened = sum(injector.done.values())
        now = ", ".join(f"{fault.kind} of {fault.target}" for fault in list(injector.active.values())) or "none"
        self.say(f"[{'#' * filled}{'.' * (BAR - filled)}] {elapsed:4.0f} of {plan.seconds:.0f} s, faults {happened} of {len(plan.faults)}, committed"
                 f" {history.committed:,}, in Kafka {watch.in_kafka:,}, walpost {watch.state or 'away'}; now: {now}")

    def close(self):
        self._log.close()


def failures(findings, counts):
    return len(findings) + sum(counts[name] for name in FATAL)


def account(run):
    """The figures of a run as rows of a table."""
    counts, history = run["counts"], run["history"]
    rows = [
        ("seed", str(run["seed"])),
        ("minutes", f"{run['minutes']:.1f}"),
        ("faults", f"{sum(run['faults'].values())}"),
        ("events committed", f"{history['committed']:,} in {history['commits']:,} transactions, the largest of {history['largest']:,}"),
        ("events rolled back", f"{history['rolled_back']:,}"),
        ("transactions in doubt, resolved", f"{history['resolved']:,}"),
        ("longest time without a commit", f"{history['longest_idle_s']:.1f} s"),
        ("records in Kafka", f"{counts['records']:,}"),
        ("**lost**", f"**{counts['lost']}**"),
        ("**phantoms**", f"**{counts['phantoms']}**"),
        ("**order violations**", f"**{counts['order violations']}**"),
        ("**confirmed too early**", f"**{counts['confirmed too early']}** ({run['looks']:,} looks)"),
        ("**repeats that are not byte-identical**", f"**{counts['changed repeats']}**"),
        ("**halts, ends, other findings**", f"**{len(run['findings'])}**"),
        ("repeats", f"{counts['repeats']:,} in {counts['replays']:,} replays; {counts['stale repeats']} stale"),
        ("longest time without a record", f"{run['longest_gap_s']:.1f} s"),
        ("commit to Kafka", f"median {run['delay_median_s']:.2f} s, longest {run['delay_longest_s']:.1f} s"),
        ("nothing broken to the next event delivered", f"median {run['recovery_median_s']:.1f} s, longest {run['recovery_longest_s']:.1f} s"),
        ("everything healed to everything confirmed", f"{run['drain_s']:.1f} s"),
        ("longest SIGTERM of walpost, fast stop of PostgreSQL", f"{run['sigterm_s']:.1f} s, {run['fast_stop_s']:.1f} s"),
        ("the longest that an event took while nothing was broken", shorter_or(run["undisturbed_s"])),
        ("peak memory of walpost", f"{run['peak_rss_bytes'] / (1 << 20):.0f} MiB"),
        ("processor time of walpost", f"{run['cpu_s']:.0f} s, {run['cpu_s'] * 1e6 / max(1, counts['records']):.0f} µs a record; at most"
                                      f" {run['cpu_worst']:.0%} of a core over ten seconds"),
        ("hostile transactions", f"{sum(run['hostile'].values()):,}, and {run['hostile_rejected']:,} that the database rejected"),
        ("Produce requests answered with errors", f"{run['errors']:,}"),
        ("server set back at the end", run["scene"]),
    ]
    kinds = [(kind, str(run["faults"].get(kind, 0))) for kind in KINDS]
    return rows, kinds


def shorter_or(seconds):
    return f"{seconds:.0f} s" if seconds * 1000 > LATE_MS else f"less than {LATE_MS // 1000} s"


def as_text(run):
    rows, kinds = account(run)
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name.replace('**', ''):{width - 4}} {value.replace('**', '')}" for name, value in rows]
    pairs = [f"{kind} {count}" for kind, count in kinds]
    return "\n".join([*lines, *(f"    {', '.join(pairs[n:n + 4])}" for n in range(0, len(pairs), 4))])


def as_markdown(run):
    rows, kinds = account(run)
    commit = subprocess.run(["git", "-C", servers.ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    lines = [f"The longest run so far: `{run['command']}` on {time.strftime('%Y-%m-%d')}, commit {commit.stdout.strip()},"
             f" {run['machine']}, PostgreSQL {run['postgres']}, Kafka {servers.KAFKA_VERSION}.", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    lines += ["", "| fault | times |", "|---|---|", *(f"| {kind} | {count} |" for kind, count in kinds)]
    return "\n".join(lines)


def longest_minutes():
    """Of the run in the document; 0 when there is none."""
    found = re.search(r"^\| minutes \| ([0-9.]+) \|$", DOCUMENT.read_text(encoding="utf-8"), re.M)
    return float(found[1]) if found else 0.0


def write_document(run):
    servers.replace_block(DOCUMENT, "chaos", as_markdown(run))
