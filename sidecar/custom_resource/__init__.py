"""The Kubernetes custom resource `ConsumerGroupScaler`: a consumer group's settings, state and events."""
