"""What a user may say: an experiment's sections, their tables and presets."""
