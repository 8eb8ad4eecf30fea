"""OpenTelemetry's collector, built from its modules, between Trimtab and the tests' receiver."""
