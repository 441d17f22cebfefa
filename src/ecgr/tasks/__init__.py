"""What is trained: data, how it is partitioned over clients, and models."""
