package io.trimtab;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BiFunction;
import java.util.stream.IntStream;
import java.util.zip.InflaterInputStream;
import org.apache.kafka.common.Uuid;

/**
 * The slot of each partition and the member of each slot; {@code sidecar/pilot/plan_format.py} writes it.
 *
 * @param digests digest of the member id in slot 1, 2, ...; 0 for a place, which a joiner takes
 * @param slots slot of partition 0, 1, ... by topic id; 0 where the plan leaves the partition open
 */
record Plan(List<Long> digests, Map<Uuid, CharBuffer> slots) {
    static final String PREFIX = "trimtab1:";
    private static final int KEY_LENGTH = PREFIX.length() + 2 * 20; // epoch and revision: higher sorts later
    private static final int HEADER_LENGTH = KEY_LENGTH + 4; // and the number of the piece
    private static final int MAX_BYTES = 1 << 20; // one rack id can inflate to 25 MB, and pieces add up

    /** Returns the highest plan of which all pieces are there and readable, else an empty one. */
    static Plan read(Collection<String> rackIds) {
        Map<String, Map<String, String>> plans = new TreeMap<>(Collections.reverseOrder());
        for (String rackId : rackIds) {
            if (rackId.startsWith(PREFIX) && rackId.length() > HEADER_LENGTH) {
                plans.computeIfAbsent(rackId.substring(0, KEY_LENGTH), key -> new TreeMap<>())
                        .put(rackId.substring(KEY_LENGTH, HEADER_LENGTH), rackId.substring(HEADER_LENGTH));
            }
        }
        for (Map<String, String> pieces : plans.values()) {
            try {
                return decode(String.join("", pieces.values())); // its checksum tells if a piece is missing
            } catch (IOException | RuntimeException unreadable) {
                // any member can send one: the next plan counts
            }
        }
        return new Plan(List.of(), Map.of());
    }

    private static Plan decode(String text) throws IOException {
        ByteBuffer body = ByteBuffer.wrap(new InflaterInputStream(
                new ByteArrayInputStream(Base64.getDecoder().decode(text))).readNBytes(MAX_BYTES));
        List<Long> digests = new ArrayList<>();
        for (int left = body.getChar(); left > 0; left--) {
            digests.add((long) body.getChar() << 32 | Integer.toUnsignedLong(body.getInt()));
        }
        Map<Uuid, CharBuffer> slots = new HashMap<>();
        while (body.hasRemaining()) {
            Uuid topic = new Uuid(body.getLong(), body.getLong());
            int bytes = Math.multiplyExact(body.getInt(), Character.BYTES);
            slots.put(topic, body.slice(body.position(), bytes).asCharBuffer());
            body.position(body.position() + bytes);
        }
        return new Plan(digests, slots);
    }

    /** Returns the slot of a partition; 0 if the plan leaves it open. */
    int slot(Uuid topic, int partition) {
        CharBuffer known = slots.get(topic);
        return known == null || partition >= known.limit() ? 0 : known.get(partition);
    }

    /**
     * Moves members from {@code joiners} to slots: to the one of their id, one whose partitions they have (all,
     * else some), the next free one, places before those of members that are gone. Returns them by slot.
     */
    Map<Integer, String> seat(Set<String> joiners, BiFunction<Uuid, Integer, String> owner) {
        Map<Long, String> byDigest = new HashMap<>();
        joiners.forEach(member -> byDigest.put(digest(member), member));
        Map<Integer, String> seats = new HashMap<>();
        for (int slot = 1; slot <= digests.size(); slot++) {
            seat(slot, byDigest.get(digests.get(slot - 1)), joiners, seats);
        }
        Map<Integer, Set<String>> holders = new TreeMap<>(Comparator.<Integer, Boolean>comparing(
                slot -> digests.get(slot - 1) != 0).thenComparing(slot -> slot));
        slots.forEach((topic, of) -> IntStream.range(0, of.limit())
                .filter(number -> of.get(number) > 0 && of.get(number) <= digests.size())
                .forEach(number -> holders.computeIfAbsent((int) of.get(number), slot -> new LinkedHashSet<>())
                        .add(owner.apply(topic, number))));
        holders.forEach((slot, of) -> seat(slot, of.size() == 1 ? of.iterator().next() : null, joiners, seats));
        holders.forEach((slot, of) -> of.forEach(member -> seat(slot, member, joiners, seats)));
        holders.forEach((slot, of) -> seat(slot, joiners.stream().findFirst().orElse(null), joiners, seats));
        return seats;
    }

    private static void seat(int slot, String member, Set<String> joiners, Map<Integer, String> seats) {
        if (!seats.containsKey(slot) && joiners.remove(member)) {
            seats.put(slot, member);
        }
    }

    private static long digest(String member) {
        long hash = 0xcbf29ce484222325L; // FNV-1a, 64 bits
        for (byte one : member.getBytes(StandardCharsets.UTF_8)) {
            hash = (hash ^ one & 0xff) * 0x100000001b3L;
        }
        return hash >>> 16;
    }
}
