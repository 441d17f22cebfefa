"""Both Flower apps and what passes between them."""
