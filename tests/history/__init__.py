"""What happened to records: a history of writes, polls and rows, and the anomalies in it.

`events` has the values, `anomalies` the checker, whose classes are those of Jepsen's Kafka workload.
Faults on real components and the simulation both end in it.
"""
