"""The payloads that ship inside the core distribution, one folder each."""
