"""Attention backends for engines that serve models, free of any engine: what they read of one is said in protocols."""
