"""The drop-in consumer and its data plane on librdkafka."""
