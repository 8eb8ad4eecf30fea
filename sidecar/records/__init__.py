"""What an iteration reports, and the records of the decision topic that are made of it."""
