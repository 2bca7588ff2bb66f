"""Measures the kernels against the machine and against other packages, and writes the pages of docs/benchmarks."""
