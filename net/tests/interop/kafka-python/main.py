"""kafka-python: creates, produces, consumes and compares every topic of the specification."""

import spec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic


def create_topic(bootstrap, topic):
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, spec.PARTITIONS, 1, topic_configs=spec.TOPIC_CONFIGS)])
    admin.close()


def produce(bootstrap, topic, codec, mode):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=mode == "idempotent",
        acks="all",
        # A retry reorders a plain producer's batches unless one request at a time is under way.
        max_in_flight_requests_per_connection=5 if mode == "idempotent" else 1,
        linger_ms=20,
    )
    sent = [
        producer.send(
            topic,
            partition=i % spec.PARTITIONS,
            key=spec.key(i),
            value=spec.value(codec, i),
            headers=spec.headers_never_null(codec, i),
            timestamp_ms=spec.timestamp_ms(i),
        )
        for i in range(spec.RECORDS)
    ]
    producer.flush(60)
    for i, future in enumerate(sent):
        spec.expect(f"{topic}: the offset acknowledged to record {i}", future.get(10).offset, i // spec.PARTITIONS)
    producer.close()


def consume_and_check(bootstrap, topic, codec):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
    assigned = [TopicPartition(topic, p) for p in range(spec.PARTITIONS)]
    consumer.assign(assigned)
    consumer.seek_to_beginning(*assigned)
    check = spec.Check(codec, headers=spec.headers_never_null)
    deadline = spec.Deadline(topic)
    ends = consumer.end_offsets(assigned)
    while any(consumer.position(p) < ends[p] for p in assigned):
        deadline.check()
        for records in consumer.poll(timeout_ms=1000, max_records=5000).values():
            for r in records:
                check.see(r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
    check.end()
    consumer.close()


def run_one(bootstrap, topic, codec, mode):
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, codec, mode)
    consume_and_check(bootstrap, topic, codec)


spec.main("kafka-python", run_one)
