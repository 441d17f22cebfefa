"""From finished runs to an answer: statistics of paired runs, and the ways to show them.

Reads records only: nothing here needs torch, a model or a data set.
"""
