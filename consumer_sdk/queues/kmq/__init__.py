"""The queue kind `kmq`: a markers topic and a redelivery tracker on any broker."""
