"""Finds a Java runtime and downloads the JARs that Spark and the broker need."""
