"""The CUDA kernels on a GPU: what tests/kernels cannot ask of a CPU, and equality with the CPU payload."""
