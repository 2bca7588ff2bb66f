"""Build, check and publish wheels; called by nox only."""
