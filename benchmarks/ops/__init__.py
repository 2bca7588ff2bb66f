"""How the cells of each op are measured, on a CPU and on CUDA."""
