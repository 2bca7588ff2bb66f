"""What a measurement becomes: a page, a table, a plot."""
