"""The operator's page: history of the group, its event stream, and the static files that draw it."""
