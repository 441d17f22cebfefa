"""The report's figures for a paper."""
