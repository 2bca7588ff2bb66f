"""The sm90 payload of mla-kernels: this folder holds its library and its ``registry.json``."""
