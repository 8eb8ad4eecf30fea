import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Times Kafka's own assignors on the problems of bench_assign (their format is told in
 * assign_problem.py).
 *
 * <p>Arguments: warm-up calls, measured calls, then (problem, folder for the owners) pairs. Prints
 * a line of JSON for each problem and assignor: median CPU ms of the calling thread and wall ms of
 * the assignor alone, and from subscription bytes to assignment bytes; "second" is the round that a
 * cooperative assignor needs to finish. The owners after the last round go to a file of ints.
 */
public final class Harness {
    private static final ThreadMXBean CPU = ManagementFactory.getThreadMXBean();
    private static final Node NODE = new Node(0, "localhost", 9092);

    private final List<TopicPartition> partitions = new ArrayList<>();
    private final Map<String, byte[]> cooperative = new LinkedHashMap<>();
    private final Map<String, byte[]> eager = new LinkedHashMap<>();
    private final Cluster cluster;
    private final int warmUps;
    private final int runs;

    /** What is timed, on what was made ready before the clock starts. */
    private interface Call<S> {
        Object run(S ready);
    }

    private Harness(String path, int warmUps, int runs) throws IOException {
        this.warmUps = warmUps;
        this.runs = runs;
        try (DataInputStream in = new DataInputStream(
                new BufferedInputStream(new FileInputStream(path), 1 << 20))) {
            for (int topics = in.readInt(); topics > 0; topics--) {
                String topic = in.readUTF();
                int size = in.readInt();
                for (int p = 0; p < size; p++) {
                    partitions.add(new TopicPartition(topic, p));
                }
            }
            for (int members = in.readInt(); members > 0; members--) {
                String id = in.readUTF();
                cooperative.put(id, in.readNBytes(in.readInt()));
                eager.put(id, in.readNBytes(in.readInt()));
                in.skipNBytes(in.readInt());
            }
        }
        Node[] nodes = {NODE};
        List<PartitionInfo> infos = new ArrayList<>();
        for (TopicPartition p : partitions) {
            infos.add(new PartitionInfo(p.topic(), p.partition(), NODE, nodes, nodes));
        }
        cluster = new Cluster("bench", List.of(NODE), infos, Set.of(), Set.of());
    }

    public static void main(String[] args) throws IOException {
        for (int i = 2; i < args.length; i += 2) {
            Harness harness =
                new Harness(args[i], Integer.parseInt(args[0]), Integer.parseInt(args[1]));
            harness.time(args[i], "range", RangeAssignor::new, harness.cooperative, args[i + 1]);
            harness.time(args[i], "sticky", StickyAssignor::new, harness.eager, args[i + 1]);
            harness.time(args[i], "cooperative-sticky", CooperativeStickyAssignor::new,
                harness.cooperative, args[i + 1]);
        }
    }

    private void time(String problem, String name, Supplier<ConsumerPartitionAssignor> assignor,
            Map<String, byte[]> raw, String folder) throws IOException {
        Map<String, Double> figures = new LinkedHashMap<>();
        Map<String, Assignment> given = assign(assignor.get(), decode(raw));
        times(figures, "", assignor, raw);
        if (name.startsWith("cooperative")) {
            Map<String, byte[]> again = holding(given);
            times(figures, "second_", assignor, again);
            given = assign(assignor.get(), decode(again));
        }
        String file = folder + "/" + name + ".owners";
        write(file, given);
        StringBuilder line = new StringBuilder("{\"problem\": \"" + problem + "\", \"assignor\": \""
            + name + "\", \"owners\": \"" + file + "\"");
        figures.forEach((key, ms) -> line.append(", \"").append(key).append("\": ").append(ms));
        System.out.println(line.append("}"));
    }

    private void times(Map<String, Double> figures, String round,
            Supplier<ConsumerPartitionAssignor> assignor, Map<String, byte[]> raw) {
        // decoded anew for each call: the sticky assignors read the user data's buffers to the end
        measure(figures, round + "assign", () -> decode(raw), s -> assign(assignor.get(), s));
        measure(figures, round + "wire", () -> raw, r -> encode(assign(assignor.get(), decode(r))));
    }

    private <S> void measure(
            Map<String, Double> figures, String what, Supplier<S> ready, Call<S> call) {
        for (int i = 0; i < warmUps; i++) {
            call.run(ready.get());
        }
        double[] cpu = new double[runs];
        double[] wall = new double[runs];
        for (int i = 0; i < runs; i++) {
            S input = ready.get();
            long startCpu = CPU.getCurrentThreadCpuTime();
            long start = System.nanoTime();
            call.run(input);
            wall[i] = (System.nanoTime() - start) / 1e6;
            cpu[i] = (CPU.getCurrentThreadCpuTime() - startCpu) / 1e6;
        }
        figures.put(what + "_cpu_ms", median(cpu));
        figures.put(what + "_wall_ms", median(wall));
    }

    private Map<String, Assignment> assign(
            ConsumerPartitionAssignor assignor, Map<String, Subscription> subscriptions) {
        return assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
    }

    private static Map<String, Subscription> decode(Map<String, byte[]> raw) {
        Map<String, Subscription> decoded = new HashMap<>();
        raw.forEach((id, data) ->
            decoded.put(id, ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(data))));
        return decoded;
    }

    private static Map<String, ByteBuffer> encode(Map<String, Assignment> assignments) {
        Map<String, ByteBuffer> encoded = new HashMap<>();
        assignments.forEach((id, a) -> encoded.put(id, ConsumerProtocol.serializeAssignment(a)));
        return encoded;
    }

    /** What the members send after they did as they were told: they own what they were given. */
    private Map<String, byte[]> holding(Map<String, Assignment> given) {
        Map<String, byte[]> sent = new LinkedHashMap<>();
        List<String> topics = new ArrayList<>(cluster.topics());
        given.forEach((id, a) -> sent.put(id, ConsumerProtocol.serializeSubscription(
            new Subscription(topics, null, a.partitions(), 6, Optional.empty())).array()));
        return sent;
    }

    private void write(String path, Map<String, Assignment> given) throws IOException {
        Map<TopicPartition, Integer> owner = new HashMap<>();
        int number = 0;
        for (String id : cooperative.keySet()) {
            for (TopicPartition p : given.get(id).partitions()) {
                owner.put(p, number);
            }
            number++;
        }
        try (DataOutputStream out = new DataOutputStream(
                new BufferedOutputStream(new FileOutputStream(path)))) {
            for (TopicPartition p : partitions) {
                out.writeInt(owner.getOrDefault(p, -1));
            }
        }
    }

    private static double median(double[] values) {
        Arrays.sort(values);
        return values[values.length / 2];
    }
}
