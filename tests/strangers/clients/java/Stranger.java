import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer of Kafka's own client. `strangers/events.py` has the lines that it prints, `telling.py` its options.
 */
public final class Stranger implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Duration COMMIT_TIMEOUT = Duration.ofSeconds(5);
    private static final long COMMIT_INTERVAL_NS = 1_000_000_000L;
    private static final long MAKE_UP_NS = 200_000_000L;
    private static final String PACKAGE = "org.apache.kafka.clients.consumer.";
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", PACKAGE + "RangeAssignor",
        "roundrobin", PACKAGE + "RoundRobinAssignor",
        "sticky", PACKAGE + "StickyAssignor",
        "cooperative-sticky", PACKAGE + "CooperativeStickyAssignor");

    private static volatile boolean stopped;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private final double rate;
    private long busyUntil;

    private Stranger(Map<String, String> options) {
        busyUntil = System.nanoTime();
        rate = Double.parseDouble(options.getOrDefault("rate", "0"));
        consumer = new KafkaConsumer<>(
            settings(options), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(options.get("topic")), this);
    }

    public static void main(String[] words) {
        Map<String, String> options = new HashMap<>();
        for (String word : words) {
            String[] pair = word.split("=", 2);
            options.put(pair[0], pair[1]);
        }
        Thread end = new Thread(Stranger::awaitEnd);
        end.setDaemon(true);
        end.start();
        new Stranger(options).run();
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {
                // only its end counts
            }
        } catch (java.io.IOException closed) {
            // ended, too
        }
        stopped = true;
    }

    private Properties settings(Map<String, String> options) {
        Properties settings = new Properties();
        settings.setProperty("bootstrap.servers", options.get("bootstrap"));
        settings.setProperty("group.id", options.get("group"));
        settings.setProperty("client.id", options.get("client"));
        settings.setProperty("enable.auto.commit", "false");
        settings.setProperty("auto.offset.reset", "earliest");
        settings.setProperty("group.protocol", options.get("protocol"));
        settings.setProperty("max.poll.records", Long.toString(rate == 0 ? 500 : Math.max(1, Math.round(rate / 10))));
        if (!options.getOrDefault("instance", "").isEmpty()) {
            settings.setProperty("group.instance.id", options.get("instance"));
        }
        if (options.get("protocol").equals("classic")) {
            settings.setProperty("heartbeat.interval.ms", options.get("heartbeat"));
            settings.setProperty("session.timeout.ms", options.get("session"));
            settings.setProperty("partition.assignment.strategy", List.of(options.get("assignors").split(","))
                .stream().map(ASSIGNORS::get).collect(Collectors.joining(",")));
        }
        return settings;
    }

    private void run() {
        long committedAt = System.nanoTime();
        while (!stopped) {
            handle();
            if (System.nanoTime() - committedAt > COMMIT_INTERVAL_NS) {
                committedAt = System.nanoTime();
                commit(uncommitted.keySet());
            }
        }
        commit(uncommitted.keySet());
        long deadline = System.nanoTime() + COMMIT_TIMEOUT.toNanos();
        while (!uncommitted.isEmpty() && System.nanoTime() < deadline) { // a rebalance refuses commits
            handle();
            commit(uncommitted.keySet());
        }
        consumer.close();
        say("closed");
    }

    private void handle() {
        var records = consumer.poll(POLL);
        if (records.isEmpty()) {
            return;
        }
        Map<TopicPartition, long[]> ranges = new TreeMap<>((a, b) -> a.toString().compareTo(b.toString()));
        for (ConsumerRecord<byte[], byte[]> r : records) {
            ranges.computeIfAbsent(new TopicPartition(r.topic(), r.partition()), p -> new long[] {r.offset(), 0})[1] =
                r.offset();
        }
        work(records.count());
        ranges.forEach((partition, range) -> {
            say("read " + partition + " " + range[0] + " " + range[1]);
            uncommitted.put(partition, new OffsetAndMetadata(range[1] + 1));
        });
    }

    private void work(int count) {
        if (rate == 0) {
            return;
        }
        long now = System.nanoTime();
        busyUntil = Math.max(busyUntil, now - MAKE_UP_NS) + Math.round(count / rate * 1e9);
        try {
            TimeUnit.NANOSECONDS.sleep(busyUntil - now);
        } catch (InterruptedException impossible) {
            Thread.currentThread().interrupt();
        }
    }

    /** Commits what was handled of these partitions; a refusal is told, and the next commit repeats it. */
    private void commit(Collection<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(uncommitted);
        offsets.keySet().retainAll(List.copyOf(partitions));
        if (offsets.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(offsets, COMMIT_TIMEOUT);
        } catch (KafkaException error) {
            System.err.println(Instant.now() + " " + error);
            return;
        }
        offsets.forEach((partition, next) -> say("committed " + partition + " " + next.offset()));
        uncommitted.keySet().removeAll(offsets.keySet());
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        say("assigned" + listed(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit(partitions);
        uncommitted.keySet().removeAll(partitions);
        say("revoked" + listed(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        uncommitted.keySet().removeAll(partitions);
        say("lost" + listed(partitions));
    }

    private static String listed(Collection<TopicPartition> partitions) {
        return partitions.stream().map(p -> " " + p).collect(Collectors.joining());
    }

    private static void say(String what) {
        Instant now = Instant.now();
        System.out.printf("%d.%06d %s%n", now.getEpochSecond(), now.getNano() / 1000, what);
        System.out.flush();
    }
}
