"""The version of the installed core distribution; every payload's must equal it."""

from importlib.metadata import version

__version__ = version("mla-kernels")
