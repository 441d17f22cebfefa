"""What is trained: data, how it is dealt out to clients, and models."""
