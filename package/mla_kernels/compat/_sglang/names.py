"""What the plug-in and the backend of SGLang both say."""

NAME = "mla_kernels"
"""The name of the backend in SGLang's table, and in its command line."""

VARIABLE = "MLA_KERNELS_SGLANG_OVERRIDE"
"""The environment variable that lists kernels of SGLang's DSA backend to replace, with commas between them."""

INSTEAD = {"flashmla_sparse": "_forward_flashmla_sparse", "flashmla_kv": "_forward_flashmla_kv"}
"""What it may list, by the names of ``--dsa-prefill-backend`` and ``--dsa-decode-backend``: the method of each."""
