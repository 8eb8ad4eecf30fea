import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.trimtab.PlannedAssignor;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;

/** Reads a group as JSON from each line, and prints the assignment that the plugin makes. */
final class AssignorShell implements SubscribedTopicDescriber {
    private record Assigned(Map<Uuid, Set<Integer>> partitions) implements MemberAssignment {}

    private record Group(JsonNode members) implements GroupSpec {
        public Collection<String> memberIds() {
            Set<String> ids = new HashSet<>();
            members.fieldNames().forEachRemaining(ids::add);
            return ids;
        }

        public SubscriptionType subscriptionType() {
            return SubscriptionType.HETEROGENEOUS;
        }

        public boolean isPartitionAssigned(Uuid topic, int partition) {
            throw new UnsupportedOperationException();
        }

        public boolean isPartitionAssignable(Uuid topic, int partition) {
            throw new UnsupportedOperationException(); // brokers before 4.2 do not have it
        }

        public MemberSubscription memberSubscription(String id) {
            return new Subscription(members.get(id));
        }

        public MemberAssignment memberAssignment(String id) {
            Map<Uuid, Set<Integer>> owned = new HashMap<>();
            members.get(id).get("owned").fields().forEachRemaining(topic -> {
                Set<Integer> numbers = new HashSet<>();
                topic.getValue().forEach(number -> numbers.add(number.asInt()));
                owned.put(Uuid.fromString(topic.getKey()), numbers);
            });
            return new Assigned(Collections.unmodifiableMap(owned));
        }
    }

    private record Subscription(JsonNode member) implements MemberSubscription {
        public Optional<String> rackId() {
            return Optional.ofNullable(member.get("rack").textValue());
        }

        public Optional<String> instanceId() {
            return Optional.empty();
        }

        public Set<Uuid> subscribedTopicIds() {
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
            return topics;
        }
    }

    private final JsonNode topics; // by id: the racks of each partition's replica

    private AssignorShell(JsonNode topics) {
        this.topics = topics;
    }

    public int numPartitions(Uuid topic) {
        JsonNode racks = topics.get(topic.toString());
        return racks == null ? -1 : racks.size();
    }

    public Set<String> racksForPartition(Uuid topic, int partition) {
        return Set.of(topics.get(topic.toString()).get(partition).asText());
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = json.readTree(line);
            long start = System.nanoTime();
            GroupAssignment made = new PlannedAssignor().assign(
                    new Group(request.get("members")), new AssignorShell(request.get("topics")));
            Map<String, Object> members = new TreeMap<>(Map.of("", (System.nanoTime() - start) / 1e6));
            made.members().forEach((id, assigned) -> {
                Map<String, Set<Integer>> given = new TreeMap<>();
                assigned.partitions().forEach((topic, numbers) -> given.put(topic.toString(), new TreeSet<>(numbers)));
                members.put(id, given);
            });
            System.out.println(json.writeValueAsString(members));
        }
    }
}
