"""PostgreSQL's changes through Debezium's engine into a topic."""
