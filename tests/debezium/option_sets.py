"""What the comparison with Debezium covers: tables, options of the Event Router, and rows.

A row is a shape: its name, and SQL expressions for the columns that differ from the set's defaults. `differs` names a row of
the table of differences in docs/migrate-from-debezium.md: then the two records must not be the same. `stops` is the same for a
set whose row ends Debezium's task.
"""

import dataclasses

JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}
BYTES = {"value.converter": "io.debezium.converters.BinaryDataConverter",
         "value.converter.delegate.converter.type": "org.apache.kafka.connect.json.JsonConverter",
         "value.converter.delegate.converter.type.schemas.enable": "false"}
BYTES_KEY = {"key.converter": "io.debezium.converters.BinaryDataConverter"}
PLAIN = {"id": "uuid NOT NULL", "aggregatetype": "varchar(255)", "aggregateid": "varchar(255)", "type": "varchar(255)",
         "payload": "jsonb"}


@dataclasses.dataclass
class Row:
    name: str
    values: dict
    differs: str = ""
    rejected: bool = False  # walpost makes a dead letter of it
    sql: str = ""  # instead of an INSERT; {insert} stands for it


@dataclasses.dataclass
class OptionSet:
    name: str
    options: dict
    rows: list
    columns: dict = dataclasses.field(default_factory=dict)  # more than PLAIN, or instead of
    converters: dict = dataclasses.field(default_factory=dict)
    table: str = ""  # in the schema `public`, by default called like the set
    schema: str = "public"
    id_column: str = "id"
    defaults: dict = dataclasses.field(default_factory=dict)
    stops: str = ""  # the difference by which Debezium's task ends at the set's only row
    plain: bool = True
    timestamp: bool = False  # record timestamps are compared

    def table_name(self):
        return self.table or self.name

    def all_columns(self):
        return {**(PLAIN if self.plain else {}), **self.columns}

    def all_defaults(self):
        plain = {"aggregatetype": f"'{self.name}'", "aggregateid": "'key-1'", "type": "'Created'", "payload": "'{\"n\": 1}'"}
        return {**(plain if self.plain else {}), **self.defaults}


def payloads(*texts):
    return [Row(f"payload {(text or 'NULL')[:40]!r}", {"payload": "NULL" if text is None else "$q$" + text + "$q$"}) for text in texts]


def everywhere(placement, columns):
    return ",".join(f"{column}:{placement}" for column in columns)


TYPED = {
    "a_bool": "boolean", "a_small": "smallint", "an_int": "integer", "a_big": "bigint", "an_oid": "oid", "a_real": "real",
    "a_double": "double precision", "a_char": "char(5)", "a_varchar": "varchar(20)", "a_text": "text", "a_uuid": "uuid",
    "a_json": "json", "a_jsonb": "jsonb", "a_bytea": "bytea", "a_date": "date", "a_time": "time", "a_time3": "time(3)",
    "a_stamp": "timestamp", "a_stamp3": "timestamp(3)", "a_stamp0": "timestamp(0)", "a_stamptz": "timestamptz",
    "an_enum": "mood", "a_domain": "short_text",
}
DECIMALS = {"a_numeric": "numeric(12,3)", "a_tiny": "numeric(12,10)", "a_whole": "numeric(6)"}
FULL = {
    "a_bool": "true", "a_small": "-32768", "an_int": "2147483647", "a_big": "-9223372036854775808", "an_oid": "4294967295",
    "a_real": "1.5", "a_double": "0.1", "a_char": "'ab'", "a_varchar": "'v'", "a_text": "'täxt \"quoted\" \\ '",
    "a_uuid": "'3f2504e0-4f89-11d3-9a0c-0305e82c3301'", "a_json": "'{\"b\":  1, \"a\": null}'", "a_jsonb": "'{\"b\":  1, \"a\": null}'",
    "a_bytea": "'\\x00ff10'", "a_date": "'2024-02-29'", "a_time": "'23:59:59.123456'", "a_time3": "'01:02:03.004'",
    "a_stamp": "'2024-02-29 12:34:56.789012'", "a_stamp3": "'2024-02-29 12:34:56.789'", "a_stamp0": "'1969-12-31 23:59:59'",
    "a_stamptz": "'2024-02-29 12:34:56.789012+02'", "an_enum": "'happy'", "a_domain": "'dom'",
}
TYPED_ROWS = [
    Row("every type", FULL),
    Row("every type NULL", {}),
    Row("false, zero and empty", {"a_bool": "false", "a_small": "0", "an_int": "0", "a_big": "0", "an_oid": "0", "a_real": "0",
                                  "a_double": "0", "a_char": "''", "a_varchar": "''", "a_text": "''", "a_json": "'[]'",
                                  "a_jsonb": "'\"\"'", "a_bytea": "''", "a_date": "'1970-01-01'", "a_time": "'00:00'",
                                  "a_time3": "'00:00'", "a_stamp": "'1970-01-01'", "a_stamp3": "'1970-01-01'",
                                  "a_stamp0": "'1970-01-01'", "a_stamptz": "'1970-01-01+00'"}),
    Row("large and small floats", {"a_real": "1e10", "a_double": "1e-5"}),
    Row("floats of Java's two notations", {"a_real": "9999999", "a_double": "12345678.25"}),
    Row("negative floats", {"a_real": "-0.001", "a_double": "-1e100"}),
    Row("not a number", {"a_real": "'NaN'", "a_double": "'-Infinity'"}),
    Row("old times", {"a_date": "'0044-03-15'", "a_stamp": "'0044-03-15 01:02:03.000004'", "a_stamp3": "'0044-03-15 01:02:03'",
                      "a_stamptz": "'1900-01-01 00:00:00+00'"}),
    Row("time zone with milliseconds", {"a_stamptz": "'2024-07-01 00:00:00.5+05:30'"}),
    Row("time zone with seconds", {"a_stamptz": "'2024-07-01 00:00:01-07'"}),
    Row("far times", {"a_date": "'9999-12-31'", "a_stamp": "'9999-12-31 23:59:59'", "a_stamptz": "'9999-12-31 23:59:59+00'"}),
    Row("end of the day", {"a_time": "'24:00'", "a_time3": "'23:59:59.999'"}),
    Row("control characters", {"a_text": "E'a\\tb\\nc\\x01\\x1f\\x7f'"}),
]

