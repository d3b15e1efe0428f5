"""Consumes with confluent-kafka every topic that another client produced, and compares it with the specification.

Usage: readback.py BOOTSTRAP RUN CLIENT. The topics are those of the run and client that the broker lists.
"""

import sys

import confluent
import spec
from confluent_kafka.admin import AdminClient

bootstrap, run, client = sys.argv[1:4]
prefix = spec.topic_name(run, client, "", "")[:-1]
topics = [t for t in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics if t.startswith(prefix)]
for topic in topics:
    codec = topic.removeprefix(prefix).split("-")[0]
    confluent.consume_and_check(bootstrap, topic, spec.Check(codec, headers=spec.headers_never_null))
print(f"{len(topics)} topics, {len(topics) * spec.RECORDS} records")
