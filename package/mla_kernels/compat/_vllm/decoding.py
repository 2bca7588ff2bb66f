"""What the backends of every device share: a plan for each step, and the launch of each layer."""

# mypy: disable-error-code="misc"
# (vLLM is not installed where types are checked, so that its classes are of any type)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm import envs
from vllm.model_executor.layers.attention.mla_attention import (
    MLACommonDecodeMetadata,
    MLACommonMetadata,
    QueryLenSupport,
)
from vllm.v1.attention.backend import AttentionCGSupport, MultipleOf

import mla_kernels as mla
from mla_kernels.compat import _capabilities as capabilities
from mla_kernels.compat._vllm.token_lengths import TokenLengths
from mla_kernels.compat._vllm.workspace import Workspace
from mla_kernels.devices.machine import HOST, current_arch
from mla_kernels.errors import UnsupportedError
from mla_kernels.kernels.base import Kernel, Plan

NAME = "MLA_KERNELS"


@dataclass
class DecodeMetadata(MLACommonDecodeMetadata):
    """A step's decodes, the kernel that serves them, and its schedule and scratch memory, which every layer uses.

    Attributes
    ----------
    cu_seqlens_q : tensor or None
        Where the queries of each request begin; None where each has as many.
    token_seq_lens : tensor or None
        How many tokens of this rank each query token sees; None where its request's length says it.
    queries : tuple
        ``(batch, q_len, num_heads, -1)``, the shape in which the kernel sees what has a row for each token and head.
    latents : tuple
        ``(num_tokens, num_heads, kv_lora_rank)``, the shape of a layer's output.
    dtype : torch.dtype
        Of that output.
    """

    kernel: Kernel
    plan: Plan
    workspace: torch.Tensor
    cu_seqlens_q: torch.Tensor | None
    token_seq_lens: torch.Tensor | None
    queries: tuple[int, ...]
    latents: tuple[int, ...]
    dtype: torch.dtype


class Capabilities:
    """What vLLM asks a backend before it has a layer, answered from the installed payloads."""

    @classmethod
    def archs(cls) -> tuple[str, ...]:
        """The archs that the backend may run on."""
        raise NotImplementedError

    @staticmethod
    def get_name() -> str:
        """The name by which layers look the backend up."""
        return NAME

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        """Columns of a row of the cache."""
        return capabilities.head_sizes(cls.archs())

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        """Whether a kernel reads rows of so many columns."""
        return head_size in cls.get_supported_head_sizes()

    @classmethod
    def supports_dtype(cls, dtype: torch.dtype) -> bool:
        """Whether a kernel writes outputs of the type."""
        return dtype in torch_dtypes(cls.archs())

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype: str | None) -> bool:
        """Whether a kernel reads caches of the format."""
        return kv_cache_dtype is None or kv_cache_dtype in capabilities.cache_dtypes(cls.archs())

    @classmethod
    def supports_block_size(cls, block_size: int | None) -> bool:
        """Whether a kernel reads blocks of so many tokens, or blocks that these are made of."""
        sizes = capabilities.block_sizes(cls.archs())
        return block_size is None or any(block_size % size == 0 for size, _ in sizes)

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:
        """The block size where the user names none."""
        return capabilities.preferred_block_size(cls.archs(), default_block_size)

    @classmethod
    def supports_sink(cls) -> bool:
        """Whether decode takes a logit without a value."""
        return capabilities.decode_takes("attn_sink")

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        """Whether a plan can make results independent of the rest of a batch."""
        return capabilities.decode_takes("batch_invariant")

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        """Whether the device may shorten queries: no, the host's numbers plan a step."""
        return False


