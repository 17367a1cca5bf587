"""What each format of the value costs: the same backlog drained in every format, interleaved."""

import servers
from backlog import PAYLOAD_BYTES, Backlog, say, show_run, summary

ROWS = 20  # in a transaction: with one the server is the limit, and formats differ less


def cloudevents(mode):
    return {"value": {"format": "cloudevents", "cloudevents": {"mode": mode}}}


FORMATS = {
    "raw": {"value": {"format": "raw"}},
    "envelope": {"value": {"format": "envelope"}},
    "cloudevents-binary": cloudevents("binary"),
    "cloudevents-protobuf": cloudevents("structured_protobuf"),
    "cloudevents-json": cloudevents("structured_json"),
    "debezium": {"table": "outbox.events", "debezium": {
        "table.field.event.key": "aggregate_id", "table.field.event.type": "event_type", "route.by.field": "aggregate_type",
        "table.fields.additional.placement": "event_type:header:eventType"}},
}


def measure(arguments):
    """One format is measured beside `raw`."""
    names = list(FORMATS) if arguments.format == "all" else list(dict.fromkeys(("raw", arguments.format)))
    rows = arguments.rows or ROWS
    result = {"events": arguments.events, "pairs": arguments.pairs, "payload_bytes": PAYLOAD_BYTES, "rows": rows, "formats": {}}
    with servers.Workspace("walpost-bench-") as workspace:
        say(f"{arguments.events:,} events, {rows} a transaction: filling")
        backlog = Backlog(workspace, workspace.kafka(), arguments.events, rows)
        runs = {name: [] for name in names}
        for number in range(arguments.pairs + 1):
            for name in (names if number % 2 else names[::-1]):
                run = backlog.walpost(FORMATS[name])
                if number > 0:
                    runs[name].append(run)
                show_run(number, name, run)
        for name in names:
            result["formats"][name] = {key: summary([run[key] for run in runs[name]]) for key in runs[name][0]}
            result["formats"][name]["ratios_to_raw"] = summary(
                [run["events_per_s"] / raw["events_per_s"] for run, raw in zip(runs[name], runs["raw"])])
        result["postgres"] = backlog.postgres.execute("SHOW server_version")[0][0].split()[0]
    return result


def text(result):
    lines = [f"the same {result['events']:,} events, {result['rows']} a transaction, {result['payload_bytes']} bytes of payload (bytea), in each"
             f" format; {result['pairs']} interleaved rounds, median (lowest - highest)", "",
             "| format | events/s | CPU per event | peak memory | rate / `raw` of the same round |", "|---|---|---|---|---|"]
    for name, figures in result["formats"].items():
        rate, ratio = figures["events_per_s"], figures["ratios_to_raw"]
        lines.append(f"| {name} | {rate['median'] / 1000:.1f} k ({rate['min'] / 1000:.1f} - {rate['max'] / 1000:.1f})"
                     f" | {figures['cpu_us_per_event']['median']:.1f} us | {figures['peak_rss_bytes']['max'] / 2**20:.0f} MB"
                     f" | {ratio['median']:.2f} ({ratio['min']:.2f} - {ratio['max']:.2f}) |")
    return "\n".join(lines)
