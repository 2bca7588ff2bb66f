"""Other packages that compute the same, and how each is called."""
