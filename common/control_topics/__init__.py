"""The values in the control topics, their codecs and the topics' names."""
