"""The command line, and what it examines."""