EXPANDED = [
    '{"a": 1, "b": "text", "c": true, "d": 1.50, "e": {"f": {"g": [1, 2, 3]}}}',
    '{"big": 9007199254740993, "negative": -2147483649, "int": 2147483647, "zero": -0}',
    '{"float": 1e10, "small": 1.5e-7, "whole": 10.0, "long": 123456789012.5, "tenth": 0.1, "milli": 0.001, "ten": 1e7}',
    '{"nothing": null, "kept": 1}',
    '{"empty": [], "kept": 1}',
    '{"list": ["a", null, "b"], "bools": [true, false], "longs": [3000000000, 4000000000]}',
    '{"objects": [{"a": 1}, {"a": 2}, null]}',
    '{"lists": [[1, 2], [3]]}',
    '{"mixed": [1, "a"]}', '{"mixed": [1, 2.5]}', '{"mixed": [1, 3000000000]}',
    '{"nulls": [null, null]}',
    '{"empties": [[], [1]]}',
    '{}', '[]', '"just text"', '42', 'true', 'null',
    '{"ünïcode": "snö ☃ 😀", "quote\\"d": "back\\\\slash / \\u0007 \\n"}',
    '{"": 1, "dots.in.name": {"x": null}}',
    '{"deep": {"only": {"nulls": {"x": null}}}}',
    None,
]


