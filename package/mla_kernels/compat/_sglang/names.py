"""What the plug-in and the backend of SGLang both say."""

NAME = "mla_kernels"
"""The name of the backend in SGLang's table, and in its command line."""
