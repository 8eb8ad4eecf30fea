package io.trimtab;

/** The same under the name of Kafka's "uniform", for clients that always name that one, as franz-go does. */
public final class PlannedUniformAssignor extends PlannedAssignor {
    @Override
    public String name() {
        return "uniform";
    }
}
