"""The CPU payload: this folder holds its library and its ``registry.json``."""
