"""What membership and consumer both need of a Kafka client: settings, adapters, events; it joins no group."""
