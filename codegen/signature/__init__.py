"""What signatures are made of, and what follows from the rows of the ops: conversions, Python and torch."""
