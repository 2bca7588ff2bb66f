"""What holds for all tests."""

import os

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it in its workers, and then what a command prints is wrapped
