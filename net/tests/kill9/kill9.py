"""Kills a broker under load again and again, and then looks for everything it had acknowledged.

Three kinds of producers write into one topic of four partitions: `kept`, an idempotent producer that
lives through all kills and whose retries must be recognised by a broker that has forgotten nothing;
`fresh`, a new idempotent producer in each round, whose producer id must be new too; and `plain`,
which never retries. A consumer reads along. The value of a record follows from its producer,
partition and sequence number, so nothing but the acknowledged offsets is kept.

Checked at each acknowledgement: no offset is given twice. Checked at the end by a new consumer, and
once more after a clean restart:
- the offsets of each partition are 0, 1, 2 ... without a gap, and every record is one we sent;
- every acknowledged record is at its offset, and what the consumer saw on the way is still there;
- an idempotent producer's records are all there, in order, each once; a plain producer's at most once, in order.

Usage: kill9.py ROUNDS SEED BOOTSTRAP LOG COMMAND...
"""

import random
import re
import subprocess
import sys
import time
from array import array

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "kill9"
PARTITIONS = 4
# Small segments, so that kills fall on rolls too; 1 MiB is the least Kafka allows.
TOPIC_CONFIGS = {"segment.bytes": "1048576", "retention.ms": "-1"}
RECORDS_IN_FLIGHT = 1000
UNKNOWN = -1
WAIT_S = 60
VALUE = re.compile(rb"(kept|plain|fresh\d+):(\d):(\d+):(x*)")


def value(name, partition, sequence):
    return f"{name}:{partition}:{sequence}:".encode() + b"x" * (100 + sequence * 37 % 500)


class Failure(Exception):
    pass


class Load:
    """One producer, and the offset acknowledged to each sequence number of each partition."""

    def __init__(self, name, bootstrap, owners, **settings):
        self.name = name
        self.owners = owners
        self.idempotent = settings.get("enable.idempotence", False)
        self.acknowledged = 0
        self.offsets = [array("q") for _ in range(PARTITIONS)]
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                # Lost connections are what this program is about; they need no line each.
                "log_level": 2,
                **settings,
            }
        )

    def step(self, records):
        for _ in range(records):
            if len(self.producer) >= RECORDS_IN_FLIGHT:
                break
            partition = random.randrange(PARTITIONS)
            sequence = len(self.offsets[partition])
            self.offsets[partition].append(UNKNOWN)
            self.producer.produce(
                TOPIC,
                value(self.name, partition, sequence),
                partition=partition,
                on_delivery=lambda error, message, s=sequence: self.delivered(error, message, s),
            )
        self.producer.poll(0)

    def delivered(self, error, message, sequence):
        if error:
            if self.idempotent:
                raise Failure(f"{self.name}: record {sequence} of partition {message.partition()} failed: {error}")
            return
        partition, offset = message.partition(), message.offset()
        owner = self.owners[partition].setdefault(offset, (self.name, sequence))
        if owner != (self.name, sequence):
            raise Failure(f"partition {partition}, offset {offset}: given to {owner} and to {(self.name, sequence)}")
        self.offsets[partition][sequence] = offset
        self.acknowledged += 1


class Tail:
    """A consumer that reads along; what it has seen may not change."""

    def __init__(self, bootstrap):
        self.seen = [array("q") for _ in range(PARTITIONS)]
        self.consumer = open_consumer(bootstrap, eof=False)

    def step(self):
        for message in self.consumer.consume(500, timeout=0):
            if message.error():
                # A lost connection is expected; a log that has become shorter than what was read is not.
                if message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    raise Failure(f"the consumer that reads along: {message.error()}")
                continue
            seen = self.seen[message.partition()]
            if message.offset() != len(seen):
                raise Failure(f"partition {message.partition()}: offset {message.offset()} came after {len(seen) - 1}")
            seen.append(hash(message.value()))


def open_consumer(bootstrap, eof):
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-joined",
            "enable.auto.commit": False,
            "enable.partition.eof": eof,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    return consumer


class Broker:
    def __init__(self, command, log):
        self.command, self.log, self.process = command, log, None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def check_alive(self):
        if self.process.poll() is not None:
            raise Failure(f"the broker ended by itself with status {self.process.returncode}")

    def kill(self):
        self.check_alive()
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failure("the broker did not stop within 60 seconds of SIGTERM") from None


def create_topic(bootstrap):
    """Tries until the broker that was just started answers."""
    deadline = time.monotonic() + WAIT_S
    while True:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        try:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=TOPIC_CONFIGS)])[TOPIC].result(5)
            return
        except (KafkaException, TimeoutError) as error:
            exists = isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            if exists:
                return
            if time.monotonic() > deadline:
                raise Failure(f"the topic cannot be created: {error!r}") from error


