"""The records every interop client produces and expects; the prose is in ../README.md.

Knows no client library. The programs beside it in other languages repeat these few lines, so that
any of them can check what any other wrote.
"""

import sys
import time

RECORDS = 10_000
PARTITIONS = 4
BASE_TIMESTAMP_MS = 1_700_000_000_000
MODES = ("plain", "idempotent")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC_CONFIGS = {"retention.ms": "-1"}


def topic_name(run, client, codec, mode):
    return f"interop-{run}-{client}-{codec}-{mode}"


def timestamp_ms(i):
    return BASE_TIMESTAMP_MS + 10 * i - 25 * (i % 3)


def key(i):
    if i % 10 == 9:
        return None
    if i % 10 == 8:
        return b""
    return f"k\u00e9y-{i}".encode()


def value(codec, i):
    if i % 50 == 47:
        return None
    if i % 50 == 48:
        return b""
    return f"{codec}:{i}:".encode() + bytes((31 * i + 7 * j) % 256 for j in range(16 + (37 * i) % 400))


def headers(codec, i):
    listed = [(f"h{j}", f"{codec}-{i}-{j}".encode()) for j in range(i % 3)]
    if i % 7 == 3:
        listed.append(("none", None))
    return listed


def headers_never_null(codec, i):
    """For the clients whose producers refuse a null header value: they send an empty one."""
    return [(name, content or b"") for name, content in headers(codec, i)]


class Check:
    """Takes each consumed record of one topic and compares all of it with the specification.

    `clock_ms` is None where the producer sets the specified timestamps, else the span (first, last)
    in which it let its own clock do so.
    """

    def __init__(self, codec, clock_ms=None, key=key, value=value, headers=headers):
        self.codec = codec
        self.clock_ms = clock_ms
        self.next_offset = [0] * PARTITIONS
        self.key, self.value, self.headers = key, value, headers

    def see(self, partition, offset, timestamp, key, value, headers):
        expected_offset = self.next_offset[partition]
        i = expected_offset * PARTITIONS + partition
        where = f"{self.codec}, partition {partition}, record {i}"
        expect(f"{where}: offset", offset, expected_offset)
        expect(f"{where}: key", key, self.key(i))
        expect(f"{where}: value", value, self.value(self.codec, i))
        expect(f"{where}: headers", [tuple(h) for h in headers or ()], self.headers(self.codec, i))
        if self.clock_ms is None:
            expect(f"{where}: timestamp", timestamp, timestamp_ms(i))
        elif not self.clock_ms[0] <= timestamp <= self.clock_ms[1]:
            raise AssertionError(f"{where}: timestamp {timestamp} outside of {self.clock_ms}")
        self.next_offset[partition] += 1

    def complete(self):
        return sum(self.next_offset) == RECORDS

    def end(self):
        expect(f"{self.codec}: records of each partition", self.next_offset, [RECORDS // PARTITIONS] * PARTITIONS)


def expect(what, actual, expected):
    if actual != expected:
        raise AssertionError(f"{what} is {actual!r}, not {expected!r}")


class Deadline:
    """Ends a consume loop whose records do not come, with a message that says so."""

    def __init__(self, what, seconds=60):
        self.what = what
        self.end = time.monotonic() + seconds

    def check(self):
        if time.monotonic() > self.end:
            raise AssertionError(f"{self.what}: the records did not come in time")


def main(client, run_one, codecs=CODECS, modes=MODES):
    """Runs `run_one(bootstrap, topic, codec, mode)` for each topic; prints the summary line."""
    bootstrap, run = sys.argv[1:3]
    topics = 0
    for codec in codecs:
        for mode in modes:
            run_one(bootstrap, topic_name(run, client, codec, mode), codec, mode)
            topics += 1
    print(f"{topics} topics, {topics * RECORDS} records")
