"""The Spark session of a lake: its start, the lake that is opened on it, and the rehearsal of a flush."""
