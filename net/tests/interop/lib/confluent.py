"""Creating, reading back and checking topics with confluent-kafka, for the clients that cannot do so themselves."""

import spec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def create_topic(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, spec.PARTITIONS, 1, config=spec.TOPIC_CONFIGS)])[topic].result(30)


def consume_and_check(bootstrap, topic, check):
    """Consumes the topic from the beginning to the end of each partition; all of it must be what `check` expects."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-joined",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            # The end of a partition is known from an empty answer, which need not be waited for.
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(spec.PARTITIONS)])
    deadline = spec.Deadline(topic)
    at_end = set()
    while len(at_end) < spec.PARTITIONS:
        deadline.check()
        for message in consumer.consume(500, timeout=0.1):
            if message.error():
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise AssertionError(f"{topic}: {message.error()}")
                at_end.add(message.partition())
                continue
            check.see(
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                message.headers(),
            )
    consumer.close()
    check.end()
