"""Measurements that the command line prints: a decode against machine and torch, and the overheads of a call."""
