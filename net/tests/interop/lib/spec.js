// The records every interop client produces (../README.md), for the Node clients.
// Knows no client library.
'use strict'

const RECORDS = 10_000
const PARTITIONS = 4
const BASE_TIMESTAMP_MS = 1_700_000_000_000

function timestampMs(i) {
  return BASE_TIMESTAMP_MS + 10 * i - 25 * (i % 3)
}

function key(i) {
  if (i % 10 === 9) return null
  if (i % 10 === 8) return Buffer.alloc(0)
  return Buffer.from(`k\u00e9y-${i}`)
}

function value(codec, i) {
  if (i % 50 === 47) return null
  if (i % 50 === 48) return Buffer.alloc(0)
  const pattern = Buffer.alloc(16 + ((37 * i) % 400))
  for (let j = 0; j < pattern.length; j++) pattern[j] = (31 * i + 7 * j) % 256
  return Buffer.concat([Buffer.from(`${codec}:${i}:`), pattern])
}

// Neither client can send a null header value; lib/readback.py expects an empty one in its place.
function headers(codec, i) {
  const listed = []
  for (let j = 0; j < i % 3; j++) listed.push([`h${j}`, Buffer.from(`${codec}-${i}-${j}`)])
  if (i % 7 === 3) listed.push(['none', Buffer.alloc(0)])
  return listed
}

// The numbers of the records of chunk `n`, of `size` records: all partitions take turns.
function* chunks(size) {
  for (let first = 0; first < RECORDS; first += size) {
    yield Array.from({ length: Math.min(size, RECORDS - first) }, (_, n) => first + n)
  }
}

function expect(what, actual, expected) {
  if (actual !== expected) throw new Error(`${what} is ${actual}, not ${expected}`)
}

// Runs `runOne(bootstrap, topic, codec, mode)` for each topic and prints the summary line.
async function main(client, codecs, runOne) {
  const [bootstrap, run] = process.argv.slice(2)
  let topics = 0
  for (const codec of codecs) {
    for (const mode of ['plain', 'idempotent']) {
      await runOne(bootstrap, `interop-${run}-${client}-${codec}-${mode}`, codec, mode)
      topics++
    }
  }
  console.log(`${topics} topics, ${topics * RECORDS} records`)
}

module.exports = { PARTITIONS, chunks, expect, headers, key, main, timestampMs, value }
