"""Telemetry by OpenTelemetry; all modules but `export` need an extra, and are imported once it is on."""
