"""Doors: functions with the names, arguments and results of other packages, on top of this one's public functions."""
