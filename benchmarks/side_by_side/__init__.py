"""Our kernels and other libraries on the same tensors, in one run and by one method."""
