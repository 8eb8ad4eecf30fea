"""The consumer of an event loop, with the methods of aiokafka."""
