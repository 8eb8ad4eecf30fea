"""Consumers of any client in one group: their programs, a checker over what they print, and the tests."""
