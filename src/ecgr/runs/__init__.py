"""What stays on disk: records, checkpoints, single runs and sweeps of them."""
