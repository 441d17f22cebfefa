"""One round: clients train, the server aggregates and evaluates."""
