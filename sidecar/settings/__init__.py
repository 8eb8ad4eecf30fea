"""The sidecar's settings: fields, parsing, cross-checks, error messages."""