SETS = [
    OptionSet("defaults", {}, [
        *payloads('{"b": 1,   "a": [1, 2]}', '[1, 2, 3]', '"text"', '12.50', 'null', None, '{"ü": "snö ☃ 😀"}',
                  '{"long": "' + "x" * 20000 + '"}'),
        Row("empty key", {"aggregateid": "''"}),
        Row("no key", {"aggregateid": "NULL"}),
        Row("key beyond ASCII", {"aggregateid": "'schlüssel-☃'"}),
        Row("other aggregate type", {"aggregatetype": "'defaults.Other_type-1'"}),
        Row("empty aggregate type", {"aggregatetype": "''"}),
        Row("no type", {"type": "NULL"}),
        Row("inserted and deleted at once", {}, sql="{insert}; DELETE FROM {table} WHERE {id_column} = {id}"),
        Row("updated later", {}, sql="{insert}; UPDATE {table} SET type = 'Changed' WHERE {id_column} = {id}"),
        *[Row(f"key {n}", {"aggregateid": f"'key-{n}'"}) for n in range(8)],
    ]),
    OptionSet("json_column", {}, payloads('{"b":1,  "a":2, "b": 3}', ' [ ] '), columns={"payload": "json"}),
    OptionSet("text_column", {"table.fields.additional.placement": "type:header:eventType, id : HEADER : again ,type:Header"},
              payloads("plain", "", "  ", "{\"a\": 1}"), columns={"payload": "text"}),
    OptionSet("mixed_names", {
        "table.field.event.id": "Event Id", "table.field.event.key": "Aggregate Id", "table.field.event.type": "Kind",
        "table.field.event.payload": "Body", "route.by.field": "Aggregate Kind",
        "table.fields.additional.placement": "Kind:header:Event-Type,Aggregate Id:header"},
        [Row("quoted names", {}), Row("NULL in placed columns", {'"Kind"': "NULL", '"Aggregate Id"': "NULL"}),
         Row("negative key", {'"Aggregate Id"': "-7"})],
        table="OutBox", schema="Mixed Case", id_column='"Event Id"', plain=False,
        columns={'"Event Id"': "varchar(40) NOT NULL", '"Aggregate Id"': "integer", '"Kind"': "text", '"Body"': "text",
                 '"Aggregate Kind"': "text"},
        defaults={'"Aggregate Id"': "42", '"Kind"': "'Made'", '"Body"': "'body'", '"Aggregate Kind"': "'mixed_names'"}),
    OptionSet("headers", {"table.fields.additional.placement": everywhere("header", {**TYPED, **DECIMALS})}, [
        *TYPED_ROWS,
        Row("decimals", {"a_numeric": "123456789.125", "a_tiny": "0.0000000001", "a_whole": "-999999"}),
        Row("decimal zeroes", {"a_numeric": "0", "a_tiny": "0", "a_whole": "0"}),
        Row("decimal ends", {"a_numeric": "-1.5", "a_tiny": "12.3", "a_whole": "1"}),
    ], columns={**TYPED, **DECIMALS}),
    OptionSet("envelope", {"table.fields.additional.placement":
              everywhere("envelope", TYPED) + ",type:envelope:eventType,type:header:eventType,aggregateid:envelope"},
              [*TYPED_ROWS, *payloads('{"b": 1,   "a": [1, 2]}', '"t"', None)], columns=TYPED, converters=JSON),
    OptionSet("envelope_bytes", {"table.fields.additional.placement": "type:envelope"},
              [Row("bytes", {}), Row("empty bytes", {"payload": "''"}), Row("no bytes", {"payload": "NULL"})],
              columns={"payload": "bytea"}, defaults={"payload": "'\\x0001feff'"}, converters=JSON),
    OptionSet("envelope_expand", {"table.fields.additional.placement": "type:envelope:eventType",
                                  "table.expand.json.payload": "true"},
              payloads(*(text for text in EXPANDED if text != "[]")), converters=JSON),
    OptionSet("envelope_tombstone", {"table.fields.additional.placement": "type:envelope:eventType",
                                     "route.tombstone.on.empty.payload": "true"},
              payloads("text", "", "   ", None), columns={"payload": "text"}, converters=JSON),
    OptionSet("expand", {"table.expand.json.payload": "true"}, payloads(*EXPANDED), converters=JSON),
    OptionSet("expand_text", {"table.expand.json.payload": "true"},
              payloads('{"a": 1, "a": "twice", "b": 2}', '{"a": 1} trailing', ' {"a": 1}', '{"a": ', "", "plain", "{'a': 1}",
                       '{"a": 01}', '{"a": "\\u00e9\\ud83d\\ude00"}'),
              columns={"payload": "text"}, converters=JSON),
    OptionSet("expand_nulls", {"table.expand.json.payload": "TRUE", "table.json.payload.null.behavior": "optional_bytes",
                               "route.tombstone.on.empty.payload": "true"},
              payloads(*EXPANDED), converters=JSON),
    OptionSet("expand_bytes", {"table.expand.json.payload": "true"}, [Row("bytes", {}), Row("none", {"payload": "NULL"})],
              columns={"payload": "bytea"}, defaults={"payload": "'\\x7b7d'"}, converters=JSON),
    OptionSet("tombstone", {"route.tombstone.on.empty.payload": "true"},
              payloads("text", "", " ", "\t \n", None, "\u00a0"), columns={"payload": "text"}),
    OptionSet("bytes", {"table.field.event.key": "id", "table.fields.additional.placement": "aggregateid:header"},
              [Row("bytes", {}), Row("empty", {"payload": "''"}), Row("none", {"payload": "NULL"}),
               Row("large", {"payload": "decode(repeat('00ff', 50000), 'hex')"})],
              columns={"payload": "bytea"}, defaults={"payload": "'\\x0001feff0a'"}, converters=BYTES),
    OptionSet("bytes_key", {"route.tombstone.on.empty.payload": "true"},
              [Row("bytes", {}), Row("empty key", {"aggregateid": "''"}), Row("empty payload", {"payload": "''"}),
               Row("no payload", {"payload": "NULL"})],
              columns={"payload": "bytea", "aggregateid": "bytea"},
              defaults={"payload": "'\\x0001'", "aggregateid": "'\\xff00'"}, converters={**BYTES, **BYTES_KEY}),
    OptionSet("regex", {"route.by.field": "type", "route.topic.regex": "(?<domain>[a-z]+)\\.(v\\d+)\\.(.*)",
                        "route.topic.replacement": "events-${domain}_$2.\\$3".replace("\\$3", "$3")},
              [Row("matches", {"type": "'orders.v1.Created'"}), Row("matches emptily", {"type": "'orders.v22.'"}),
               Row("does not match", {"type": "'NoMatch.at-all'"}), Row("matches in part only", {"type": "'orders.v1'"})]),
    OptionSet("regex_first", {"route.topic.regex": "regex_(a|ab)(c?)", "route.topic.replacement": "rx.$1.$2.\\x"},
              [Row("first match is shorter", {"aggregatetype": "'regex_ab'"}), Row("whole match", {"aggregatetype": "'regex_ac'"})]),
    OptionSet("regex_flags", {"route.topic.regex": "(?i:REGEX_FLAGS)[-_.]?(\\w{2,4}+)?(?:x|y)*", "route.topic.replacement": "flags.$1"},
              [Row("possessive", {"aggregatetype": "'regex_flags-abcd'"}), Row("group without a part", {"aggregatetype": "'regex_flags'"}),
               Row("no match", {"aggregatetype": "'regex_flags-abcdefg'"})]),
    OptionSet("placed", {"table.fields.additional.placement": "shard:partition,type:header",
                         "table.field.event.timestamp": "happened", "table.field.additional.missing": "ignore"},
              [Row("all", {}), Row("partition 0", {"shard": "0"}), Row("no partition", {"shard": "NULL"}),
               Row("no key but partition", {"aggregateid": "NULL", "shard": "3"}), Row("with microseconds", {"happened": "'2024-01-02 03:04:05.999999'"})],
              columns={"shard": "integer", "happened": "timestamp"},
              defaults={"shard": "2", "happened": "'2024-01-02 03:04:05'"}, timestamp=True),
    OptionSet("placed_millis", {"table.field.event.timestamp": "happened",
                                "table.fields.additional.placement": "absent:header,absent:envelope,type:header,absent:partition",
                                "table.field.additional.missing": "ignore"},
              [Row("missing columns", {})], columns={"happened": "timestamp(3)"},
              defaults={"happened": "'2024-01-02 03:04:05.678'"}, timestamp=True, converters=JSON),
    OptionSet("merged", {"table.expand.json.payload": "true"}, [
        Row("objects of different members", {"payload": "'{\"l\": [{\"a\": 1}, {\"b\": 2}, {\"c\": 3}]}'"}, "merged-member-order"),
        Row("nested objects of different members", {"payload": "'{\"l\": [{\"n\": {\"a\": 1}}, {\"n\": {\"b\": 2}}]}'"},
            "merged-nested-members"),
    ], defaults={"payload": "NULL"}, columns={"payload": "text"}, converters=JSON),
    OptionSet("long_doubles", {"table.expand.json.payload": "true"},
              [Row("2e23", {"payload": "'{\"x\": 2e23}'"}, "shortest-numbers")], columns={"payload": "text"}, converters=JSON),
    OptionSet("java_key", {}, [Row("bytes", {}, "bytes-as-java-object")], columns={"aggregateid": "bytea"},
              defaults={"aggregateid": "'\\x6162'"}),
    OptionSet("java_value", {"table.fields.additional.placement": "type:envelope"}, [Row("envelope", {}, "struct-as-java-object")]),
    OptionSet("json_text", {}, [Row("json", {}, "json-in-json")], converters=JSON),
    OptionSet("infinite", {"table.fields.additional.placement": "at:header"},
              [Row("timestamp", {"at": "'infinity'"}, "infinite-times", rejected=True)], columns={"at": "timestamp"}),
    OptionSet("no_route", {}, [Row("NULL", {"aggregatetype": "NULL"}, rejected=True)], stops="null-routing-value"),
    OptionSet("zoned", {"table.field.event.timestamp": "at"}, [Row("timestamptz", {"at": "'2026-01-01 00:00:00+00'"})],
              columns={"at": "timestamptz"}, stops="timestamptz-as-timestamp"),
    OptionSet("small_partition", {"table.fields.additional.placement": "shard:partition"}, [Row("smallint", {"shard": "1"})],
              columns={"shard": "smallint"}, stops="partition-of-other-integer"),
    OptionSet("array_payload", {"table.expand.json.payload": "true"}, payloads('[{"a": 1}]'), stops="array-not-expanded",
              converters=JSON),
    OptionSet("late_failure", {"table.expand.json.payload": "true"}, payloads('{"l": [{"a": 1}, {"a": "x"}]}'),
              stops="type-conflict-not-expanded", converters=JSON),
    OptionSet("big_number", {"table.expand.json.payload": "true"}, payloads('{"a": 12345678901234567890}'),
              stops="big-number-not-expanded", converters=JSON),
    OptionSet("envelope_expand_nulls", {"table.expand.json.payload": "true", "table.json.payload.null.behavior": "optional_bytes",
                                        "table.fields.additional.placement": "type:envelope,aggregateid:header:key"},
              payloads(*(text for text in EXPANDED if text != "[]")), converters=JSON),
    OptionSet("replacement", {"route.topic.replacement": "events.${routedByValue}.all"},
              [Row("plain", {}), Row("dots and dashes", {"aggregatetype": "'replacement.a-b_c'"})]),
    OptionSet("constant_topic", {"route.topic.regex": ".*", "route.topic.replacement": "constant"},
              [Row("one", {"aggregatetype": "'one'"}), Row("empty", {"aggregatetype": "''"}), Row("two", {"aggregatetype": "'t w o'"})]),
    OptionSet("by_key", {"route.by.field": "aggregateid", "route.tombstone.on.empty.payload": "true"},
              [Row("key", {"aggregateid": "'by_key'"}), Row("no payload", {"aggregateid": "'by_key-2'", "payload": "NULL"})]),
    OptionSet("big_key", {}, [Row("largest", {}), Row("smallest", {"aggregateid": "-9223372036854775808"}), Row("none", {"aggregateid": "NULL"})],
              columns={"aggregateid": "bigint"}, defaults={"aggregateid": "9223372036854775807"}),
    OptionSet("uuid_key", {"table.field.event.key": "reference", "table.fields.additional.placement": "aggregateid:header"},
              [Row("uuid", {}), Row("none", {"reference": "NULL"})], columns={"reference": "uuid"},
              defaults={"reference": "'3F2504E0-4F89-11D3-9A0C-0305E82C3301'"}),
    OptionSet("enum_route", {"route.by.field": "state", "table.fields.additional.placement": "state:header"},
              [Row("happy", {}), Row("sad", {"state": "'sad'"})], columns={"state": "mood"}, defaults={"state": "'happy'"}),
    OptionSet("without_effect", {"table.op.invalid.behavior": "fatal", "table.field.event.schema.version": "version",
                                 "tracing.with.context.field.only": "true", "tracing.operation.name": "shop"},
              [Row("version", {}), Row("other version", {"version": "4"})], columns={"version": "integer"}, defaults={"version": "3"}),
    OptionSet("short_texts", {"table.fields.additional.placement": "type:header"},
              [Row("padded", {}), Row("full", {"payload": "'0123456789'", "type": "'0123456789'"}), Row("empty", {"payload": "''"}),
               Row("none", {"payload": "NULL", "type": "NULL"})],
              columns={"payload": "char(10)", "type": "char(10)", "aggregateid": "short_text"}, defaults={"payload": "'ab'"}),
    OptionSet("null_timestamp", {"table.field.event.timestamp": "happened"}, [Row("no time", {"happened": "NULL"})],
              columns={"happened": "timestamp"}),
]

# Differences of every record, and of what this comparison cannot make: the test of the documents knows them.
NOT_SHOWN_BY_A_ROW = {"context-headers", "processing-time", "spread-of-null-keys", "unsupported-types", "tracing-spans",
                      "null-event-id", "case-beyond-ascii"}
# Debezium's own choice differs from one process to the next, or from one Java to the next.
BY_CHANCE = {"merged-member-order", "shortest-numbers"}
