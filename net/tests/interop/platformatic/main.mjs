// @platformatic/kafka, which speaks flexible versions only: creates and produces every topic of the
// specification. Its consumer needs a group, so lib/readback.py consumes and compares.

import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import zlib from 'node:zlib'
import { Admin, ProduceAcks, Producer } from '@platformatic/kafka'

const spec = createRequire(import.meta.url)(path.join(process.env.INTEROP_LIB, 'spec.js'))

// Its zstd is Node's own, which Node 20 has not.
const CODECS = ['none', 'gzip', 'snappy', 'lz4', ...(zlib.zstdCompressSync ? ['zstd'] : [])]

async function createTopic(client, topic) {
  const admin = new Admin(client)
  const configs = [{ name: 'retention.ms', value: '-1' }]
  await admin.createTopics({ topics: [topic], partitions: spec.PARTITIONS, replicas: 1, configs })
  await waitForLeaders(admin, topic)
  await admin.close()
}

// A broker may show a new topic before it leads all of it (Kafka does), and this client answers a
// partial refusal by sending the whole request again: a plain producer's records would come twice.
async function waitForLeaders(admin, topic) {
  const partitions = Array.from({ length: spec.PARTITIONS }, (_, partitionIndex) => ({ partitionIndex, timestamp: -1n }))
  for (const deadline = Date.now() + 10_000; ; ) {
    try {
      await admin.listOffsets({ topics: [{ name: topic, partitions }] })
      return
    } catch (error) {
      if (Date.now() > deadline) throw error
      await setTimeout(20)
    }
  }
}

async function produce(client, topic, codec, mode) {
  const idempotent = mode === 'idempotent'
  const producer = new Producer({ ...client, idempotent, acks: ProduceAcks.ALL, compression: codec })
  for (const chunk of spec.chunks(1000)) {
    const messages = chunk.map((i) => ({
      topic,
      partition: i % spec.PARTITIONS,
      key: spec.key(i),
      value: spec.value(codec, i),
      headers: new Map(spec.headers(codec, i).map(([name, content]) => [Buffer.from(name), content])),
      timestamp: BigInt(spec.timestampMs(i)),
    }))
    const { offsets } = await producer.send({ messages })
    spec.expect(`${topic}: partitions acknowledged`, offsets.length, spec.PARTITIONS)
    for (const { offset } of offsets) {
      spec.expect(`${topic}: base offset`, Number(offset), chunk[0] / spec.PARTITIONS)
    }
  }
  await producer.close()
}

spec.main('platformatic', CODECS, async (bootstrap, topic, codec, mode) => {
  const client = { clientId: 'interop', bootstrapBrokers: [bootstrap] }
  await createTopic(client, topic)
  await produce(client, topic, codec, mode)
})
