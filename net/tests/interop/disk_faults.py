"""A broker on a disk that errs, and on one that is full; what clients must see.

Two partitions in files of their own, `bad` and `good`. The disk is told to fail a sync, writes or reads that hold
the records of `bad`. Then, and after a restart on a healed disk:
- after a failed sync or write `bad` refuses records with KAFKA_STORAGE_ERROR until the restart, and the broker says
  so in its log; what was acknowledged can still be read;
- after a failed read the fetch of `bad` fails with KAFKA_STORAGE_ERROR, on a connection that goes on to serve `good`;
- on a full disk records are refused, fetches served, and records taken again once there is room, with no restart;
- `good` takes and serves records all the while;
- nothing that was acknowledged is lost.
The file system is unmounted between stop and start, so that nothing is read from memory that is not on the disk.

Usage: disk_faults.py WORK DEVICE BOOTSTRAP COMMAND...
"""

import os
import re
import socket
import struct
import subprocess
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S = 30
STORAGE_ERROR = KafkaError.KAFKA_STORAGE_ERROR


class Failure(Exception):
    pass


def check(condition, what):
    if not condition:
        raise Failure(what)


class Broker:
    """The broker, and the file system it lives on."""

    def __init__(self, work, device, command):
        self.device, self.command, self.process = device, command, None
        self.mount_at, self.orders, self.log = f"{work}/fs", f"{work}/disks/orders", f"{work}/broker.log"

    def start(self):
        subprocess.run(["mount", "-o", "errors=continue,noatime", self.device, self.mount_at], check=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"the broker did not stop within {WAIT_S} seconds of SIGTERM") from None
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            subprocess.run(["umount", self.mount_at], check=True)

    def kill(self):
        check(self.process.poll() is None, "the broker has ended by itself")
        self.process.kill()
        self.process.wait()
        subprocess.run(["umount", self.mount_at], check=True)

    def order(self, line):
        """Tells the disk what to fail."""
        orders = os.open(self.orders, os.O_WRONLY)
        os.write(orders, line.encode())
        os.close(orders)

    def logged(self, pattern):
        with open(self.log) as log:
            return re.search(pattern, log.read()) is not None

    def forget(self, topic):
        """Empties the page cache of a partition's files: they must be read from the disk."""
        directory = f"{self.mount_at}/data/{topic}-0"
        for name in os.listdir(directory):
            with open(f"{directory}/{name}", "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Clients:
    """What was acknowledged, and whether it can be read."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.acknowledged = {}
        self.sent = 0

    def create_topics(self, *names):
        deadline = time.monotonic() + WAIT_S
        for name in names:
            while True:
                try:
                    admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
                    admin.create_topics([NewTopic(name, 1, 1)])[name].result(5)
                    self.acknowledged[name] = {}
                    break
                except (KafkaException, TimeoutError) as error:
                    check(time.monotonic() < deadline, f"the topic {name} cannot be created: {error!r}")

    def produce(self, topic, records=20, size=200, end=b"", timeout_ms=WAIT_S * 1000):
        """Sends records that end with `end`, none of them twice; returns the errors."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "retries": 0,
                "linger.ms": 5,
                "request.timeout.ms": timeout_ms,
                "message.timeout.ms": WAIT_S * 1000,
                "log_level": 2,
            }
        )
        errors = []

        def delivered(error, message):
            if error:
                errors.append(error.code())
            else:
                before = self.acknowledged[topic].setdefault(message.offset(), message.value())
                check(before == message.value(), f"{topic}: offset {message.offset()} was given twice")

        for _ in range(records):
            self.sent += 1
            value = f"{topic}:{self.sent}:".encode().ljust(size, b"x") + end
            producer.produce(topic, value, partition=0, on_delivery=delivered)
        check(producer.flush(WAIT_S) == 0, f"{topic}: no answer within {WAIT_S} seconds")
        return errors

    def taken(self, topic, **kwargs):
        errors = self.produce(topic, **kwargs)
        check(not errors, f"{topic}: records are refused: {set(errors)}")

    def taken_by_and_by(self, topic):
        """A log that was full tries again ten times a second."""
        deadline = time.monotonic() + WAIT_S
        while self.produce(topic):
            check(time.monotonic() < deadline, f"{topic}: records are refused though there is room")

    def refused(self, topic, *others, **kwargs):
        errors = set(self.produce(topic, **kwargs)) - set(others)
        check(errors == {STORAGE_ERROR} or others and not errors, f"{topic}: expected KAFKA_STORAGE_ERROR, got {errors}")

    def complete(self, *topics):
        """All that was acknowledged is read, at its offset, by one consumer of all these topics."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "not-joined", "enable.auto.commit": False, "log_level": 2}
        )
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        missing = {topic: dict(self.acknowledged[topic]) for topic in topics}
        deadline = time.monotonic() + WAIT_S
        while any(missing.values()) and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=0.1):
                check(not message.error(), f"{message.topic()}: {message.error()}")
                wanted = missing[message.topic()].pop(message.offset(), message.value())
                check(wanted == message.value(), f"{message.topic()}: another record at {message.offset()}")
        consumer.close()
        lost = {topic: len(records) for topic, records in missing.items() if records}
        check(not lost, f"acknowledged and not read within {WAIT_S} seconds: {lost}")

    def fetch(self, offsets):
        """A fetch of these topics from these offsets, version 4: for each its error and the bytes it got."""
        host, port = self.bootstrap.rsplit(":", 1)
        body = struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0) + struct.pack(">i", len(offsets))
        for topic, offset in offsets.items():
            name = topic.encode()
            body += struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, 0, offset, 1 << 20)
        request = struct.pack(">hhih", 1, 4, 7, 4) + b"test" + body
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as stream:
            answers = []
            # Twice, as what must go on is the connection.
            for _ in range(2):
                stream.sendall(struct.pack(">i", len(request)) + request)
                answers.append(self.parse(self.receive(stream, struct.unpack(">i", self.receive(stream, 4))[0])))
        check(answers[0].keys() == answers[1].keys(), f"two fetches, two answers: {answers}")
        return answers[1]

    @staticmethod
    def receive(stream, count):
        data = b""
        while len(data) < count:
            piece = stream.recv(count - len(data))
            check(piece, "the connection was closed in the middle of an answer")
            data += piece
        return data

    @staticmethod
    def parse(reply):
        position = 12
        answers = {}
        for _ in range(struct.unpack_from(">i", reply, 8)[0]):
            (length,) = struct.unpack_from(">h", reply, position)
            name = reply[position + 2 : position + 2 + length].decode()
            position += 2 + length + 4
            _, error, _, _, aborted = struct.unpack_from(">ihqqi", reply, position)
            position += 26 + 16 * max(aborted, 0)
            (size,) = struct.unpack_from(">i", reply, position)
            position += 4 + max(size, 0)
            answers[name] = (error, max(size, 0))
        return answers


def failed_sync(broker, clients):
    clients.taken("bad")
    clients.taken("good")
    broker.order("sync 1")
    clients.refused("bad")
    check(broker.logged(r"ERROR.*fdatasync .*/bad-0/"), "the broker's log does not say that a sync failed")
    clients.taken("good")
    # The disk is well again; that proves nothing about what the failed sync should have made durable.
    clients.refused("bad")
    clients.complete("bad", "good")
    broker.stop()
    broker.start()
    clients.complete("bad", "good")
    clients.taken("bad")
    clients.taken("good")


def failed_write(broker, clients):
    broker.order("write bad:")
    clients.refused("bad")
    clients.taken("good")
    clients.refused("bad")
    clients.complete("good")
    broker.order("heal")
    broker.kill()
    broker.start()
    clients.complete("bad", "good")
    clients.taken("bad")
    clients.complete("bad", "good")


def failed_read(broker, clients):
    # A record whose middle alone cannot be read: its place is found before that shows, and its neighbours are well.
    clients.taken("bad", records=1, size=100_000, end=b"rotten".ljust(100_000))
    rotten = max(clients.acknowledged["bad"])
    clients.taken("bad", records=1)
    broker.order("read rotten")
    broker.forget("bad")
    answers = clients.fetch({"bad": rotten, "good": 0})
    check(answers["bad"] == (STORAGE_ERROR, 0), f"bad: expected KAFKA_STORAGE_ERROR, got {answers['bad']}")
    check(answers["good"][0] == 0 and answers["good"][1] > 0, f"good, in the same fetch: {answers['good']}")
    check(broker.logged(r"WARN.*/bad-0/"), "the broker's log does not say that a read failed")
    for offset in (0, rotten - 1, rotten + 1):
        error, size = clients.fetch({"bad": offset})["bad"]
        check(error == 0 and size > 0, f"bad, offset {offset}, beside what cannot be read: error {error}, {size} bytes")
    clients.taken("good")
    clients.complete("good")
    broker.order("heal")
    clients.complete("bad", "good")
    clients.taken("bad")


def full_disk(broker, clients):
    ballast = f"{broker.mount_at}/ballast"

    def fill():
        with open(ballast, "ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    fill()
    # More than the last block of each file has room for. What finds the disk full waits for room as long as its
    # client does, what comes then is refused.
    for topic in ("good", "bad"):
        clients.refused(topic, KafkaError.REQUEST_TIMED_OUT, records=100, timeout_ms=1000)
        clients.refused(topic)
    check(broker.logged("ERROR.*disk is full"), "the broker's log does not say that the disk is full")
    clients.complete("bad", "good")
    os.remove(ballast)
    clients.taken_by_and_by("good")
    clients.taken_by_and_by("bad")
    fill()
    clients.refused("good", KafkaError.REQUEST_TIMED_OUT, records=100, timeout_ms=1000)
    broker.stop()
    subprocess.run(["mount", broker.device, broker.mount_at], check=True)
    # With nothing left to write, a start says what to do or does without.
    started = subprocess.run(["timeout", "5", *broker.command], capture_output=True, text=True)
    told = started.stdout + started.stderr
    check("free some space" in told or "serving" in told, f"the remedy is not told: {told}")
    os.remove(ballast)
    subprocess.run(["umount", broker.mount_at], check=True)
    broker.start()
    clients.complete("bad", "good")
    clients.taken("good")
    clients.taken("bad")


def main():
    work, device, bootstrap, command = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    broker, clients = Broker(work, device, command), Clients(bootstrap)
    broker.start()
    part = None
    try:
        clients.create_topics("bad", "good")
        for part in (failed_sync, failed_write, failed_read, full_disk):
            began = time.monotonic()
            part(broker, clients)
            print(f"ok disk_faults: {part.__name__}, {time.monotonic() - began:.1f} s", flush=True)
        clients.complete("bad", "good")
        broker.stop()
    except (Failure, KafkaException) as failure:
        sys.exit(f"FAILED disk_faults: {part and part.__name__}: {failure}")
    finally:
        if broker.process.poll() is None:
            broker.process.kill()
            broker.process.wait()
    print(f"disk_faults passed: {sum(map(len, clients.acknowledged.values()))} records acknowledged, none lost")


if __name__ == "__main__":
    main()
