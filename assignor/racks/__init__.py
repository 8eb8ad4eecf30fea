"""Who is in which rack: where replicas are, what crosses racks, and the least there can be."""
