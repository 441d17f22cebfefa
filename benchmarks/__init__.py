"""Benchmarks with thresholds: ratios measured side by side in one run, so that a slow machine changes none of them.

``make bench`` (``python -m benchmarks``) runs them from a checkout. Each module measures one claim and yields `Row`s.
"""
