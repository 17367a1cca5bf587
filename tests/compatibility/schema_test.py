"""Nothing of a published message changes or vanishes; what is added is recorded, so that it stays from then on."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import schema  # noqa: E402 - the path above makes it importable


def test_everything_published_is_still_so():
    gone = schema.broken(schema.published(), schema.describe())
    assert gone == [], "consumers rely on these; give a new field a new number and name instead"


def test_everything_new_is_recorded():
    assert schema.new(schema.published(), schema.describe()) == [], f"run {schema.RECORD}, and say it in CHANGELOG.md"


CHANGES = {
    "number": ("string id = 1;", "string id = 15;"),
    "name": ("string id = 1;", "string event_id = 1;"),
    "type": ("string id = 1;", "bytes id = 1;"),
    "type of the same wire format": ("uint32 ordinal = 2;", "uint64 ordinal = 2;"),
    "label": ("string id = 1;", "repeated string id = 1;"),
    "presence": ("optional bytes payload = 5;", "bytes payload = 5;"),
    "removed": ("string tracestate = 12;", ""),
    "two swapped": ("string traceparent = 11;\n  string tracestate = 12;", "string traceparent = 12;\n  string tracestate = 11;"),
    "moved into a oneof": ("string id = 1;", "oneof one { string id = 1; }"),
    "another map": ("map<string, string> headers", "map<string, bytes> headers"),
    "message renamed": ("Position", "Place"),
    "package": ("package walpost.v1", "package walpost.v2"),
    "name in JSON": ("string id = 1;", 'string id = 1 [json_name = "ID"];'),
    "package of generated code": ("io.walpost.v1", "com.walpost.v1"),
}


def changed(folder, old, text, file="envelope.proto"):
    """proto/ with the change, as lines."""
    proto = folder / "proto"
    shutil.copytree(schema.ROOT / "proto", proto)
    path = proto / "walpost" / "v1" / file
    content = path.read_text(encoding="utf-8")
    assert old in content
    path.write_text(content.replace(old, text), encoding="utf-8")
    return schema.describe(proto)


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_noticed(change, tmp_path):
    assert schema.broken(schema.published(), changed(tmp_path, *CHANGES[change]))


def test_reserved_number_that_is_used_again_is_noticed(tmp_path):
    lines = changed(tmp_path, "reserved 10, 13, 14;", "reserved 10, 14;", "outbox_message.proto")
    assert schema.broken(schema.published(), lines) == ["walpost.v1.OutboxMessage reserved 13"]


def test_member_that_leaves_its_oneof_is_noticed(tmp_path):
    (tmp_path / "proto").mkdir()
    text = 'syntax = "proto3"; package p; message M {{ {} }} enum E {{ A = 0; {} }}'
    described = []
    for members, value in (("oneof o { int32 a = 1; int32 b = 2; }", "B = 1;"), ("oneof o { int32 a = 1; } int32 b = 2;", "C = 1;")):
        (tmp_path / "proto" / "m.proto").write_text(text.format(members, value), encoding="utf-8")
        described.append(schema.describe(tmp_path / "proto"))
    assert schema.broken(*described) == ["p.M field 2 = int32 b json b in oneof o", "p.E value 1 = B"]


def test_addition_breaks_nothing_and_is_reported(tmp_path):
    lines = changed(tmp_path, "string id = 1;", "string id = 1;\n  string tenant = 15;")
    assert schema.broken(schema.published(), lines) == []
    assert schema.new(schema.published(), lines) == ["walpost.v1.Envelope field 15 = string tenant json tenant"]
