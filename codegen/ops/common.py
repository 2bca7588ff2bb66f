"""Arguments that ops of attention and of caches share."""

from __future__ import annotations

from codegen.signature.arguments import TOKEN_BYTES, Scalar

FLOATS = "fp32 fp16 bf16"
BYTES = f"[..., {TOKEN_BYTES['fp8_ds_mla']}] for fp8_ds_mla"
POOL = (("num_pages", "page_size"), ("page", "token"))
UNIT = "What one unit of an e4m3 element stands for; 1 for other types."
KV_SCALE = Scalar("kv_scale", "float", "finite", 1.0, doc=UNIT)
