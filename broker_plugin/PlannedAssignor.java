package io.trimtab;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;

/**
 * Assignor of consumer groups (KIP-848) that carries out the plan of Trimtab's sidecar, which comes in rack ids.
 *
 * <ol>
 *   <li>A partition goes to the member in the slot that the plan gives it, if that member reads the topic.
 *   <li>Else it stays with its member.
 *   <li>Else it goes to the reader with the fewest partitions, among these to one in a rack with a replica.
 *       Members that the plan keeps empty come last: they are being drained.
 *   <li>A member without a slot that has nothing then takes partitions from those with the most.
 * </ol>
 */
public final class PlannedAssignor implements ConsumerGroupPartitionAssignor {
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
        private final SortedMap<String, SortedMap<Uuid, TreeSet<Integer>>> assigned = new TreeMap<>();
        private final Map<String, Integer> count = new HashMap<>();
        private final SortedMap<String, String> racks = new TreeMap<>();
        private final SortedMap<Uuid, Set<String>> readers = new TreeMap<>();
        private final Map<Partition, String> owners = new HashMap<>();

        Round(GroupSpec group, SubscribedTopicDescriber topics) {
            this.topics = topics;
            for (String member : new TreeSet<>(group.memberIds())) {
                assigned.put(member, new TreeMap<>());
                count.put(member, 0);
                group.memberSubscription(member).rackId().ifPresent(rack -> racks.put(member, rack));
                for (Uuid topic : group.memberSubscription(member).subscribedTopicIds()) {
                    readers.computeIfAbsent(topic, t -> new LinkedHashSet<>()).add(member);
                }
                group.memberAssignment(member).partitions().forEach((topic, numbers) ->
                        numbers.forEach(number -> owners.put(new Partition(topic, number), member)));
            }
        }

        GroupAssignment assign() {
            Set<String> joiners = new TreeSet<>();
            readers.values().forEach(joiners::addAll);
            joiners.removeIf(member -> racks.getOrDefault(member, "").startsWith(Plan.PREFIX));
            Plan plan = Plan.read(racks.values());
            Map<Integer, String> seats = plan.seat(joiners, (topic, number) -> owners.get(new Partition(topic, number)));
            joiners.removeAll(seats.values());
            List<Partition> open = new ArrayList<>();
            readers.forEach((topic, members) -> {
                for (int number = 0; number < topics.numPartitions(topic); number++) {
                    Partition partition = new Partition(topic, number);
                    String planned = seats.get(plan.slot(topic, number));
                    String member = members.contains(planned) ? planned : owners.get(partition);
                    if (members.contains(member)) {
                        give(member, partition);
                    } else {
                        open.add(partition);
                    }
                }
            });
            Set<String> drained = new HashSet<>(seats.values());
            drained.removeIf(member -> count.get(member) > 0);
            open.forEach(partition -> give(findLightest(partition, drained), partition));
            joiners.stream().filter(member -> count.get(member) == 0).forEach(this::takeFairCount);
            Map<String, MemberAssignment> result = new HashMap<>();
            assigned.forEach((member, given) -> result.put(member, new Assigned(new HashMap<>(given))));
            return new GroupAssignment(result);
        }

        private void give(String member, Partition partition) {
            assigned.get(member).computeIfAbsent(partition.topic, t -> new TreeSet<>()).add(partition.number);
            count.merge(member, 1, Integer::sum);
        }

        private String findLightest(Partition open, Set<String> drained) {
            Set<String> local = racks.isEmpty() ? Set.of() : topics.racksForPartition(open.topic, open.number);
            return Collections.min(readers.get(open.topic), Comparator.<String, Boolean>comparing(drained::contains)
                    .thenComparing(count::get).thenComparing(m -> !local.contains(racks.getOrDefault(m, ""))));
        }

        private void takeFairCount(String joiner) {
            for (Optional<String> donor = findDonor(joiner); donor.isPresent(); donor = findDonor(joiner)) {
                SortedMap<Uuid, TreeSet<Integer>> given = assigned.get(donor.get());
                Uuid topic = findTopic(given, joiner).orElseThrow();
                give(joiner, new Partition(topic, given.get(topic).pollLast()));
                given.values().removeIf(Set::isEmpty);
                count.merge(donor.get(), -1, Integer::sum);
            }
        }

        private Optional<String> findDonor(String joiner) {
            return assigned.keySet().stream()
                    .filter(member -> count.get(member) > count.get(joiner) + 1)
                    .filter(member -> findTopic(assigned.get(member), joiner).isPresent())
                    .max(Comparator.comparing(count::get));
        }

        private Optional<Uuid> findTopic(SortedMap<Uuid, TreeSet<Integer>> given, String joiner) {
            return given.keySet().stream().filter(topic -> readers.get(topic).contains(joiner)).findFirst();
        }
    }
}
