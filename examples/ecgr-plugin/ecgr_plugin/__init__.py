"""Parts of one's own for ecgr: each module is one entry of a table."""
