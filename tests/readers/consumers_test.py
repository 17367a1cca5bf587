"""What consumers in Python and Java read from what walpost wrote, field by field against the tables it came from.

Generated classes of walpost.v1.Envelope and io.cloudevents.v1.CloudEvent, and the CloudEvents SDKs of both languages.
"""

import base64
import datetime
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
import pipeline  # noqa: E402 - the path above makes it importable
import rows  # noqa: E402
import servers  # noqa: E402
import tools  # noqa: E402

FORMATS = {
    "envelope": {"format": "envelope"},
    "binary": {"format": "cloudevents", "cloudevents": {"mode": "binary"}},
    "structured": {"format": "cloudevents", "cloudevents": {"mode": "structured_json", "source": "https://shop.example/orders"}},
    "protobuf": {"format": "cloudevents", "cloudevents": {"mode": "structured_protobuf"}},
}
NAME = "readers"


KEYLESS = {"preset": "debezium", "columns": {
    "id": "id", "key": "aggregate_id", "aggregate_type": "aggregate_type", "type": "event_type", "payload": "payload",
    "content_type": "content_type", "schema_name": "schema_name", "headers": "headers", "occurred_at": "occurred_at",
    "traceparent": "traceparent", "tracestate": "tracestate"}}


def outbox(form, kind):
    return {"table": f"public.{rows.table_of(form, kind)}", "topic": form, "value": FORMATS[form], **(KEYLESS if kind == "keyless" else {})}


class World:
    """A pipeline that has written all rows in all formats, and what the tables and the readers say."""

    def __init__(self, workspace):
        self.workspace = workspace
        postgres = workspace.postgres(settings={"track_commit_timestamp": "on"})
        self.kafka = workspace.kafka()
        tables = [(form, kind) for form in FORMATS for kind in rows.KINDS]
        config = {"outboxes": [outbox(*one) for one in tables]}
        self.pipeline = pipeline.Pipeline(NAME, postgres, self.kafka, workspace, {"config": config})
        for one in tables:
            self.pipeline.execute(rows.TABLE.format(rows.table_of(*one), rows.KINDS[one[1]]))
        for form in FORMATS:
            self.kafka.create_topic(form, 3)
        self.pipeline.start()
        self.lsn_before = self.pipeline.wal_position()
        for one in tables:
            rows.insert(self.pipeline.execute, *one)
        self.lsn_after = self.pipeline.wal_position()
        self.pipeline.wait_confirmed()
        self.system = self.pipeline.execute("SELECT system_identifier FROM pg_control_system()")[0][0]

    def truth(self, form):
        """{id: row} of the tables of a format; a row knows its table and the kind of it."""
        found = {}
        for kind in rows.KINDS:
            for row in rows.truth(self.pipeline.execute, form, kind):
                payload = row["payload"]
                found[row["id"]] = {**row, "table": rows.table_of(form, kind), "kind": kind,
                                    "payload": None if payload is None else base64.b64decode(payload)}
        return found

    def python(self):
        generated = tools.generate("python", self.workspace.path / "python")
        return [tools.python(), HERE / "read.py", generated, self.kafka.bootstrap, *(f"{form}={form}" for form in FORMATS)]

    def java(self):
        classes = tools.compile_java(self.workspace.path / "java")
        kinds = {form: "envelope" if form == "envelope" else "cloudevents" for form in FORMATS}
        return ["java", "-cp", classes, "Read", self.kafka.bootstrap, *(f"{kind}={form}" for form, kind in kinds.items())]


@pytest.fixture(scope="module")
def world():
    with servers.Workspace() as workspace:
        yield World(workspace)


