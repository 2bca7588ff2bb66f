"""Formats of caches that other models need, as rows that nobody has a kernel for yet."""

from __future__ import annotations

from codegen import formats
from codegen.schema import MATRIX

NEXT = """
[[format]]
name = "bf16"
latent = { columns = 256, type = "bf16" }
rope = { columns = 32, type = "bf16" }
token_bytes = 576

[[format]]
name = "mxfp4_next"
d_v = 288
latent = { columns = 256, type = "e2m1" }
rope = { columns = 32, type = "bf16" }
scales = { type = "e8m0", group = 32, place = "page", bytes = 16 }
token_bytes = 208
page_multiple = 128
"""


def with_next() -> formats.Formats:
    """The formats of the matrix, and those."""
    return formats.parse((MATRIX / "formats.toml").read_text() + NEXT)
