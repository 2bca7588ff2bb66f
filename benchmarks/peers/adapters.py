"""Other kernels for the same problem, measured beside ours where they can be imported.

A peer plans its step when it is prepared, as we do, and launches one problem when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from mla_kernels.diagnostics.bench.problems import SCALE
from mla_kernels.diagnostics.bench.tensors import Tensors
from mla_kernels.formats import LATENT

from benchmarks.ops.sparse_tensors import SparseDecodeTensors, SparsePrefillTensors

Launch = Callable[[int], torch.Tensor]
"""Launches problem ``i`` of the tensors and returns its output, of the shape of ``tensors.out[i]``."""

_SCRATCH = 128 << 20
_FP8_EXTENSION = "_flashmla_extension_C.abi3.so"


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's name, what is imported, its distribution, and what prepares it for the problems of a cell."""

    name: str
    module: str
    distribution: str
    prepare: Callable[[Any, Any], Launch]

    @property
    def installed(self) -> bool:
        """Whether there is anything to import; nothing is imported."""
        try:
            return find_spec(self.module) is not None
        except (ImportError, ValueError):
            return False


def flash_mla(module: Any, tensors: Tensors) -> Launch:
    """FlashMLA; recent versions plan in the first launch and keep the plan in the metadata."""
    cell = tensors.cell
    cache = tensors.kv_cache.unsqueeze(2)
    metadata, splits = module.get_mla_metadata(tensors.seq_lens, cell.q_len * cell.num_heads, 1)

    def launch(i: int) -> torch.Tensor:
        out: torch.Tensor
        out, _ = module.flash_mla_with_kvcache(
            tensors.q[i], cache, tensors.block_table[i], tensors.seq_lens, LATENT, metadata, splits,
            softmax_scale=SCALE, causal=True,
        )  # fmt: skip
        return out

    return launch


def flash_mla_fp8(module: Any, tensors: Tensors) -> Launch:
    """FlashMLA's fp8 arithmetic, an extension that vLLM ships in the folder of its build.

    The kernel takes Q in e4m3. Q is converted here, once, and no time has the conversion in it: this favours the peer.
    """
    torch_ops: Any = torch.ops  # torch does not type these
    torch_ops.load_library(str(Path(module.__file__).with_name(_FP8_EXTENSION)))
    ops = torch_ops._flashmla_extension_C
    cell = tensors.cell
    q, cache = tensors.q.to(torch.float8_e4m3fn), tensors.kv_cache.unsqueeze(2)
    descale = torch.ones(1, device=q.device)
    metadata, splits = ops.get_mla_decoding_metadata_dense_fp8(tensors.seq_lens, cell.q_len * cell.num_heads, 1)

    def launch(i: int) -> torch.Tensor:
        out: torch.Tensor
        out, _ = ops.fwd_kvcache_mla_fp8(
            q[i], cache, LATENT, tensors.seq_lens, tensors.block_table[i], SCALE, True, metadata, splits,
            descale, descale,
        )  # fmt: skip
        return out

    return launch


def flashinfer(module: Any, tensors: Tensors) -> Launch:
    """FlashInfer; a wrapper holds the page list of its problem, so each problem has one."""
    cell = tensors.cell
    scratch = torch.empty(_SCRATCH, dtype=torch.int8, device=tensors.q.device)
    pages = (tensors.seq_lens + cell.page_size - 1) // cell.page_size
    used = torch.arange(tensors.block_table.shape[2], device=pages.device) < pages[:, None]
    starts = torch.nn.functional.pad(pages.cumsum(0, dtype=torch.int32), (1, 0))
    tokens = torch.arange(cell.batch + 1, dtype=torch.int32, device=pages.device) * cell.q_len
    latent, rope = _parts(tensors.kv_cache)
    q_latent, q_rope = _parts(tensors.q.flatten(1, 2))
    out = torch.empty_like(tensors.out).flatten(1, 2)
    lse = torch.empty(out.shape[:-1], device=out.device)
    wrappers = []
    for table in tensors.block_table:
        wrapper = module.BatchMLAPagedAttentionWrapper(scratch)
        wrapper.plan(
            tokens, starts, table[used], tensors.seq_lens, cell.num_heads, LATENT, rope.shape[-1], cell.page_size,
            True, SCALE, out.dtype, latent.dtype,
        )  # fmt: skip
        wrappers.append(wrapper)

    def launch(i: int) -> torch.Tensor:
        wrappers[i].run(q_latent[i], q_rope[i], latent, rope, out=out[i], lse=lse[i], return_lse=True)
        return out[i].view(tensors.out[i].shape)

    return launch


def flash_attention(module: Any, tensors: Tensors) -> Launch:
    """FlashAttention 3: the rope is Q and K, the latent a second Q and V."""
    cell = tensors.cell
    latent, rope = _parts(tensors.kv_cache.unsqueeze(2))
    q_latent, q_rope = _parts(tensors.q)
    metadata = module.get_scheduler_metadata(
        cell.batch, cell.q_len, tensors.block_table.shape[2] * cell.page_size, cell.num_heads, 1, 64, tensors.seq_lens,
        qkv_dtype=tensors.q.dtype, headdim_v=LATENT, page_size=cell.page_size, causal=True,
    )  # fmt: skip

    def launch(i: int) -> torch.Tensor:
        out: torch.Tensor = module.flash_attn_with_kvcache(
            q_rope[i], rope, latent, qv=q_latent[i], cache_seqlens=tensors.seq_lens, page_table=tensors.block_table[i],
            softmax_scale=SCALE, causal=True, scheduler_metadata=metadata,
        )  # fmt: skip
        return out

    return launch


