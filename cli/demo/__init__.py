"""`trimtab demo`: runs the whole path on real parts and verifies the result."""
