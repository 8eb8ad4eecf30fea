"""All of Trimtab in one thread: the product's code on a simulated broker, lake, network and clock.

`green` runs the threads of all processes as coroutines on one simulated clock; `broker` is the
cluster (logs and group coordinator); `network` loses, duplicates and delays messages to it;
`membership` stands in for kafka-python's consumer, `fetching` for librdkafka's, `lake` for the
table format; `worker` and `sidecar` are the two kinds of processes, both running the product's code;
`faults` injects faults; `checks` holds the invariants; `history` combines all for one seed.
"""
