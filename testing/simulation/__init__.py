"""Consumers of a group in one thread: the SDK's code on a simulated broker, network and clock.

`green` runs the threads of all processes as coroutines on one simulated clock; `broker` is the
cluster (logs and group coordinator); `network` loses, duplicates and delays messages to it;
`membership` stands in for kafka-python's consumer, `fetching` for librdkafka's; `host` is what a process
reaches; `seams` puts them into the SDK; `faults` are those of a process and its connection;
`group_history` combines all for one seed.
"""
