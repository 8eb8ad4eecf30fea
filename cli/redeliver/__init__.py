"""`trimtab redeliver`: runs the redelivery tracker of a kmq queue."""
