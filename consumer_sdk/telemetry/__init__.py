"""Spans of consumers: `consumer_spans` has the interface, which does nothing while telemetry is off."""
