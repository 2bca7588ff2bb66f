"""Calls written to files, with all that they read and gave, and launched again from there."""
