"""Releases wheels: checks them and their evidence, writes an index of them and the workflow that publishes them."""
