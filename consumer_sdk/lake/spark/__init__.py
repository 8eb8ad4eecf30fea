"""The Spark session: its settings, its JVM errors, its warm-up."""
