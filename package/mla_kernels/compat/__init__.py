"""Adapters: functions with the names, arguments and results of other packages, which call this one's functions."""
