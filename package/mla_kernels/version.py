"""The version of the core in use; every payload's must equal it."""

from mla_kernels._launcher import VERSION

__version__ = VERSION
