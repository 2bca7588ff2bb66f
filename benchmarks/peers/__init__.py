"""Other packages that compute the same: measured in the same run, or figures of another."""
