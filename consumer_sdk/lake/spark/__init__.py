"""The gateway to the JVM of the Spark session, its errors, its output and its storage."""
