import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client: creates, produces, consumes and compares every topic of the specification (../README.md). */
final class Interop {
    private static final int RECORDS = 10_000;
    private static final int PARTITIONS = 4;
    private static final long BASE_TIMESTAMP_MS = 1_700_000_000_000L;

    private static long timestampMs(int i) {
        return BASE_TIMESTAMP_MS + 10L * i - 25L * (i % 3);
    }

    private static byte[] key(int i) {
        return switch (i % 10) {
            case 9 -> null;
            case 8 -> new byte[0];
            default -> ("k\u00e9y-" + i).getBytes(StandardCharsets.UTF_8);
        };
    }

    private static byte[] value(String codec, int i) {
        if (i % 50 == 47) return null;
        if (i % 50 == 48) return new byte[0];
        byte[] prefix = (codec + ":" + i + ":").getBytes(StandardCharsets.UTF_8);
        byte[] value = Arrays.copyOf(prefix, prefix.length + 16 + (37 * i) % 400);
        for (int j = 0; prefix.length + j < value.length; j++) value[prefix.length + j] = (byte) (31 * i + 7 * j);
        return value;
    }

    private static List<Header> headers(String codec, int i) {
        List<Header> listed = new ArrayList<>();
        for (int j = 0; j < i % 3; j++) {
            listed.add(new RecordHeader("h" + j, (codec + "-" + i + "-" + j).getBytes(StandardCharsets.UTF_8)));
        }
        if (i % 7 == 3) listed.add(new RecordHeader("none", (byte[]) null));
        return listed;
    }

    private static void createTopic(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            NewTopic wanted = new NewTopic(topic, PARTITIONS, (short) 1).configs(Map.of("retention.ms", "-1"));
            admin.createTopics(List.of(wanted)).all().get(30, TimeUnit.SECONDS);
            waitForLeaders(admin, topic);
        }
    }

    /**
     * Asks for the partitions' ends until they are known. A broker may show a new topic before it leads it (Kafka
     * does); an idempotent producer whose first batch is refused then and whose second is taken waits forever.
     */
    private static void waitForLeaders(Admin admin, String topic) throws Exception {
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        for (int p = 0; p < PARTITIONS; p++) wanted.put(new TopicPartition(topic, p), OffsetSpec.latest());
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (true) {
            try {
                for (var end : admin.listOffsets(wanted).all().get(30, TimeUnit.SECONDS).values()) {
                    expect("the end of an empty partition", end.offset(), 0L);
                }
                return;
            } catch (ExecutionException unknown) {
                if (System.nanoTime() > deadline) throw unknown;
                Thread.sleep(20);
            }
        }
    }

    private static void produce(String bootstrap, String topic, String codec, String mode) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("acks", "all");
        boolean idempotent = mode.equals("idempotent");
        settings.put("enable.idempotence", idempotent);
        // A retry reorders a plain producer's batches unless one request at a time is under way.
        settings.put("max.in.flight.requests.per.connection", idempotent ? 5 : 1);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < RECORDS; i++) {
                sent.add(producer.send(new ProducerRecord<>(
                        topic, i % PARTITIONS, timestampMs(i), key(i), value(codec, i), headers(codec, i))));
            }
            for (int i = 0; i < RECORDS; i++) {
                expect("the offset acknowledged to record " + i, sent.get(i).get().offset(), (long) (i / PARTITIONS));
            }
        }
    }

    private static void consumeAndCheck(String bootstrap, String topic, String codec) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", false);
        settings.put("max.poll.records", 5000);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> assigned = new ArrayList<>();
            for (int p = 0; p < PARTITIONS; p++) assigned.add(new TopicPartition(topic, p));
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            int[] next = new int[PARTITIONS];
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            Map<TopicPartition, Long> ends = consumer.endOffsets(assigned);
            while (assigned.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                if (System.nanoTime() > deadline) throw new AssertionError("the records did not come in time");
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    check(codec, next[record.partition()]++, record);
                }
            }
            for (int p = 0; p < PARTITIONS; p++) expect("records of partition " + p, next[p], RECORDS / PARTITIONS);
        }
    }

    private static void check(String codec, int offset, ConsumerRecord<byte[], byte[]> record) {
        int i = offset * PARTITIONS + record.partition();
        String where = "partition " + record.partition() + ", record " + i + ": ";
        expect(where + "offset", record.offset(), (long) offset);
        expect(where + "key", text(record.key()), text(key(i)));
        expect(where + "value", text(record.value()), text(value(codec, i)));
        expect(where + "timestamp", record.timestamp(), timestampMs(i));
        expect(where + "headers", Arrays.asList(record.headers().toArray()), headers(codec, i));
    }

    /** One character for each byte, and null apart from empty. */
    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.ISO_8859_1);
    }

    private static void expect(String what, Object actual, Object expected) {
        if (!Objects.equals(actual, expected)) throw new AssertionError(what + " is " + actual + ", not " + expected);
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int topics = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (String mode : List.of("plain", "idempotent")) {
                String topic = "interop-" + arguments[1] + "-java-" + codec + "-" + mode;
                createTopic(bootstrap, topic);
                produce(bootstrap, topic, codec, mode);
                consumeAndCheck(bootstrap, topic, codec);
                topics++;
            }
        }
        System.out.println(topics + " topics, " + topics * RECORDS + " records");
    }
}