class Run:
    def __init__(self, rounds, bootstrap, broker):
        self.rounds, self.bootstrap, self.broker = rounds, bootstrap, broker
        self.owners = [{} for _ in range(PARTITIONS)]
        idempotent = {"enable.idempotence": True}
        self.kept = Load("kept", bootstrap, self.owners, **idempotent, **{"compression.type": "lz4"})
        self.plain = Load("plain", bootstrap, self.owners, **{"message.send.max.retries": 0, "max.in.flight": 1})
        self.loads = [self.kept, self.plain]
        self.tail = Tail(bootstrap)
        self.slowest_return_s = 0.0

    def load_until(self, what, done, active, seconds=WAIT_S):
        deadline = time.monotonic() + seconds
        while not done():
            if what and time.monotonic() > deadline:
                raise Failure(f"{what}: not within {seconds} seconds")
            self.broker.check_alive()
            for load in self.loads:
                load.step(10 if load in active else 0)
            self.tail.step()
            time.sleep(0.001)

    def load_for(self, seconds, active):
        end = time.monotonic() + seconds
        self.load_until(None, lambda: time.monotonic() > end, active)

    def round(self, number):
        fresh = Load(
            f"fresh{number}", self.bootstrap, self.owners, **{"enable.idempotence": True, "compression.type": "zstd"}
        )
        self.loads.append(fresh)
        active = [self.kept, self.plain, fresh]
        before = [load.acknowledged for load in active]
        started = time.monotonic()

        def all_acknowledged():
            return all(load.acknowledged > count for load, count in zip(active, before))

        self.load_until(f"round {number}: acknowledgements to all producers", all_acknowledged, active)
        self.slowest_return_s = max(self.slowest_return_s, time.monotonic() - started)
        self.load_for(random.uniform(0.02, 1.2), active)
        self.broker.kill()
        self.broker.start()
        if random.random() < 0.3:
            # And once more, wherever it is in its recovery.
            self.load_for(random.uniform(0.0, 0.3), active)
            self.broker.kill()
            self.broker.start()

    def finish(self):
        """Lets every record in flight come to its end."""
        self.load_until("the last acknowledgements", lambda: all(len(load.producer) == 0 for load in self.loads), [])

    def verify(self):
        expected_next = {load.name: [0] * PARTITIONS for load in self.loads}
        idempotent = {load.name: load.idempotent for load in self.loads}
        next_offset = [0] * PARTITIONS
        consumer = open_consumer(self.bootstrap, eof=True)
        at_end, deadline = set(), time.monotonic() + 10 * WAIT_S
        while len(at_end) < PARTITIONS:
            if time.monotonic() > deadline:
                raise Failure(f"the log cannot be read to its end; read to {next_offset}")
            for message in consumer.consume(500, timeout=0.1):
                if message.error():
                    if message.error().code() == KafkaError._PARTITION_EOF:
                        at_end.add(message.partition())
                    elif message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                        raise Failure(str(message.error()))
                    continue
                self.verify_record(message, next_offset, expected_next, idempotent)
        consumer.close()
        for load in self.loads:
            for partition, offsets in enumerate(load.offsets):
                sent, found = len(offsets), expected_next[load.name][partition]
                if load.idempotent and sent != found:
                    raise Failure(f"{load.name}, partition {partition}: {sent} records acknowledged, {found} found")
        for partition, end in enumerate(next_offset):
            last_acknowledged = max(self.owners[partition], default=-1)
            if max(last_acknowledged + 1, len(self.tail.seen[partition])) > end:
                raise Failure(
                    f"partition {partition} ends at {end}; acknowledged up to {last_acknowledged}, "
                    f"seen by a consumer up to {len(self.tail.seen[partition]) - 1}"
                )
        return sum(next_offset)

    def verify_record(self, message, next_offset, expected_next, idempotent):
        partition, offset, content = message.partition(), message.offset(), message.value()
        where = f"partition {partition}, offset {offset}"
        if offset != next_offset[partition]:
            raise Failure(f"{where}: expected offset {next_offset[partition]}")
        next_offset[partition] = offset + 1
        parsed = VALUE.fullmatch(content)
        name, sequence = (parsed[1].decode(), int(parsed[3])) if parsed else (None, None)
        if name not in expected_next or content != value(name, partition, sequence):
            raise Failure(f"{where}: a record nobody sent there: {content[:60]!r}")
        owner = self.owners[partition].get(offset, (name, sequence))
        if owner != (name, sequence):
            raise Failure(f"{where}: acknowledged to {owner}, holds {(name, sequence)}")
        seen = self.tail.seen[partition]
        if offset < len(seen) and seen[offset] != hash(content):
            raise Failure(f"{where}: a consumer saw another record there before")
        expected = expected_next[name][partition]
        if sequence != expected if idempotent[name] else sequence < expected:
            raise Failure(f"{where}: {name} {sequence}, expected {'' if idempotent[name] else 'at least '}{expected}")
        expected_next[name][partition] = sequence + 1


def main():
    rounds, seed, bootstrap, log = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    random.seed(seed)
    broker = Broker(sys.argv[5:], log)
    broker.start()
    try:
        create_topic(bootstrap)
        run = Run(rounds, bootstrap, broker)
        for number in range(rounds):
            run.round(number)
        run.finish()
        records = run.verify()
        broker.stop()
        broker.start()
        again = run.verify()
        if again != records:
            raise Failure(f"{records} records before a clean restart, {again} after it")
    except (Failure, KafkaException) as failure:
        sys.exit(f"FAILED kill9, seed {seed}: {failure}")
    finally:
        if broker.process.poll() is None:
            broker.kill()
    acknowledged = sum(load.acknowledged for load in run.loads)
    unknown = records - acknowledged
    print(
        f"ok kill9: {rounds} rounds, {acknowledged} records acknowledged and found, {unknown} found beside them; "
        f"longest from a kill to acknowledgements {run.slowest_return_s:.1f} s"
    )


if __name__ == "__main__":
    main()
