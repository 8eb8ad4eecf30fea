"""The decisions: place partitions in open, closed or exact mode, with the reasons of the moves."""
