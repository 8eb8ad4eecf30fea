import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The instances of bench_bounce that read with Java's consumer, each on a thread of this JVM.
 *
 * <p>Arguments: topic, folder for the logs, the instances' numbers (1,2,3), then settings as name=value. Lines
 * on standard input, "start N" and "stop N", open and close the consumer of an instance, "end N"
 * ends the JVM; it answers "reading N" at its first record after a start, and "stopped N". Logs a line a record: partition,
 * offset, seconds of the monotonic clock (the same as Python's), N.
 *
 * <p>The setting bench.commit.revoked=true makes a consumer commit what it gives up. By default it commits
 * when a rebalance begins, and reads on until it ends if the assignor is cooperative.
 */
public final class Bounce implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(50);

    private final String topic;
    private final String number;
    private final Properties settings;
    private final BufferedWriter log;
    private KafkaConsumer<byte[], byte[]> consumer;
    private boolean reading;

    private Bounce(String topic, String number, Path folder, Properties settings) throws IOException {
        this.topic = topic;
        this.number = number;
        this.settings = settings;
        this.log = Files.newBufferedWriter(folder.resolve("instance-" + number));
    }

    public static void main(String[] args) throws IOException {
        Properties settings = new Properties();
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            settings.setProperty(pair[0], pair[1]);
        }
        Map<String, Bounce> instances = new HashMap<>();
        for (String number : args[2].split(",")) {
            instances.put(number, new Bounce(args[0], number, Path.of(args[1]), settings));
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Bounce instance = instances.get(words[1]);
            if (words[0].equals("start")) {
                instance.start();
            } else if (words[0].equals("stop")) {
                instance.consumer.wakeup();
            } else {
                break;
            }
        }
        for (Bounce instance : instances.values()) {
            instance.log.flush();
        }
        Runtime.getRuntime().halt(0); // nobody is left to hand over to
    }

    private void start() {
        consumer = new KafkaConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        if (Boolean.parseBoolean(settings.getProperty("bench.commit.revoked"))) {
            consumer.subscribe(List.of(topic), this);
        } else {
            consumer.subscribe(List.of(topic));
        }
        reading = false;
        new Thread(this::run, "instance-" + number).start();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition partition : partitions) {
            offsets.put(partition, new OffsetAndMetadata(consumer.position(partition)));
        }
        consumer.commitSync(offsets);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        // read on from the committed offsets
    }

    private void run() {
        try {
            while (true) {
                handle();
            }
        } catch (WakeupException told) {
            consumer.close();
            say("stopped");
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private void handle() throws IOException {
        var records = consumer.poll(POLL);
        double now = System.nanoTime() / 1e9;
        for (ConsumerRecord<byte[], byte[]> record : records) {
            log.write(record.partition() + " " + record.offset() + " " + now + " " + number + "\n");
        }
        if (!reading && !records.isEmpty()) {
            reading = true;
            say("reading");
        }
    }

    private void say(String what) {
        synchronized (System.out) {
            System.out.println(what + " " + number);
            System.out.flush();
        }
    }
}
