"""Replica target `kubernetes`: the pods of a Deployment or StatefulSet."""