@pytest.fixture(scope="module", params=["python", "java"])
def read(request, world):
    """{format: {id: line}} as one reader saw it."""
    done = subprocess.run(list(map(str, getattr(world, request.param)())), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {form: {} for form in FORMATS}
    for line in done.stdout.splitlines():
        record = json.loads(line)
        record["record_headers"] = dict(record["record_headers"])
        event = record["record_headers"]["id"]
        assert event not in found[record["topic"]], "each once"
        found[record["topic"]][event] = record
    print(request.param, {form: len(records) for form, records in found.items()}, "records")
    return found


def decoded(text):
    return None if text is None else base64.b64decode(text)


def judge_record(row, record):
    """What is the same in every format."""
    headers = record["record_headers"]
    assert record["key"] == row["aggregate_id"]
    few = row["kind"] == "keyless"
    assert (headers["id"], headers.get("type")) == (row["id"], None if few else row["event_type"])
    assert ("walpost-position" in headers) == (not few)
    assert headers.get("traceparent") == row["traceparent"] and headers.get("tracestate") == row["tracestate"]
    assert record["timestamp_ms"] == row["committed_at"] // 1000


def judge_all(world, records, form, judge):
    """Every row is judged, and there is nothing else; all failures are reported."""
    truth, wrong = world.truth(form), []
    assert set(records) == set(truth)
    for event, row in truth.items():
        try:
            judge_record(row, records[event])
            judge(row, records[event])
        except (AssertionError, KeyError) as error:
            wrong.append(f"{row['table']} {row['seq']}: {error!r:.600}")
    assert not wrong, f"{len(wrong)} of {len(truth)}:\n" + "\n".join(wrong)


def test_envelopes_are_the_rows(world, read):
    def judge(row, record):
        expected = {"id": row["id"], "type": row["event_type"], "database": NAME, "schema": "public", "timeline": 1,
                    "system_identifier": str(world.system), "xid": int(row["xid"]), "unknown_fields": 0}
        expected.update({name: row[name] for name in ("aggregate_type", "aggregate_id", "occurred_at", "committed_at", "ordinal", "table")})
        expected.update({name: row[name] or "" for name in ("content_type", "schema_name", "traceparent", "tracestate")})
        assert {name: record[name] for name in expected} == expected
        assert decoded(record["payload"]) == row["payload"]
        assert record["headers"] == (row["headers"] or {})
        lsn = int(record["commit_lsn"])
        assert world.lsn_before <= lsn < world.lsn_after
        if row["kind"] != "keyless":
            assert record["record_headers"]["walpost-position"] == f"{world.system:016x}-00000001-{lsn:016x}-{row['ordinal']:08x}"

    judge_all(world, read["envelope"], "envelope", judge)


def test_positions_of_envelopes_are_in_the_order_of_commits(world, read):
    for kind in rows.KINDS:
        events = rows.truth(world.pipeline.execute, "envelope", kind)
        positions = [(int(record["commit_lsn"]), record["ordinal"]) for record in (read["envelope"][event["id"]] for event in events)]
        assert positions == sorted(set(positions)) and len(positions) == len(events)


def media_type(row):
    """The content type that an event has, given or, of a payload, not."""
    if row["payload"] is None:
        return row["content_type"]
    return row["content_type"] or {"jsonb": "application/json", "text": "text/plain; charset=UTF-8"}.get(row["kind"])


def is_json(row):
    name = (media_type(row) or "").split(";")[0].strip()
    return name in ("application/json", "text/json") or name.endswith("+json")


def micros(text):
    """Of a time as a reader shows it: a text, or a number where its type is a time."""
    if text.startswith("micros "):
        return int(text.split()[1])
    time = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (time - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(microseconds=1)


def judge_attributes(row, record, source):
    assert (record["id"], record["type"], record["specversion"]) == (row["id"], row["event_type"], "1.0")
    assert record["source"] == (source or f"/{NAME}/public/{row['table']}")
    if row["occurred_at"] is not None or "fills_in_time" not in record:
        assert record["time"] == row["occurred_at"]
    assert record.get("subject") == (row["aggregate_id"] or None)
    assert record.get("datacontenttype") == media_type(row)
    schema = row["schema_name"] or ""
    assert record.get("dataschema") == (schema if ":" in schema else None)
    extensions = dict(record["extensions"])
    assert micros(extensions.pop("recordedtime")) == row["committed_at"]
    # The SDKs take an empty key for an attribute of its own.
    assert (extensions.pop("partitionkey", None) or None) == (row["aggregate_id"] or None)
    sequence = extensions.pop("sequence")
    assert len(sequence) == 51 and record["record_headers"].get("walpost-position") in (sequence, None)
    expected = {"traceparent": row["traceparent"], "tracestate": row["tracestate"]}
    assert extensions == {name: value for name, value in expected.items() if value is not None}


def judge_data(row, record):
    """JSON is compared by what it says: an SDK parses it, and may write it anew."""
    if "json" in record:
        assert record["json"] == json.loads(row["payload"])
    elif is_json(row) and row["payload"] is not None:
        assert json.loads(decoded(record["data"])) == json.loads(row["payload"])
    else:
        assert decoded(record["data"]) == row["payload"]


def test_cloudevents_in_binary_mode_are_the_rows(world, read):
    def judge(row, record):
        assert record.get("tombstone", False) == (row["payload"] is None)
        if row["payload"] is not None:
            judge_attributes(row, record, None)
            # To Java's SDK an empty value is no data; and a value that is not null is no tombstone.
            judge_data(row, {**record, "data": record.get("data") or ""})

    judge_all(world, read["binary"], "binary", judge)


def test_cloudevents_in_json_are_the_rows(world, read):
    def judge(row, record):
        judge_attributes(row, record, "https://shop.example/orders")
        judge_data(row, record)

    judge_all(world, read["structured"], "structured", judge)


def test_cloudevents_in_protobuf_are_the_rows(world, read):
    def judge(row, record):
        judge_attributes(row, record, None)
        assert decoded(record["data"]) == row["payload"]
        is_message = "protobuf" in (row["content_type"] or "") and row["schema_name"]
        assert record.get("type_url") == (f"type.googleapis.com/{row['schema_name']}" if is_message else None)

    judge_all(world, read["protobuf"], "protobuf", judge)
