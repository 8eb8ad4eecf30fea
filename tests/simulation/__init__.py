"""A whole Trimtab in one thread: our own code on a simulated broker, lake, network and clock.

`green` runs the threads of all processes as coroutines on one simulated clock; `broker` is the
cluster (logs and group coordinator); `network` loses, doubles and delays what goes there;
`membership` stands in for kafka-python's consumer, `fetching` for librdkafka's, `lake` for the
table format; `worker` and `sidecar` are the two kinds of processes, both running our real code;
`faults` breaks things; `checks` holds the invariants; `history` ties all together for one seed.
"""
