"""``mla-kernels bench``: how fast decode kernels are on this machine, on random data."""
