"""Mutants: small changes of the modules that guard records, each of which a test must notice."""
