"""Leads a classic group, so that clients that know no plans carry them out."""
