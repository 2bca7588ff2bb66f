"""The checks of a wheel: each a function of a wheel and its row that yields what is wrong, in words."""
