"""The dense MLA decode of ``sgl_kernel``, with its arguments and results, on any arch that has a decode variant.

``from mla_kernels.compat.sgl_kernel import cutlass_mla_decode, cutlass_mla_get_workspace_size`` replaces the import
from ``sgl_kernel``. It accepts more: any number of heads, page size and element type that the arch accepts.
"""

from __future__ import annotations

from itertools import product

import mla_kernels as mla
from mla_kernels.compat._arguments import Names, require_one_dtype, shape_of
from mla_kernels.errors import InvalidArgumentError, ShapeError, ValueRangeError
from mla_kernels.formats import HEAD_DIM, LATENT, ROPE
from mla_kernels.scalars import count, quoted
from mla_kernels.tensors import Tensor

MOST_HEADS = 128
"""The most heads of a decode that ``cutlass_mla_get_workspace_size`` has room for."""

_TILE = 128
"""Tokens that every table holds a multiple of: the kernels of ``sgl_kernel`` require it."""
_HEADS = tuple(range(16, MOST_HEADS + 1, 16))
"""Heads to size for: kernels tile heads by multiples of 16, and between two of them more heads never need less."""
_PAGE_SIZES = tuple(1 << power for power in range(8))
_NAMES = Names(
    {
        "q[0]": "q_nope",
        "q[1]": "q_pe",
        "q": "q_nope",
        "kv_cache": "kv_c_and_k_pe_cache",
        "block_table": "page_table",
        "softmax_scale": "sm_scale",
        "max_splits": "num_kv_splits",
    }
)


def cutlass_mla_decode(  # noqa: PLR0917 (the signature is theirs)
    q_nope: Tensor,
    q_pe: Tensor,
    kv_c_and_k_pe_cache: Tensor,
    seq_lens: Tensor,
    page_table: Tensor,
    workspace: Tensor,
    sm_scale: float,
    num_kv_splits: int = 1,
) -> Tensor:
    """Attend from one new token of each request to its paged cache.

    Parameters
    ----------
    q_nope : [batch, num_heads, 512], fp16 bf16 fp32
    q_pe : [batch, num_heads, 64]
    kv_c_and_k_pe_cache : [num_pages, page_size, 576]
        Of the type of the queries.
    seq_lens : int32 [batch]
        Tokens in the cache of each request, the new one included.
    page_table : int32 [batch, table_width]
    workspace : uint8
        At least ``cutlass_mla_get_workspace_size(...)`` bytes.
    sm_scale : float
        Of the logits.
    num_kv_splits : int
        The most parts that a request is split into; below 1, the kernel chooses.

    Returns
    -------
    [batch, num_heads, 512]
        In the type of the queries; 0 for an empty request.

    Raises
    ------
    InvalidArgumentError
        An argument was refused, by its name here: ``WorkspaceError`` where the workspace is too small.
    VariantNotFoundError
        The arch has no decode variant for the arguments.
    """
    batch, num_heads, _ = shape_of("q_nope", q_nope, "batch", "num_heads", LATENT)
    if shape_of("q_pe", q_pe, "batch", "num_heads", ROPE)[:2] != (batch, num_heads):
        raise ShapeError("q_pe", f"shape {list(q_pe.shape)}", f"[{batch}, {num_heads}, {ROPE}], as q_nope has")
    shape_of("kv_c_and_k_pe_cache", kv_c_and_k_pe_cache, "num_pages", "page_size", HEAD_DIM)
    require_one_dtype(q_nope=q_nope, q_pe=q_pe, kv_c_and_k_pe_cache=kv_c_and_k_pe_cache)
    try:
        out, _ = mla.decode(
            (q_nope[:, None], q_pe[:, None]), kv_c_and_k_pe_cache, page_table, seq_lens, softmax_scale=sm_scale,
            max_splits=_splits(num_kv_splits), lse=False, workspace=workspace,
        )  # fmt: skip
    except InvalidArgumentError as error:
        raise _NAMES.renamed(error) from None
    return out[:, 0]


def cutlass_mla_get_workspace_size(
    max_seq_len: int, num_batches: int, sm_count: int = 0, num_kv_splits: int = 1
) -> int:
    """Bytes of workspace for any decode of 1 to 128 heads on the current arch; fewer heads may need more bytes.

    Parameters
    ----------
    max_seq_len : int
        Tokens in the cache of a request at most.
    num_batches : int
        Requests.
    sm_count : int
        Has no effect: kernels ask the device.
    num_kv_splits : int
        That of the decode.

    Returns
    -------
    int
        The largest need of the arch's variants, over the numbers of heads and the page sizes that they accept.

    Raises
    ------
    ValueRangeError
        A number is not positive.
    VariantNotFoundError
        The arch has no decode variant.
    """
    for name, number in {"max_seq_len": max_seq_len, "num_batches": num_batches}.items():
        count(name, number, least=1)
    splits = _splits(num_kv_splits)
    tokens = -(-max_seq_len // _TILE) * _TILE
    arch = mla.lookup(op="decode", kv_layout="paged", num_heads=MOST_HEADS, q_len=1).variant.arch
    sizes = [0]
    for variant in mla.variants(op="decode", arch=arch, kv_layout="paged", q_len=1):
        if variant.baked["q_dtype"] != variant.baked["kv_dtype"]:
            continue
        kernel = mla.lookup(op="decode", arch=arch, kv_layout="paged", **variant.baked)  # type: ignore[arg-type]
        heads = [number for number in _HEADS if number in variant.accepts["num_heads"]]
        pages = [size for size in _PAGE_SIZES if size in variant.accepts["page_size"]]
        for num_heads, page_size in product(heads, pages):
            size = kernel.workspace_size(
                batch=num_batches, q_len=1, num_heads=num_heads, max_splits=splits,
                page_size=page_size, table_width=tokens // page_size,
            )  # fmt: skip
            sizes.append(size)
    return max(sizes)


def _splits(num_kv_splits: object) -> int:
    if not isinstance(num_kv_splits, int):
        raise ValueRangeError("num_kv_splits", quoted(num_kv_splits), "an integer; below 1, the kernel chooses")
    return max(num_kv_splits, 0)
