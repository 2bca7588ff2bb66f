"""The formats of KV caches. Generated; see codegen/matrix/formats.toml."""

from __future__ import annotations

from typing import NamedTuple

LATENT = 512
ROPE = 64


class CacheFormat(NamedTuple):
    """How a token lies in a KV cache: widths in columns, sizes and offsets in bytes from the start of a row."""

    name: str
    d_qk: int
    d_v: int
    latent: int
    latent_type: str
    rope: int
    rope_type: str
    scale_place: str
    scale_type: str
    scale_group: int
    scale_bytes: int
    scale_offset: int
    rope_offset: int
    row_bytes: int
    token_bytes: int
    page_multiple: int
    is_bytes: bool


FORMATS = (
    CacheFormat(
        name="fp32",
        d_qk=576,
        d_v=512,
        latent=512,
        latent_type="fp32",
        rope=64,
        rope_type="fp32",
        scale_place="none",
        scale_type="fp32",
        scale_group=0,
        scale_bytes=0,
        scale_offset=0,
        rope_offset=2048,
        row_bytes=2304,
        token_bytes=2304,
        page_multiple=1,
        is_bytes=False,
    ),
    CacheFormat(
        name="fp16",
        d_qk=576,
        d_v=512,
        latent=512,
        latent_type="fp16",
        rope=64,
        rope_type="fp16",
        scale_place="none",
        scale_type="fp32",
        scale_group=0,
        scale_bytes=0,
        scale_offset=0,
        rope_offset=1024,
        row_bytes=1152,
        token_bytes=1152,
        page_multiple=1,
        is_bytes=False,
    ),
    CacheFormat(
        name="bf16",
        d_qk=576,
        d_v=512,
        latent=512,
        latent_type="bf16",
        rope=64,
        rope_type="bf16",
        scale_place="none",
        scale_type="fp32",
        scale_group=0,
        scale_bytes=0,
        scale_offset=0,
        rope_offset=1024,
        row_bytes=1152,
        token_bytes=1152,
        page_multiple=1,
        is_bytes=False,
    ),
    CacheFormat(
        name="e4m3",
        d_qk=576,
        d_v=512,
        latent=512,
        latent_type="e4m3",
        rope=64,
        rope_type="e4m3",
        scale_place="tensor",
        scale_type="fp32",
        scale_group=0,
        scale_bytes=0,
        scale_offset=0,
        rope_offset=512,
        row_bytes=576,
        token_bytes=576,
        page_multiple=1,
        is_bytes=False,
    ),
    CacheFormat(
        name="fp8_ds_mla",
        d_qk=576,
        d_v=512,
        latent=512,
        latent_type="e4m3",
        rope=64,
        rope_type="bf16",
        scale_place="row",
        scale_type="fp32",
        scale_group=128,
        scale_bytes=16,
        scale_offset=512,
        rope_offset=528,
        row_bytes=656,
        token_bytes=656,
        page_multiple=1,
        is_bytes=True,
    ),
)
