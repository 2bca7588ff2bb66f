"""One layer's attention: absorb W_UK, write the cache, translate indices, attend, project by W_UV."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

import mla_kernels as mla
from mla_kernels.compat.flashmla_sparse.metadata import FlashMLASparseMetadata
from mla_kernels.errors import UnsupportedError, ValueRangeError
from mla_kernels.formats import HEAD_DIM, LATENT, ROPE
from mla_kernels.tensors import Packed, first

CACHE_DTYPES = ("auto", "bfloat16", "fp8_ds_mla")


class FlashMLASparseImpl:
    """Attends from new tokens to those that the indexer selected; nothing is padded, whatever the number of heads.

    Parameters
    ----------
    num_heads : int
        1 to 128: what every sparse variant accepts.
    head_size : int
        576.
    scale : float
        Of the logits.
    num_kv_heads : int
        1.
    alibi_slopes, sliding_window, logits_soft_cap, kv_sharing_target_layer_name
        None.
    kv_cache_dtype : str
        ``auto`` or ``bfloat16``, or ``fp8_ds_mla``.
    attn_type : str
        ``decoder``.
    topk_indice_buffer : int32 [max_num_batched_tokens, topk], optional
        Where the indexer writes positions within requests; by default the indexer's ``topk_indices_buffer``.
    indexer : object, optional
    kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim : int
        512, any, 64 and any.
    kv_b_proj : callable
        A linear layer without bias, ``[..., 512]`` to ``[..., num_heads * (qk_nope_head_dim + v_head_dim)]``, whose
        ``weight`` tells the device. A tuple that it returns counts by its first element.
    q_lora_rank, qk_head_dim
        Have no effect.

    Raises
    ------
    UnsupportedError, ValueRangeError
        An argument has another value.
    """

    def __init__(  # noqa: PLR0917 (the signature is theirs)
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None,
        attn_type: str,
        kv_sharing_target_layer_name: str | None,
        topk_indice_buffer: torch.Tensor | None = None,
        indexer: Any = None,
        *,
        kv_lora_rank: int,
        qk_nope_head_dim: int,
        qk_rope_head_dim: int,
        v_head_dim: int,
        kv_b_proj: Any,
        q_lora_rank: int | None = None,
        qk_head_dim: int | None = None,
    ) -> None:
        absent = {
            "alibi_slopes": alibi_slopes,
            "sliding_window": sliding_window,
            "logits_soft_cap": logits_soft_cap,
            "kv_sharing_target_layer_name": kv_sharing_target_layer_name,
        }
        for name, value in absent.items():
            if value is not None:
                raise UnsupportedError(name, repr(value), "None: MLA has no such thing")
        fixed = {
            "head_size": (head_size, HEAD_DIM),
            "num_kv_heads": (num_kv_heads, 1),
            "kv_lora_rank": (kv_lora_rank, LATENT),
            "qk_rope_head_dim": (qk_rope_head_dim, ROPE),
            "attn_type": (getattr(attn_type, "value", attn_type), "decoder"),
        }
        for name, (got, want) in fixed.items():
            if got != want:
                raise ValueRangeError(name, repr(got), repr(want))
        if kv_cache_dtype not in CACHE_DTYPES:
            raise UnsupportedError("kv_cache_dtype", repr(kv_cache_dtype), " or ".join(map(repr, CACHE_DTYPES)))
        if indexer is None and topk_indice_buffer is None:
            raise UnsupportedError("indexer", "None", "an indexer, or its buffer as topk_indice_buffer")
        self.num_heads = num_heads
        self.head_size = head_size
        self.softmax_scale = float(scale)
        self.kv_cache_dtype = kv_cache_dtype
        self.qk_nope_head_dim = qk_nope_head_dim
        self.qk_rope_head_dim = qk_rope_head_dim
        self.v_head_dim = v_head_dim
        self.kv_b_proj = kv_b_proj
        self._indexer = indexer
        self._topk_indices_buffer = topk_indice_buffer
        self.W_UK_T: torch.Tensor
        self.W_UV: torch.Tensor

    @property
    def topk_indices_buffer(self) -> torch.Tensor:
        """Positions within requests, int32 [max_num_batched_tokens, topk]; an indexer may change its buffer."""
        buffer = self._topk_indices_buffer if self._indexer is None else self._indexer.topk_indices_buffer
        return cast(torch.Tensor, buffer)

    @topk_indices_buffer.setter
    def topk_indices_buffer(self, buffer: torch.Tensor) -> None:
        self._indexer, self._topk_indices_buffer = None, buffer

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        """Part ``kv_b_proj`` into ``W_UK_T`` [heads, nope, 512] and ``W_UV`` [heads, 512, v], in ``act_dtype``.

        The weight is what the layer makes of unit vectors, so that a quantised layer dequantises itself.
        """
        units = torch.eye(LATENT, dtype=act_dtype, device=self.kv_b_proj.weight.device)
        made = self.kv_b_proj(units)
        weight = (made[0] if isinstance(made, tuple) else made).to(act_dtype)
        heads = weight.view(LATENT, self.num_heads, self.qk_nope_head_dim + self.v_head_dim)
        w_uk, w_uv = heads.split([self.qk_nope_head_dim, self.v_head_dim], dim=-1)
        self.W_UK_T = w_uk.permute(1, 2, 0).contiguous()
        self.W_UV = w_uv.transpose(0, 1).contiguous()

    def forward(  # noqa: PLR0917 (the signature is theirs)
        self,
        layer: Any,
        q: torch.Tensor,
        k_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: FlashMLASparseMetadata | None,
        output: torch.Tensor | None = None,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write the new tokens into the cache, and attend from them.

        Parameters
        ----------
        layer : object
            Has no effect: neither cache has a scale of its own.
        q : bf16 [num_tokens, num_heads, qk_nope_head_dim + 64]
            Rope applied; tokens beyond ``attn_metadata.num_actual_tokens`` are padding, here and below.
        k_c_normed : bf16 [num_tokens, 512]
        k_pe : bf16 [num_tokens, 1, 64]
        kv_cache : as ``get_kv_cache_shape`` says
            Without elements nothing is written, and the step must select nothing.
        attn_metadata : FlashMLASparseMetadata or None
            None in a profiling run, whose output is 0.
        output : bf16 [num_tokens, num_heads * v_head_dim]
            Padding's rows are left as they are.
        output_scale, output_block_scale
            None.

        Returns
        -------
        Tensor
            ``output``.

        Raises
        ------
        InvalidArgumentError
        """
        if output is None:
            raise UnsupportedError("output", "None", "a tensor [num_tokens, num_heads * v_head_dim]")
        for name, value in {"output_scale": output_scale, "output_block_scale": output_block_scale}.items():
            if value is not None:
                raise UnsupportedError(name, "a tensor", "None: outputs are not quantised here")
        if attn_metadata is None:
            return output.fill_(0)
        tokens = attn_metadata.num_actual_tokens
        if kv_cache.numel() > 0:
            self.write(k_c_normed, k_pe, kv_cache, attn_metadata.slot_mapping.flatten()[:tokens])
        latents, _ = self.attend(self.absorb(q[:tokens]), kv_cache, attn_metadata, lse=False)
        self._v_up_proj(latents, output[:tokens])
        return output

    def absorb(self, q: torch.Tensor) -> torch.Tensor:
        """Queries [num_tokens, num_heads, 576] whose first part is multiplied by W_UK, without another copy of them."""
        nope, rope = q[..., : self.qk_nope_head_dim], q[..., self.qk_nope_head_dim :]
        absorbed = q.new_empty(*q.shape[:2], HEAD_DIM)
        torch.bmm(nope.transpose(0, 1), self.W_UK_T, out=absorbed[..., :LATENT].transpose(0, 1))
        absorbed[..., LATENT:] = rope
        return absorbed

    def write(
        self, k_c_normed: torch.Tensor, k_pe: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """Store as many new tokens as there are slots; in an ``fp8_ds_mla`` cache with vLLM's scales."""
        latent, rope = k_c_normed[: len(slot_mapping)], k_pe[: len(slot_mapping)]
        in_rows = self.kv_cache_dtype == "fp8_ds_mla"
        mla.store_kv(latent, rope.flatten(1), self._rows(kv_cache), slot_mapping, power_of_two_scales=in_rows)

    def attend(
        self,
        q: Packed,
        kv_cache: torch.Tensor,
        attn_metadata: FlashMLASparseMetadata,
        *,
        lse: bool = True,
        kernel: Callable[..., Any] = mla.sparse_decode,
        workspace: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Latents [num_tokens, num_heads, 512] of absorbed queries, and their natural LSE [num_tokens, num_heads].

        Queries are one tensor [num_tokens, num_heads, 576], or a pair of latents [..., 512] and rope parts [..., 64].
        A token that the indexer selected nothing for has latents 0 and LSE -inf. ``lse=False`` leaves the LSE out.
        A step may bring the kernel of ``sparse_decode`` that serves it, and a workspace.
        """
        tokens = len(first(q))
        requests, positions = attn_metadata.req_id_per_token, self.topk_indices_buffer
        slots = mla.to_global_indices(
            requests if len(requests) == tokens else requests.narrow(0, 0, tokens),
            attn_metadata.block_table,
            positions if len(positions) == tokens else positions.narrow(0, 0, tokens),
            page_size=attn_metadata.block_size,
        )
        # All tokens are one row of the batch, of whatever request.
        queries = (q[0].unsqueeze(0), q[1].unsqueeze(0)) if isinstance(q, tuple) else q.unsqueeze(0)
        out, sums = kernel(
            queries,
            self._rows(kv_cache),
            slots.unsqueeze(0),
            softmax_scale=self.softmax_scale,
            lse=None if lse else False,
            workspace=workspace,
        )
        return out.squeeze(0), sums[0].T if lse else None

    def _rows(self, kv_cache: torch.Tensor) -> torch.Tensor:
        return kv_cache.view(torch.uint8) if self.kv_cache_dtype == "fp8_ds_mla" else kv_cache

    def _v_up_proj(self, latents: torch.Tensor, out: torch.Tensor) -> None:
        """From latents [num_tokens, num_heads, 512] to values, written to ``out`` [num_tokens, num_heads * v]."""
        heads = out.view(-1, self.num_heads, self.v_head_dim).transpose(0, 1)
        torch.bmm(latents.transpose(0, 1), self.W_UV, out=heads)
