// kafkajs: creates and produces every topic of the specification with the codecs it carries itself.
// Its consumer needs a group, so lib/readback.py consumes and compares.
'use strict'

const path = require('node:path')
const spec = require(path.join(process.env.INTEROP_LIB, 'spec.js'))
const { CompressionTypes, Kafka, Partitioners, logLevel } = require('kafkajs')

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }

async function createTopic(kafka, topic) {
  const admin = kafka.admin()
  await admin.connect()
  const configEntries = [{ name: 'retention.ms', value: '-1' }]
  await admin.createTopics({
    waitForLeaders: true,
    topics: [{ topic, numPartitions: spec.PARTITIONS, replicationFactor: 1, configEntries }],
  })
  await admin.disconnect()
}

async function produce(kafka, topic, codec, mode) {
  const producer = kafka.producer({
    idempotent: mode === 'idempotent',
    createPartitioner: Partitioners.DefaultPartitioner,
    maxInFlightRequests: 1,
  })
  await producer.connect()
  for (const chunk of spec.chunks(1000)) {
    const messages = chunk.map((i) => ({
      partition: i % spec.PARTITIONS,
      key: spec.key(i),
      value: spec.value(codec, i),
      headers: Object.fromEntries(spec.headers(codec, i)),
      timestamp: String(spec.timestampMs(i)),
    }))
    for (const part of await producer.send({ topic, acks: -1, compression: CODECS[codec], messages })) {
      spec.expect(`${topic}: error code`, part.errorCode, 0)
      spec.expect(`${topic}: base offset`, Number(part.baseOffset), chunk[0] / spec.PARTITIONS)
    }
  }
  await producer.disconnect()
}

spec.main('kafkajs', Object.keys(CODECS), async (bootstrap, topic, codec, mode) => {
  const kafka = new Kafka({ clientId: 'interop', brokers: [bootstrap], logLevel: logLevel.ERROR })
  await createTopic(kafka, topic)
  await produce(kafka, topic, codec, mode)
})
