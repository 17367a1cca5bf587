#!/usr/bin/python3
"""What the messages of proto/ are to consumers: one line for each thing that their generated code or their bytes rest on.

    tests/compatibility/schema.py             prints the lines
    tests/compatibility/schema.py --record    adds new lines to published.txt; rejects when one of before is gone

published.txt is the promise: a line there never changes and never vanishes.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = Path(__file__).resolve().parent / "published.txt"
RECORD = "tests/compatibility/schema.py --record"


def file_descriptors(proto):
    """A FileDescriptorProto for each .proto file below the folder."""
    files = sorted(path.relative_to(proto).as_posix() for path in proto.rglob("*.proto"))
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"-I{proto}", f"--descriptor_set_out={out.name}", *files], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes()).file


def options_of(owner, options):
    for field, value in options.ListFields():
        yield f"{owner} option {field.name} = {value!r}"


def field_line(message, field):
    kind = descriptor_pb2.FieldDescriptorProto
    label = "optional " if field.proto3_optional else "repeated " if field.label == kind.LABEL_REPEATED else ""
    type_name = field.type_name.lstrip(".") or kind.Type.Name(field.type).split("_", 1)[1].lower()
    oneof = ""
    if field.HasField("oneof_index") and not field.proto3_optional:
        oneof = f" in oneof {message.oneof_decl[field.oneof_index].name}"
    return f"field {field.number} = {label}{type_name} {field.name} json {field.json_name}{oneof}"


def message_lines(scope, message):
    name = f"{scope}.{message.name}"
    yield f"{name} message"
    yield from options_of(name, message.options)
    for field in message.field:
        yield f"{name} {field_line(message, field)}"
        yield from options_of(f"{name} field {field.number}", field.options)
    for reserved in message.reserved_range:
        for number in range(reserved.start, min(reserved.end, reserved.start + 1000)):  # the end is not in it
            yield f"{name} reserved {number}"
    for reserved_name in message.reserved_name:
        yield f"{name} reserved {reserved_name}"
    for enum in message.enum_type:
        yield from enum_lines(name, enum)
    for nested in message.nested_type:
        yield from message_lines(name, nested)


def enum_lines(scope, enum):
    name = f"{scope}.{enum.name}"
    yield f"{name} enum"
    for value in enum.value:
        yield f"{name} value {value.number} = {value.name}"


def describe(proto=ROOT / "proto"):
    """The lines, in the order of the files."""
    lines = []
    for file in file_descriptors(proto):
        lines.append(f"{file.name} {file.syntax} package {file.package}")
        lines += options_of(file.name, file.options)
        for message in file.message_type:
            lines.append(f"{file.name} defines {file.package}.{message.name}")
            lines += message_lines(file.package, message)
        for enum in file.enum_type:
            lines.append(f"{file.name} defines {file.package}.{enum.name}")
            lines += enum_lines(file.package, enum)
    return lines


def published():
    return PUBLISHED.read_text(encoding="utf-8").splitlines() if PUBLISHED.exists() else []


def broken(before, now):
    """Lines of before that are no more."""
    return [line for line in before if line not in set(now)]


def new(before, now):
    return [line for line in now if line not in set(before)]


def main():
    now = describe()
    if sys.argv[1:] == []:
        print("\n".join(now))
        return 0
    if sys.argv[1:] != ["--record"]:
        print(__doc__, file=sys.stderr)
        return 64
    gone = broken(published(), now)
    if gone:
        print("published, and no longer so; nothing recorded:", *gone, sep="\n  ", file=sys.stderr)
        return 1
    added = new(published(), now)
    PUBLISHED.write_text("\n".join(now) + "\n", encoding="utf-8")
    print(f"{len(added)} added", *added, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
