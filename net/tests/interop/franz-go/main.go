// franz-go: creates, produces, consumes and compares every topic of the specification (../README.md).
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	records         = 10_000
	partitions      = 4
	baseTimestampMs = 1_700_000_000_000
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func timestampMs(i int) int64 {
	return baseTimestampMs + 10*int64(i) - 25*int64(i%3)
}

func key(i int) []byte {
	switch i % 10 {
	case 9:
		return nil
	case 8:
		return []byte{}
	}
	return fmt.Appendf(nil, "k\u00e9y-%d", i)
}

func value(codec string, i int) []byte {
	switch i % 50 {
	case 47:
		return nil
	case 48:
		return []byte{}
	}
	v := fmt.Appendf(nil, "%s:%d:", codec, i)
	for j := range 16 + (37*i)%400 {
		v = append(v, byte(31*i+7*j))
	}
	return v
}

func headers(codec string, i int) []kgo.RecordHeader {
	var listed []kgo.RecordHeader
	for j := range i % 3 {
		listed = append(listed, kgo.RecordHeader{Key: fmt.Sprintf("h%d", j), Value: fmt.Appendf(nil, "%s-%d-%d", codec, i, j)})
	}
	if i%7 == 3 {
		listed = append(listed, kgo.RecordHeader{Key: "none", Value: nil})
	}
	return listed
}

func same(a, b []byte) bool {
	return bytes.Equal(a, b) && (a == nil) == (b == nil)
}

func createTopic(ctx context.Context, bootstrap, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	forever := "-1"
	_, err = kadm.NewClient(client).CreateTopic(ctx, partitions, 1, map[string]*string{"retention.ms": &forever}, topic)
	return err
}

func produce(ctx context.Context, bootstrap, topic, codec, mode string) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.ProducerBatchMaxBytes(64 << 10),
		kgo.MetadataMinAge(50 * time.Millisecond), // a new topic's leader may not be known at once
	}
	if mode == "plain" {
		// A retry reorders a plain producer's batches unless one request at a time is under way.
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	results := make(chan error, records)
	for i := range records {
		record := &kgo.Record{
			Topic:     topic,
			Partition: int32(i % partitions),
			Key:       key(i),
			Value:     value(codec, i),
			Headers:   headers(codec, i),
			Timestamp: time.UnixMilli(timestampMs(i)),
		}
		client.Produce(ctx, record, func(r *kgo.Record, err error) {
			if err == nil && r.Offset != int64(i/partitions) {
				err = fmt.Errorf("record %d was acknowledged at offset %d", i, r.Offset)
			}
			results <- err
		})
	}
	for range records {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

func check(codec string, offset int, r *kgo.Record) error {
	i := offset*partitions + int(r.Partition)
	where := fmt.Sprintf("partition %d, record %d", r.Partition, i)
	if r.Offset != int64(offset) {
		return fmt.Errorf("%s: offset is %d, not %d", where, r.Offset, offset)
	}
	if !same(r.Key, key(i)) {
		return fmt.Errorf("%s: key is %q, not %q", where, r.Key, key(i))
	}
	if !same(r.Value, value(codec, i)) {
		return fmt.Errorf("%s: value is %q, not %q", where, r.Value, value(codec, i))
	}
	if r.Timestamp.UnixMilli() != timestampMs(i) {
		return fmt.Errorf("%s: timestamp is %d, not %d", where, r.Timestamp.UnixMilli(), timestampMs(i))
	}
	expected := headers(codec, i)
	if len(r.Headers) != len(expected) {
		return fmt.Errorf("%s: headers are %v, not %v", where, r.Headers, expected)
	}
	for n, header := range r.Headers {
		if header.Key != expected[n].Key || !same(header.Value, expected[n].Value) {
			return fmt.Errorf("%s: headers are %v, not %v", where, r.Headers, expected)
		}
	}
	return nil
}

func consumeAndCheck(ctx context.Context, bootstrap, topic, codec string) error {
	assigned := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		assigned[p] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.MetadataMinAge(50*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: assigned}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var next [partitions]int
	for seen := 0; seen < records; {
		fetches := client.PollFetches(ctx)
		if errors := fetches.Errors(); len(errors) > 0 {
			return errors[0].Err
		}
		for _, r := range fetches.Records() {
			if err := check(codec, next[r.Partition], r); err != nil {
				return err
			}
			next[r.Partition]++
			seen++
		}
	}
	for p, n := range next {
		if n != records/partitions {
			return fmt.Errorf("partition %d has %d records", p, n)
		}
	}
	return nil
}

func runOne(bootstrap, topic, codec, mode string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := createTopic(ctx, bootstrap, topic); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := produce(ctx, bootstrap, topic, codec, mode); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if err := consumeAndCheck(ctx, bootstrap, topic, codec); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	return nil
}

func main() {
	bootstrap, run := os.Args[1], os.Args[2]
	topics := 0
	for _, codec := range strings.Fields("none gzip snappy lz4 zstd") {
		for _, mode := range []string{"plain", "idempotent"} {
			topic := fmt.Sprintf("interop-%s-franz-go-%s-%s", run, codec, mode)
			if err := runOne(bootstrap, topic, codec, mode); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", topic, err)
				os.Exit(1)
			}
			topics++
		}
	}
	fmt.Printf("%d topics, %d records\n", topics, topics*records)
}
