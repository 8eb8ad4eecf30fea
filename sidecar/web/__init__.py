"""The web server and the operator's page: history of the group, its event stream, the files that draw it."""
