"""Arguments that ops of attention and of caches share."""

from __future__ import annotations

from codegen.signature.arguments import Option, Scalar

POOL = (("num_pages", "page_size"), ("page", "token"))
KV_DTYPE = Option(
    "kv_dtype",
    "The format of the cache; by default what its element type and row width say. It is needed where two formats have"
    " rows of as many bytes.",
)
EXTRA_KV_DTYPE = Option(
    "extra_kv_dtype",
    "The format of the second cache; by default what its rows say, and that of the first one where they are alike.",
)
COMPUTE_DTYPE = Option(
    "compute_dtype",
    "``e4m3``, over an e4m3 cache, multiplies in e4m3, to which Q and P are rounded. By default, or with ``exact``,"
    " neither is rounded to 8 bits.",
)
UNIT = "What one unit of an e4m3 element stands for; 1 for other types."
KV_SCALE = Scalar("kv_scale", "float", "finite", 1.0, doc=UNIT)
