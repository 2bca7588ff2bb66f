"""Turns the matrix of kernel variants into sources and a registry; needs no torch and no compiler."""
