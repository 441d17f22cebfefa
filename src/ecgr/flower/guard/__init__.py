"""What stands between the sites' replies and the aggregate."""
