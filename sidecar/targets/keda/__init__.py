"""Replica target `keda`: the sidecar as an external scaler, KEDA sets the count that it reports."""
