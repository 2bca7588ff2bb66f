"""The checks of a wheel: each is a function of a wheel and its row that yields what is wrong, in words."""
