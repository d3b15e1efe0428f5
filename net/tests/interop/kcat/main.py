"""kcat (Debian's, over its own librdkafka): produces and consumes by command; compared with the specification.

What kcat cannot do differs from the specification: its headers are the same for all records of a
command, its clock sets the timestamps, and an empty key or value is sent as null. It has no command
that creates a topic: those it produces to are created by the broker when kcat asks for them, with the
broker's num.partitions. It reads what confluent-kafka created and produced whole, though: keys,
values, headers, timestamps.
"""

import json
import os
import subprocess
import time

import confluent
import spec
from confluent_kafka import Producer

RECORD_END = b"<|record|>"
KEY_END = b"<|key|>"
HEADERS = [("h0", b"of every record"), ("h1", b"")]
# kcat prints headers as CSV without quoting, so the values of these topics hold no comma and no newline.
FORMAT = r"%p %o %T %K %S %h\n%k%s"


def kcat(*arguments, stdin=None):
    # The home directory is hidden: kcat would read the configuration of whoever runs the tests.
    environment = {**os.environ, "HOME": "/nonexistent"}
    command = ["kcat", "-q", *arguments]
    return subprocess.run(
        command, input=stdin, stdout=subprocess.PIPE, env=environment, check=True, timeout=60
    ).stdout


def key(i):
    return spec.key(i) or None


def value(codec, i):
    return spec.value(codec, i) or None


def headers(_codec, _i):
    return HEADERS


def produce(bootstrap, topic, codec, mode):
    settings = ["-X", f"compression.type={codec}", "-X", "acks=all", "-X", "batch.num.messages=500"]
    settings += ["-X", "enable.idempotence=true"] if mode == "idempotent" else ["-X", "max.in.flight=1"]
    for name, content in HEADERS:
        settings += ["-H", f"{name}={content.decode()}"]
    for p in range(spec.PARTITIONS):
        lines = b"".join(
            (key(i) or b"") + KEY_END + (value(codec, i) or b"") + RECORD_END
            for i in range(p, spec.RECORDS, spec.PARTITIONS)
        )
        delimiters = ["-D", RECORD_END.decode(), "-K", KEY_END.decode(), "-Z"]
        kcat("-P", "-b", bootstrap, "-t", topic, "-p", str(p), *delimiters, *settings, stdin=lines)


def consume_and_check(bootstrap, topic, check):
    for p in range(spec.PARTITIONS):
        settings = ["-X", "check.crcs=true", "-X", "fetch.wait.max.ms=10"]
        where = ["-b", bootstrap, "-t", topic, "-p", str(p), "-o", "beginning", "-e"]
        out = kcat("-C", *where, "-f", FORMAT, *settings)
        at = 0
        while at < len(out):
            line_end = out.index(b"\n", at)
            partition, offset, timestamp, key_len, value_len, headers_csv = out[at:line_end].split(b" ", 5)
            at = line_end + 1
            key_bytes, at = take(out, at, int(key_len))
            value_bytes, at = take(out, at, int(value_len))
            check.see(int(partition), int(offset), int(timestamp), key_bytes, value_bytes, parse_headers(headers_csv))
    check.end()


def take(out, at, length):
    """kcat prints a null as the word NULL with length -1, of which the caller gets None."""
    if length < 0:
        return None, at
    return out[at : at + length], at + length


def parse_headers(csv):
    pairs = [pair.split(b"=", 1) for pair in csv.split(b",")] if csv else []
    return [(name.decode(), None if content == b"NULL" else content) for name, content in pairs]


def produce_with_confluent(bootstrap, topic, codec):
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
    for i in range(spec.RECORDS):
        producer.produce(
            topic,
            partition=i % spec.PARTITIONS,
            key=spec.key(i),
            value=spec.value(codec, i),
            headers=spec.headers(codec, i),
            timestamp=spec.timestamp_ms(i),
        )
        producer.poll(0)
    spec.expect(f"{topic}: records left after flush", producer.flush(60), 0)


def expect_partitions(bootstrap, topic):
    listed = json.loads(kcat("-L", "-J", "-b", bootstrap, "-t", topic))["topics"]
    partitions = [len(found["partitions"]) for found in listed if found["topic"] == topic]
    spec.expect(f"{topic}: partitions of the topic the broker created", partitions, [spec.PARTITIONS])


def run_one(bootstrap, topic, codec, mode):
    started = int(time.time() * 1000)
    produce(bootstrap, topic, codec, mode)
    expect_partitions(bootstrap, topic)
    span = (started, int(time.time() * 1000))
    consume_and_check(bootstrap, topic, spec.Check(codec, clock_ms=span, key=key, value=value, headers=headers))


def read_foreign(bootstrap, topic, codec, _mode):
    confluent.create_topic(bootstrap, topic)
    produce_with_confluent(bootstrap, topic, codec)
    consume_and_check(bootstrap, topic, spec.Check(codec))


def run(bootstrap, topic, codec, mode):
    (read_foreign if mode == "foreign" else run_one)(bootstrap, topic, codec, mode)


if __name__ == "__main__":
    spec.main("kcat", run, modes=(*spec.MODES, "foreign"))
