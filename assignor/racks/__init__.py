"""Racks of members and replicas, and the traffic between racks."""
