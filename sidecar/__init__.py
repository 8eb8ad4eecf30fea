"""The sidecar: measures a consumer group, decides its replica count, and scales it."""
