"""Changes the matrix as a person would: one row at a time, with every other line left as it is."""
