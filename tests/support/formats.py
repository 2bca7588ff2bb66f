"""Formats of caches that the next models need, as rows that nobody has a kernel for yet."""

from __future__ import annotations

from codegen import formats
from codegen.schema import MATRIX

NEXT = """
[[format]]
name = "bf16"
latent = { columns = 512, type = "bf16" }
token_bytes = 1024

[[format]]
name = "bf16"
latent = { columns = 256, type = "bf16" }
rope = { columns = 64, type = "bf16" }
token_bytes = 640

[[format]]
name = "fp8_ds_v4"
d_v = 512
latent = { columns = 448, type = "e4m3" }
rope = { columns = 64, type = "bf16" }
scales = { type = "e8m0", group = 64, place = "page", bytes = 8 }
token_bytes = 584
page_multiple = 576

[[format]]
name = "fp8_ds_v41"
latent = { columns = 512, type = "e4m3" }
scales = { type = "e8m0", group = 32, place = "row" }
token_bytes = 528

[[format]]
name = "fp4_ds_v41"
latent = { columns = 512, type = "e2m1" }
scales = { type = "e4m3", group = 16, place = "row" }
token_bytes = 288
"""


def with_next() -> formats.Formats:
    """The formats of the matrix, and those."""
    return formats.parse((MATRIX / "formats.toml").read_text() + NEXT)
