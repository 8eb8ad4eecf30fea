package io.trimtab;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.BiFunction;
import java.util.zip.InflaterInputStream;
import org.apache.kafka.common.Uuid;

/**
 * The slot of each partition, and the members of the slots. {@code sidecar/pilot/plan_format.py} describes the text.
 *
 * @param digests start of SHA-256 of the member id in slot 1, 2, ...; zeros for a place, which a joiner takes
 * @param slots slot of partition 0, 1, ... by topic id; 0 where the plan leaves the partition open
 */
record Plan(List<ByteBuffer> digests, Map<Uuid, CharBuffer> slots) {
    static final String PREFIX = "trimtab1:";
    private static final int KEY_LENGTH = PREFIX.length() + 2 * 20; // epoch and revision, padded: higher sorts later
    private static final int HEADER_LENGTH = KEY_LENGTH + 4; // number of the piece
    private static final int MAX_BYTES = 8 << 20; // a short text may inflate to gigabytes
    private static final int DIGEST_BYTES = 6;
    private static final ByteBuffer PLACE = ByteBuffer.allocate(DIGEST_BYTES);

    /** Returns the highest plan of which all pieces are there and readable, else an empty one. */
    static Plan read(Collection<String> rackIds) {
        SortedMap<String, SortedMap<String, String>> plans = new TreeMap<>(Collections.reverseOrder());
        for (String rackId : rackIds) {
            if (rackId.startsWith(PREFIX) && rackId.length() > HEADER_LENGTH) {
                plans.computeIfAbsent(rackId.substring(0, KEY_LENGTH), key -> new TreeMap<>())
                        .put(rackId.substring(KEY_LENGTH, HEADER_LENGTH), rackId.substring(HEADER_LENGTH));
            }
        }
        for (SortedMap<String, String> pieces : plans.values()) {
            try {
                return decode(String.join("", pieces.values())); // deflate's checksum tells if one is missing
            } catch (IOException | RuntimeException unreadable) {
                // whoever may join the group can send one: the next plan counts
            }
        }
        return new Plan(List.of(), Map.of());
    }

    private static Plan decode(String text) throws IOException {
        byte[] deflated = Base64.getDecoder().decode(text);
        ByteBuffer body = ByteBuffer.wrap(
                new InflaterInputStream(new ByteArrayInputStream(deflated)).readNBytes(MAX_BYTES));
        List<ByteBuffer> digests = new ArrayList<>();
        for (int left = body.getChar(); left > 0; left--) {
            digests.add(take(body, DIGEST_BYTES));
        }
        Map<Uuid, CharBuffer> slots = new HashMap<>();
        while (body.hasRemaining()) {
            Uuid topic = new Uuid(body.getLong(), body.getLong());
            slots.put(topic, take(body, Math.multiplyExact(body.getInt(), Character.BYTES)).asCharBuffer());
        }
        return new Plan(digests, slots);
    }

    private static ByteBuffer take(ByteBuffer body, int bytes) {
        ByteBuffer taken = body.slice(body.position(), bytes);
        body.position(body.position() + bytes);
        return taken;
    }

    /**
     * Returns the member in each slot: the planned one; else a joiner that has partitions of the slot; else the next
     * joiner, for places first, then for members that are gone.
     */
    Map<Integer, String> seat(Collection<String> members, BiFunction<Uuid, Integer, String> owner) {
        Map<ByteBuffer, String> byDigest = new HashMap<>();
        members.forEach(member -> byDigest.put(digest(member), member));
        Map<Integer, String> seats = new HashMap<>();
        Set<String> joiners = new LinkedHashSet<>(members);
        for (int slot = 1; slot <= digests.size(); slot++) {
            String member = byDigest.get(digests.get(slot - 1));
            if (joiners.remove(member)) {
                seats.put(slot, member);
            }
        }
        SortedSet<Integer> free = new TreeSet<>(Comparator.<Integer, Boolean>comparing(
                slot -> !digests.get(slot - 1).equals(PLACE)).thenComparing(slot -> slot));
        slots.forEach((topic, of) -> {
            for (int number = 0; number < of.limit(); number++) {
                int slot = of.get(number);
                String member = owner.apply(topic, number);
                if (slot > 0 && slot <= digests.size() && !seats.containsKey(slot)) {
                    free.add(slot);
                    if (joiners.remove(member)) {
                        seats.put(slot, member);
                    }
                }
            }
        });
        free.removeAll(seats.keySet());
        Iterator<String> next = joiners.iterator();
        free.stream().takeWhile(slot -> next.hasNext()).forEach(slot -> seats.put(slot, next.next()));
        return seats;
    }

    /** Returns the slot of a partition; 0 if the plan leaves it open. */
    int slot(Uuid topic, int partition) {
        CharBuffer known = slots.get(topic);
        return known == null || partition >= known.limit() ? 0 : known.get(partition);
    }

    private static ByteBuffer digest(String member) {
        try {
            byte[] sha = MessageDigest.getInstance("SHA-256").digest(member.getBytes(StandardCharsets.UTF_8));
            return ByteBuffer.wrap(sha, 0, DIGEST_BYTES);
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error); // every Java has SHA-256
        }
    }
}
