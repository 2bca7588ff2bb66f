"""Payloads: how installed ones are found and read, and a folder for each that ships with the core distribution."""
