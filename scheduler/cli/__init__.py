"""The command line: `scheduler COMMAND`."""

from scheduler.cli.main import main

__all__ = ["main"]
