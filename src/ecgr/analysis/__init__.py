"""What the records say: metrics, statistics and verdicts. No torch, no drawing."""
