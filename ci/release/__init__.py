"""Releasing: checks of wheels and of their evidence, the index, the hosted workflow."""
