"""The command line: parse, call, print. Every command is a few lines over the library."""

from ecgr.cli.app import main

__all__ = ["main"]
