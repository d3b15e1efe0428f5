"""aiokafka: creates, produces, consumes and compares every topic of the specification."""

import asyncio

import spec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


async def create_topic(bootstrap, topic):
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        response = await admin.create_topics(
            [NewTopic(topic, spec.PARTITIONS, 1, topic_configs=spec.TOPIC_CONFIGS)]
        )
        for name, code, *_ in response.topic_errors:
            spec.expect(f"{name}: the error code of CreateTopics", code, 0)
    finally:
        await admin.close()


async def produce(bootstrap, topic, codec, mode):
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=mode == "idempotent",
        acks="all",
        linger_ms=20,
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic,
                partition=i % spec.PARTITIONS,
                key=spec.key(i),
                value=spec.value(codec, i),
                headers=spec.headers(codec, i),
                timestamp_ms=spec.timestamp_ms(i),
            )
            for i in range(spec.RECORDS)
        ]
        for i, metadata in enumerate(await asyncio.gather(*sent)):
            spec.expect(f"{topic}: the offset acknowledged to record {i}", metadata.offset, i // spec.PARTITIONS)
    finally:
        await producer.stop()


async def consume_and_check(bootstrap, topic, codec):
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
    await consumer.start()
    try:
        assigned = [TopicPartition(topic, p) for p in range(spec.PARTITIONS)]
        consumer.assign(assigned)
        await consumer.seek_to_beginning(*assigned)
        check = spec.Check(codec)
        deadline = spec.Deadline(topic)
        ends = await consumer.end_offsets(assigned)
        while any([await consumer.position(p) < ends[p] for p in assigned]):
            deadline.check()
            for records in (await consumer.getmany(timeout_ms=1000, max_records=5000)).values():
                for r in records:
                    check.see(r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
        check.end()
    finally:
        await consumer.stop()


async def run_topic(bootstrap, topic, codec, mode):
    await create_topic(bootstrap, topic)
    await produce(bootstrap, topic, codec, mode)
    await consume_and_check(bootstrap, topic, codec)


def run_one(*arguments):
    asyncio.run(run_topic(*arguments))


spec.main("aiokafka", run_one)
