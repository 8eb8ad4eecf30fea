package io.trimtab;

import static java.util.stream.Collectors.groupingBy;
import static java.util.stream.Collectors.mapping;
import static java.util.stream.Collectors.toSet;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Queue;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;

/**
 * Assignor of consumer groups (KIP-848) that carries out the plan of Trimtab's sidecar.
 *
 * <ol>
 *   <li>A partition goes to the member in the slot that the plan gives it, if that member reads the topic;
 *       but members that the plan does not know keep what they have.
 *   <li>Else it stays with its member.
 *   <li>Else it goes to the reader with the fewest partitions, among these to one in a rack with a replica.
 *       Members that the plan keeps empty come last: they are being drained.
 *   <li>A member that the plan does not know and that has nothing takes from those with the most.
 * </ol>
 */
public class PlannedAssignor implements ConsumerGroupPartitionAssignor {
    @Override
    public String name() {
        return "trimtab";
    }

    @Override
    public GroupAssignment assign(GroupSpec group, SubscribedTopicDescriber topics) {
        return new Round(group, topics).assign();
    }

    private record Partition(Uuid topic, int number) {}

    private record Assigned(Map<Uuid, Set<Integer>> partitions) implements MemberAssignment {}

    private static final class Round {
        private final SubscribedTopicDescriber topics;
        private final Map<String, TreeSet<Partition>> assigned = new LinkedHashMap<>(); // sorted
        private final Map<String, String> racks = new LinkedHashMap<>();
        private final Map<Uuid, Set<String>> readers = new TreeMap<>();
        private final Map<Partition, String> owners = new HashMap<>();

        Round(GroupSpec group, SubscribedTopicDescriber topics) {
            this.topics = topics;
            for (String member : new TreeSet<>(group.memberIds())) {
                assigned.put(member, new TreeSet<>(
                        Comparator.comparing(Partition::topic).thenComparingInt(Partition::number)));
                group.memberSubscription(member).rackId().ifPresent(rack -> racks.put(member, rack));
                group.memberSubscription(member).subscribedTopicIds().forEach(topic ->
                        readers.computeIfAbsent(topic, t -> new LinkedHashSet<>()).add(member));
                group.memberAssignment(member).partitions().forEach((topic, numbers) ->
                        numbers.forEach(number -> owners.put(new Partition(topic, number), member)));
            }
        }

        GroupAssignment assign() {
            Set<String> joiners = new LinkedHashSet<>(assigned.keySet());
            joiners.removeIf(member -> readers.values().stream().noneMatch(of -> of.contains(member))
                    || racks.getOrDefault(member, "").startsWith(Plan.PREFIX));
            Plan plan = Plan.read(racks.values());
            var seats = plan.seat(joiners, (topic, number) -> owners.get(new Partition(topic, number)));
            List<Partition> open = new ArrayList<>();
            readers.forEach((topic, members) -> {
                for (int number = 0; number < topics.numPartitions(topic); number++) {
                    Partition partition = new Partition(topic, number);
                    String planned = seats.get(plan.slot(topic, number));
                    String owner = owners.get(partition);
                    String member = joiners.contains(owner) || !members.contains(planned) ? owner : planned;
                    (members.contains(member) ? assigned.get(member) : open).add(partition);
                }
            });
            Set<String> drained = new LinkedHashSet<>(seats.values());
            drained.removeIf(member -> count(member) > 0);
            open.forEach(partition -> assigned.get(findLightest(partition, drained)).add(partition));
            joiners.stream().filter(member -> count(member) == 0).forEach(this::takeFairCount);
            Map<String, MemberAssignment> result = new HashMap<>();
            assigned.forEach((member, given) -> result.put(member, new Assigned(given.stream()
                    .collect(groupingBy(Partition::topic, mapping(Partition::number, toSet()))))));
            return new GroupAssignment(result);
        }

        private int count(String member) {
            return assigned.get(member).size();
        }

        private String findLightest(Partition open, Set<String> drained) {
            Set<String> local = topics.racksForPartition(open.topic, open.number);
            return Collections.min(readers.get(open.topic),
                    Comparator.<String, Boolean>comparing(drained::contains).thenComparing(this::count)
                            .thenComparing(member -> !local.contains(racks.getOrDefault(member, ""))));
        }

        private void takeFairCount(String joiner) {
            Queue<String> donors = new PriorityQueue<>(Comparator.comparing(this::count).reversed());
            assigned.keySet().stream().filter(member -> !member.equals(joiner)).forEach(donors::add);
            while (!donors.isEmpty() && count(donors.element()) > count(joiner) + 1) {
                String donor = donors.remove();
                assigned.get(donor).descendingSet().stream()
                        .filter(partition -> readers.get(partition.topic).contains(joiner))
                        .findFirst().ifPresent(partition -> {
                            assigned.get(donor).remove(partition);
                            assigned.get(joiner).add(partition);
                            donors.add(donor);
                        });
            }
        }
    }
}
