"""The ops in the order of the C ABI, what a call answers, and the hash by which both sides know that they agree.

From the rows in `codegen/ops/` come the problem structs, the launcher's tables and stub, the conversions between
problems, the kernels that Python launches, its public functions, and torch's schemas.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from codegen.ops.attention import DECODE, SPARSE_DECODE, SPARSE_PREFILL
from codegen.ops.caches import GATHER_KV, MERGE_STATES, STORE_KV, TO_GLOBAL_INDICES
from codegen.signature.arguments import FORMATS, Op

STATUS = (
    "ok",
    "dtype",
    "device",
    "shape",
    "stride",
    "alignment",
    "range",
    "workspace",
    "unsupported",
    "internal",
)
"""What a call across the ABI answers; every code but ``ok`` has a message in ``mla_last_error``."""

OPS: tuple[Op, ...] = (
    DECODE,
    SPARSE_DECODE,
    SPARSE_PREFILL,
    MERGE_STATES,
    STORE_KV,
    GATHER_KV,
    TO_GLOBAL_INDICES,
)
OP = {op.name: op for op in OPS}


def abi_hash() -> str:
    """Sixteen hex digits over everything that crosses the boundary: statuses, ops, arguments, fields, cache formats."""
    listing = [STATUS, [(_contract(op), [asdict(field) for field in op.fields]) for op in OPS], FORMATS]
    return hashlib.sha256(json.dumps(listing, sort_keys=True).encode()).hexdigest()[:16]


def _contract(op: Op) -> dict[str, object]:
    """What both sides of the boundary must agree on."""
    tensor = ("name", "dtype", "dims", "strides", "row", "optional", "written")
    scalar = ("name", "ctype", "check", "default")
    return {
        "name": op.name,
        "traits": op.traits,
        "tensors": [{name: getattr(one, name) for name in tensor} for one in op.tensors],
        "scalars": [{name: getattr(one, name) for name in scalar} for one in op.scalars],
    }
