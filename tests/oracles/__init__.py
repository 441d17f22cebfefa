"""Slow and obvious implementations that the clever ones are held to."""
