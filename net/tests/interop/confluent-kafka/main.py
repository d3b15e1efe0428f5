"""confluent-kafka (librdkafka): creates, produces, consumes and compares every topic of the specification."""

import spec
from confluent import consume_and_check, create_topic
from confluent_kafka import Producer


def produce(bootstrap, topic, codec, mode):
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": mode == "idempotent",
            "acks": "all",
            # A retry reorders a plain producer's batches unless one request at a time is under way.
            "max.in.flight.requests.per.connection": 5 if mode == "idempotent" else 1,
            "batch.num.messages": 500,
        }
    )
    acknowledged = []

    def delivered(error, message):
        if error:
            raise AssertionError(f"{topic}: {error}")
        acknowledged.append((message.partition(), message.offset()))

    for i in range(spec.RECORDS):
        producer.produce(
            topic,
            partition=i % spec.PARTITIONS,
            key=spec.key(i),
            value=spec.value(codec, i),
            headers=spec.headers(codec, i),
            timestamp=spec.timestamp_ms(i),
            on_delivery=delivered,
        )
        producer.poll(0)
    spec.expect(f"{topic}: records left after flush", producer.flush(60), 0)
    offsets = [(p, o) for p in range(spec.PARTITIONS) for o in range(spec.RECORDS // spec.PARTITIONS)]
    spec.expect(f"{topic}: the offsets acknowledged", sorted(acknowledged), offsets)


def run_one(bootstrap, topic, codec, mode):
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, codec, mode)
    consume_and_check(bootstrap, topic, spec.Check(codec))


spec.main("confluent-kafka", run_one)