class Planning:
    """A builder of metadata that plans each step once.

    A CUDA graph reads the buffer of the plan that it was captured with. A plan therefore stays where it is for good,
    and the next step of its shape is planned in place. A shape is the number of requests that a step decodes, which is
    at most ``max_num_seqs`` of the engine, the most new tokens of one, which is at most one more than what the engine
    speculates, and whether all have as many. A plan of ``batch`` requests has ``20 * batch + 24`` bytes on a CPU, at
    most ``16 * batch + 2148`` on an H100, and none on Blackwell. With ``max_num_seqs`` of 256, the plans of all batches
    have 1.1 MiB for each number of new tokens; with 1,024, they have 10.4 MiB. Steps whose requests differ have as many
    again. Under decode context parallelism, a shape of several new tokens also has a buffer of ``TokenLengths``.
    """

    query_len_support: ClassVar[Any] = QueryLenSupport.VARLEN
    """Decodes of one step may have different numbers of new tokens, at most as many as speculative decoding has."""
    _cudagraph_support: ClassVar[Any] = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        # Ranks that share a request's tokens decode several new ones at a time, too.
        several = {"supports_dcp_with_varlen": True}
        super().__init__(kv_cache_spec, layer_names, vllm_config, device, **several)  # type: ignore[call-arg]
        self._layer = vllm_config.compilation_config.static_forward_context[layer_names[0]]
        ranks = int(self.dcp_world_size)  # type: ignore[attr-defined]
        self._heads = int(self.num_heads) * ranks  # type: ignore[attr-defined]
        self._token_lengths: TokenLengths | None = None
        if ranks > 1:
            interleave = vllm_config.parallel_config.cp_kv_cache_interleave_size
            self._token_lengths = TokenLengths(self._layer.impl.dcp_rank, ranks, interleave)
        self._arch = HOST if device.type == "cpu" else current_arch()
        self._ordinal = device.index or 0
        self._workspace = Workspace(device)
        self._plans: dict[tuple[int, int, bool], Plan] = {}
        self._kernels: dict[int, Kernel] = {}
        most = int(self.reorder_batch_threshold or 1)  # type: ignore[attr-defined]
        numbers = {"block_size": kv_cache_spec.block_size, "num_heads": self._heads, "q_len": most}
        require_served(self._layer.impl, self._arch, vllm_config.model_config.dtype, **numbers)
        for q_len in range(1, most + 1):
            self._kernel(q_len)

    def _kernel(self, q_len: int) -> Kernel:
        """The kernel for so many new tokens of each request, loaded so that a graph can capture its first launch."""
        if q_len not in self._kernels:
            impl = self._layer.impl
            dtype = self.model_config.dtype  # type: ignore[attr-defined]
            traits = capabilities.config_of(self._arch, dtype, impl.kv_cache_dtype, impl.head_size, impl.kv_lora_rank)
            numbers = {"page_size": self.kv_cache_spec.block_size, "num_heads": self._heads, "q_len": q_len}  # type: ignore[attr-defined]
            kernel = mla.lookup(op="decode", arch=self._arch, kv_layout="paged", **traits, **numbers)  # type: ignore[arg-type]
            kernel.prepare(self._ordinal)
            self._kernels[q_len] = kernel
        return self._kernels[q_len]

    def _build_decode(  # noqa: PLR0917 (the signature is theirs)
        self,
        block_table_tensor: torch.Tensor,
        seq_lens_device: torch.Tensor,
        max_seq_len: int,
        query_start_loc_cpu: torch.Tensor,
        query_start_loc_device: torch.Tensor,
        num_decode_tokens: int,
        max_query_len: int,
        dcp_tot_seq_lens_device: torch.Tensor | None,
    ) -> DecodeMetadata:
        """Plan a step's decodes, on the device that holds their lengths."""
        batch, q_len = len(seq_lens_device), max_query_len
        if num_decode_tokens != batch * q_len:  # they differ, or prefills of the step are longer than any of them
            q_len = int(query_start_loc_cpu.diff().max())
        q_len = max(q_len, 1)  # of two microbatches, the second may have no token
        ragged = num_decode_tokens != batch * q_len
        kernel, shape = self._kernel(q_len), (batch, q_len, ragged)
        plan = kernel.plan(
            seq_lens_device,
            max_q_len=q_len if ragged else None,
            batch_invariant=bool(envs.VLLM_BATCH_INVARIANT),
            out=self._plans.get(shape),
        )
        self._plans[shape] = plan
        width = block_table_tensor.shape[1]
        extents = {"batch": batch, "q_len": q_len}
        if ragged:
            extents = {"batch": 1, "q_len": batch * q_len, "num_requests": batch, "max_q_len": q_len}
        numbers = {"num_heads": self._heads, "page_size": self.kv_cache_spec.block_size, "table_width": width}  # type: ignore[attr-defined]
        workspace = self._workspace.of(
            (*shape, width, plan.batch_invariant),
            lambda: kernel.workspace_size(
                **extents, **numbers, batch_invariant=plan.batch_invariant, device=self._ordinal
            ),
        )
        return DecodeMetadata(
            block_table=block_table_tensor,
            seq_lens=seq_lens_device,
            dcp_tot_seq_lens=dcp_tot_seq_lens_device,
            kernel=kernel,
            plan=plan,
            workspace=workspace,
            cu_seqlens_q=query_start_loc_device if ragged else None,
            token_seq_lens=self._seen(dcp_tot_seq_lens_device, query_start_loc_device, num_decode_tokens, shape),
            queries=(1, num_decode_tokens, self._heads, -1) if ragged else (batch, q_len, self._heads, -1),
            latents=(num_decode_tokens, self._heads, self._layer.impl.kv_lora_rank),
            dtype=self.model_config.dtype,  # type: ignore[attr-defined]
        )

    def _seen(
        self, seq_lens: torch.Tensor | None, bounds: torch.Tensor, tokens: int, shape: tuple[int, int, bool]
    ) -> torch.Tensor | None:
        """How many tokens of this rank each query token sees; the length of a request says it for its last one."""
        _, q_len, ragged = shape
        if self._token_lengths is None or seq_lens is None or q_len == 1:
            return None
        if ragged:
            return self._token_lengths.of_ragged(seq_lens, bounds, tokens, q_len)
        return self._token_lengths.of_batch(seq_lens, q_len)


