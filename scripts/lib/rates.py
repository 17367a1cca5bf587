"""What a rate of events needs, by the formulas of docs/capacity.md, with the constants that scripts/bench measured."""

RATES = (10_000, 100_000)
OUTAGES_H = (1, 8, 24, 72)
DAY = 86_400
KEEP_DAYS = 7
REPLICAS = 3
MARGIN = 1.5


def human(amount):
    for unit, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= scale:
            return f"{amount / scale:,.3g} {unit}" if amount < 1000 * scale else f"{amount / scale:,.0f} {unit}"
    return f"{amount:,.0f} B"


def duration(seconds):
    for unit, scale in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= scale:
            return f"{seconds / scale:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def catch_up(rate, drain, seconds):
    return duration(seconds * rate / (drain - rate)) if drain > rate else "never"


def table(result, writers):
    """What follows for each of RATES, as a table; the letters are those of the document."""
    size = result["drain_size"]
    of = {way: result["bytes"][way]["json"][str(size)] for way in ("emit", "emit_message")}
    plain, packed = result["topics"]["none"], result["topics"]["zstd"]
    drain, cpu = plain["events_per_s"]["median"], plain["cpu_us_per_event"]["median"] / 1e6
    wal, stored, other = of["emit"]["wal"], of["emit"]["stored"], writers["loads"]["1"]["none"]["wal_bytes"]["median"]
    rows = [
        ("payload", "R x P", lambda r: f"{human(r * size)}/s, {human(r * size * DAY)} a day"),
        ("WAL of the events, `emit`", "R x W", lambda r: f"{human(r * wal)}/s, {human(r * wal * DAY)} a day"),
        ("WAL of the events, `emit_message`", "R x W", lambda r: f"{human(r * of['emit_message']['wal'])}/s,"
                                                                 f" {human(r * of['emit_message']['wal'] * DAY)} a day"),
        ("WAL of everything else", "R x B", lambda r: f"{human(r * other)}/s, {human(r * other * DAY)} a day"),
        ("a partition of an hour", "R x S x 3,600 s", lambda r: human(r * stored * 3600)),
        ("a partition of a day", "R x S x 86,400 s", lambda r: human(r * stored * DAY)),
        (f"rows kept for {KEEP_DAYS} days", "R x S x keep", lambda r: human(r * stored * DAY * KEEP_DAYS)),
        (f"partitions of {KEEP_DAYS} days", "keep / size", lambda _: f"{KEEP_DAYS * 24:,} of hours, {KEEP_DAYS} of days"),
        *((f"WAL that the slot keeps, walpost away for {hours} h", "R x (W + B) x T", lambda r, t=hours * 3600: human(r * (wal + other) * t))
          for hours in OUTAGES_H),
        ("`max_slot_wal_keep_size` for an outage of 24 h", f"{MARGIN} x R x (W + B) x T", lambda r: human(MARGIN * r * (wal + other) * DAY)),
        ("into Kafka, uncompressed", "R x K", lambda r: f"{human(r * plain['topic_bytes']['median'])}/s"),
        ("into Kafka, zstd", "R x K", lambda r: f"{human(r * packed['topic_bytes']['median'])}/s"),
        (f"Kafka's disks, {KEEP_DAYS} days, {REPLICAS} replicas, uncompressed", "R x K x retention x replicas",
         lambda r: human(r * plain["topic_bytes"]["median"] * DAY * KEEP_DAYS * REPLICAS)),
        (f"Kafka's disks, {KEEP_DAYS} days, {REPLICAS} replicas, zstd", "R x K x retention x replicas",
         lambda r: human(r * packed["topic_bytes"]["median"] * DAY * KEEP_DAYS * REPLICAS)),
        ("cores that walpost uses", "R x C", lambda r: f"{r * cpu:.2f}"),
        ("share of what one walpost drains here", "R / D", lambda r: f"{100 * r / drain:,.0f} %"),
        *((f"caught up after an outage of {hours} h in", "T x R / (D - R)", lambda r, t=hours * 3600: catch_up(r, drain, t))
          for hours in OUTAGES_H),
        ("D that catches up with an outage in its own length", "2 x R", lambda r: f"{2 * r:,}/s"),
    ]
    lines = [f"P = {size:,} B of JSON, W = {wal:,.0f} B (`emit_message`: {of['emit_message']['wal']:,.0f} B), S = {stored:,.0f} B,"
             f" B = {other:,.0f} B (the five statements of `scripts/bench writers`, one event each), K = {plain['topic_bytes']['median']:,.0f} B"
             f" (zstd: {packed['topic_bytes']['median']:,.0f} B), D = {drain:,.0f}/s, C = {cpu * 1e6:.1f} us.", "",
             "| | formula |" + "".join(f" R = {rate:,}/s |" for rate in RATES), "|---|---|" + "---|" * len(RATES)]
    lines += [f"| {what} | {formula} |" + "".join(f" {value(rate)} |" for rate in RATES) for what, formula, value in rows]
    return "\n".join(lines)
