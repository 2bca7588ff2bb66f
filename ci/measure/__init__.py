"""Measures libraries and wheels: their machine code, and what they cost to build."""