class Decoding:
    """A layer's attention over the latent cache."""

    can_return_lse_for_decode: bool = True
    scale: float
    need_to_return_lse_for_decode: bool

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: MLACommonMetadata,
        layer: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Latents [num_tokens, num_heads, kv_lora_rank] of absorbed queries, and their LSE [num_tokens, num_heads].

        The LSE is None unless context parallelism needs it. Queries and cache are read where they are.
        """
        decode = attn_metadata.decode
        assert isinstance(decode, DecodeMetadata)
        shape = decode.queries
        queries: Any
        if isinstance(q, tuple):
            latent, rope = q
            queries = latent.view(*shape)
            if rope.shape[-1]:
                queries = (queries, rope.view(*shape))
            out = torch.empty_like(latent, memory_format=torch.contiguous_format)  # half the time of new_empty
        else:
            queries = q.view(*shape)
            out = q.new_empty(decode.latents, dtype=decode.dtype)
        quantised = kv_c_and_k_pe_cache.dtype == torch.float8_e4m3fn
        lse = None
        if self.need_to_return_lse_for_decode:
            lse = out.new_empty(decode.latents[:2], dtype=torch.float32)
        decode.kernel(
            queries,
            kv_c_and_k_pe_cache,
            decode.block_table,
            decode.seq_lens,
            cu_seqlens_q=decode.cu_seqlens_q,
            token_seq_lens=decode.token_seq_lens,
            plan=decode.plan,
            softmax_scale=self.scale,
            q_scale=layer._q_scale_float if not isinstance(q, tuple) and q.dtype == torch.float8_e4m3fn else 1.0,
            kv_scale=layer._k_scale_float if quantised else 1.0,
            causal=attn_metadata.causal,
            out=out.view(*shape),
            lse=False if lse is None else lse.view(shape[:3]).transpose(1, 2),
            workspace=decode.workspace,
        )
        return out, lse


def require_served(impl: Any, arch: str, dtype: torch.dtype, **numbers: Any) -> None:
    """Refuse, before the first request, a layer that no kernel serves.

    Raises
    ------
    UnsupportedError
        It says what would be served.
    """
    error = capabilities.refusal(
        arch,
        dtype=dtype,
        cache_dtype=impl.kv_cache_dtype,
        head_size=impl.head_size,
        rank=impl.kv_lora_rank,
        **numbers,
    )
    if error is not None:
        raise error


def require_plain(**arguments: object) -> None:
    """Refuse what MLA does not have.

    Raises
    ------
    UnsupportedError
    """
    for name, value in arguments.items():
        if value is not None:
            raise UnsupportedError(name, repr(value), "None: dense MLA has no such thing")


def torch_dtypes(archs: tuple[str, ...]) -> list[torch.dtype]:
    """Element types of models."""
    return [getattr(torch, name) for name in capabilities.dtypes(archs)]


def kernel_block_sizes(archs: tuple[str, ...], kv_cache_spec: Any = None) -> list[Any]:
    """Block sizes as vLLM writes them."""
    sizes = capabilities.block_sizes(archs, getattr(kv_cache_spec, "cache_dtype_str", None))
    return [MultipleOf(size) if multiples else size for size, multiples in sizes]
