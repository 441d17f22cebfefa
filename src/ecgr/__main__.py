"""``python -m ecgr``: the command line, where its script is not on the path."""

from ecgr.cli import main

if __name__ == "__main__":
    main()