def flash_mla_sparse_decode(module: Any, tensors: SparseDecodeTensors) -> Launch:
    """FlashMLA over bytes; the metadata is made by the first launch.

    It takes 64 or 128 heads: queries of fewer are padded before, as an engine would have them padded.
    """
    cell, caches = tensors.cell, [tensors.kv_cache.unsqueeze(2)]
    queries = torch.nn.functional.pad(tensors.q, (0, 0, 0, -cell.num_heads % 64))
    indices = [tensors.indices]
    if cell.window:
        caches.insert(0, tensors.window_cache.unsqueeze(2))
        indices.insert(0, tensors.window_indices)
    metadata, _ = module.get_mla_metadata()

    def launch(i: int) -> torch.Tensor:
        extra = {"extra_k_cache": caches[1], "extra_indices_in_kvcache": indices[1][i]} if cell.window else {}
        out: torch.Tensor
        out, _ = module.flash_mla_with_kvcache(
            queries[i], caches[0], None, None, LATENT, metadata, None, softmax_scale=SCALE, is_fp8_kvcache=True,
            indices=indices[0][i], **extra,
        )  # fmt: skip
        return out[:, :, : cell.num_heads]

    return launch


def flash_mla_sparse_prefill(module: Any, tensors: SparsePrefillTensors) -> Launch:
    """FlashMLA over bf16 rows.

    It takes 64 or 128 heads, and some builds of it 8, 16 or 32: queries of fewer are padded before if it refuses them.
    """
    cell = tensors.cell

    def attend(q: torch.Tensor, i: int) -> torch.Tensor:
        indices = tensors.indices[i].unsqueeze(1)
        out: torch.Tensor = module.flash_mla_sparse_fwd(q, tensors.kv[i].unsqueeze(1), indices, SCALE)[0]
        return out

    queries = tensors.q
    try:
        attend(queries[0], 0)
    except RuntimeError:
        queries = torch.nn.functional.pad(queries, (0, 0, 0, -cell.num_heads % 64))
    return lambda i: attend(queries[i], i)[:, : cell.num_heads]


def sglang_q8kv8(module: Any, tensors: SparsePrefillTensors) -> Launch:
    """SGLang's sparse prefill in fp8 arithmetic, which takes Q and rows in e4m3 with a scale of each tensor.

    Both are rounded here, once, with the scale that makes the greatest number that of e4m3, and queries are padded to
    64 heads. No time has that in it: this favours the peer.
    """
    heads = tensors.cell.num_heads
    queries, q_scale = _in_e4m3(torch.nn.functional.pad(tensors.q, (0, 0, 0, -heads % 64)))
    rows, kv_scale = _in_e4m3(tensors.kv)

    def launch(i: int) -> torch.Tensor:
        out: torch.Tensor = module.sparse_mla_q8kv8_prefill_fwd(
            queries[i], rows[i].unsqueeze(1), tensors.indices[i].unsqueeze(1), SCALE, q_scale, kv_scale
        )[0]
        return out[:, :heads]

    return launch


def _in_e4m3(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers over a scale, in e4m3, and the scale, float32 [1]."""
    scale = numbers.abs().max().float().view(1) / torch.finfo(torch.float8_e4m3fn).max
    return (numbers / scale.to(numbers.dtype)).to(torch.float8_e4m3fn), scale.to(numbers.dtype).float()


FP8_DECODE_PEERS = (Peer("FlashMLA", "flash_mla", "flash_mla", flash_mla_fp8),)
SPARSE_DECODE_PEERS = (Peer("FlashMLA", "flash_mla", "flash_mla", flash_mla_sparse_decode),)
SPARSE_PREFILL_PEERS = (
    Peer("FlashMLA", "flash_mla", "flash_mla", flash_mla_sparse_prefill),
    Peer("SGLang Q8KV8", "sglang.kernels.ops.attention.sparse_mla_q8kv8_prefill_sm90", "sglang", sglang_q8kv8),
)
PEERS = (
    Peer("FlashMLA", "flash_mla", "flash_mla", flash_mla),
    Peer("FlashInfer", "flashinfer.mla", "flashinfer-python", flashinfer),
    Peer("FA3", "flash_attn_interface", "flash_attn_3", flash_attention),
)


def _parts(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the latent and the rope."""
    return rows[..., :LATENT], rows[..., LATENT:]


def version_of(peer: Peer, module: ModuleType) -> str:
    """The version of a peer's distribution, or else the one that its module states."""
    try:
        return version(peer.distribution)
    except PackageNotFoundError:
        return stated_version(module)


def stated_version(module: ModuleType) -> str:
    """The version that a module states, or ``unknown``."""
    return str(getattr(module, "__version__", "unknown"))


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """The norm of the difference over the norm of what is wanted."""
    return float((got.double() - want.double()).norm() / want.double().norm())
