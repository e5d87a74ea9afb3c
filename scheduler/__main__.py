"""`python -m scheduler` is the same program as `scheduler`."""

import sys

from scheduler.cli import main

if __name__ == "__main__":
    sys.exit(main())
