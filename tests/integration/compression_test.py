"""Compression and size: what lies on Kafka's disk, and what becomes of an event that is larger than its topic takes."""

import collections
import re
import struct

import pytest
from rejecting import dead_letters

CODECS = {"none": 0, "lz4": 3, "zstd": 4}
# Of a batch in a segment: offset, length after these two, ..., attributes, ..., number of records.
BATCH = struct.Struct(">qiibIhiqqqhii")
Batch = collections.namedtuple("Batch", "codec records size")
TEXT = "repeat('{\"order\": 42, \"lines\": [{\"article\": \"tea\", \"pieces\": 3}]}', 40)"


def batches(kafka, topic):
    """Those in the segments of the topic's only partition."""
    found = []
    for segment in sorted((kafka.data / f"{topic}-0").glob("*.log")):
        content, at = segment.read_bytes(), 0
        while at < len(content):
            _, length, _, magic, _, attributes, *_, records = BATCH.unpack_from(content, at)
            assert magic == 2 and length > 0
            found.append(Batch(attributes & 7, records, length + 12))
            at += length + 12
    return found


def insert(p, rows):
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) SELECT gen_random_uuid(),"
              f" '{p.name}', 'key-1', 'Tested', convert_to({TEXT} || n, 'UTF8') FROM generate_series(1, {rows}) n")


def test_batches_on_disk_carry_the_codec_and_are_smaller(make_pipeline, kafka):
    sizes = {}
    for codec, number in CODECS.items():
        p = make_pipeline(partitions=1, properties={"compression.type": codec}).start()
        insert(p, 500)
        p.wait_confirmed()
        assert p.judge() == 0
        found = batches(kafka, p.name)
        assert {batch.codec for batch in found} == {number}, codec
        assert sum(batch.records for batch in found) == 500
        sizes[codec] = sum(batch.size for batch in found)
        p.walpost.stop()
    print(sizes)
    assert sizes["none"] > 500 * 2_000
    assert sizes["lz4"] * 3 < sizes["none"] and sizes["zstd"] * 3 < sizes["none"]


# Failure 69.
@pytest.mark.parametrize("codec", CODECS)
def test_event_that_stays_larger_than_its_topic_takes_is_a_dead_letter(make_pipeline, kafka, codec):
    """Without compression it is found before it is sent, with its size and the limit; else only the broker knows."""
    p = make_pipeline(create_topic=False, properties={"compression.type": codec},
                      config={"delivery": {"on_undeliverable": "dead_letter"}})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "100000"})
    p.start()
    p.insert(1, 50)
    # Random, as hexadecimal digits: half of it remains at best.
    p.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload) SELECT gen_random_uuid(),"
              f" '{p.name}', 'key-1', 'Large', convert_to(string_agg(md5(random()::text), ''), 'UTF8') FROM generate_series(1, 10000)")
    p.insert(51, 100)
    p.wait_confirmed()
    (row, _, value), = dead_letters(p)
    assert row["reason"] == "record_too_large" and len(value) > 320_000
    detail = row["detail"]
    if codec == "none":
        size, = re.findall(r"the record of (\d+) bytes is larger than topic '" + p.name + "' takes", detail)
        assert int(size) > len(value) and "max.message.bytes, which is 100000" in detail
        assert not [line for line in p.walpost.log_events() if line["event"] == "kafka_delivery_failed"], "before it was sent"
    else:
        assert f"Kafka rejected it for topic '{p.name}'" in detail and "MSG_SIZE_TOO_LARGE" in detail
        size, = re.findall(r"key and value have (\d+) bytes before compression", detail)
        assert int(size) > len(value) and "max.message.bytes is 100000" in detail
    assert len(p.records()) == 100


def test_event_that_compression_makes_small_enough_arrives(make_pipeline, kafka):
    p = make_pipeline(create_topic=False, properties={"compression.type": "zstd"})
    kafka.create_topic(p.name, 1, {"max.message.bytes": "100000"})
    p.start()
    p.insert_large(3_000_000)
    p.insert(1, 50)
    p.wait_confirmed()
    records = p.records()
    assert len(records) == 51 and len(records[0].message.value()) > 3_000_000
    assert sum(batch.size for batch in batches(kafka, p.name)) < 100_000
