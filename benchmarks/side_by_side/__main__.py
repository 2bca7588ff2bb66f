"""``python -m benchmarks.side_by_side``."""

import sys

from benchmarks.side_by_side.command import main

if __name__ == "__main__":
    sys.exit(main())
