"""Where replicas run: adapters behind `ReplicaTarget`."""
