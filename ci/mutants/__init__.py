"""Small changes of the sources, which the tests must notice: ``nox -s mutants``."""
