"""The kernel of each op: how it is called, and the launcher's order of arguments. Generated; see codegen/ops."""

from __future__ import annotations

from mla_kernels import _launcher
from mla_kernels.kernels import invariance
from mla_kernels.kernels.base import Kernel, Plan, require_together
from mla_kernels.kernels.planned import PlannedKernel, plan_for, planned_extents
from mla_kernels.scalars import flag, is_preset
from mla_kernels.tensors import Packed, Tensor, empty, extents, first, widened, with_rope


class DecodeKernel(PlannedKernel):
    """The kernel of ``mla_kernels.decode``."""

    __slots__ = ()
    _sized_by = {"batch": ["q", "out", "lse", "token_seq_lens", "num_requests", "block_table", "seq_lens"], "num_heads": ["q", "out", "lse"], "q_len": ["q", "out", "lse", "token_seq_lens"]}
    _left_out = frozenset(["lse"])
    _launch: _launcher.DecodeLaunch

    def launch(
        self,
        q: Packed,
        kv_cache: Packed,
        block_table: Tensor | None = None,
        seq_lens: Tensor | None = None,
        *,
        cu_seqlens_q: Tensor | None = None,
        token_seq_lens: Tensor | None = None,
        plan: Plan | None = None,
        softmax_scale: float,
        q_scale: float = 1.0,
        kv_scale: float = 1.0,
        out_scale: float = 1.0,
        causal: bool = True,
        out: Tensor | None = None,
        lse: Tensor | bool | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Launch; parameters, results and errors are those of ``mla_kernels.decode``.

        A plan of another variant or shape raises ``ValueRangeError`` or ``ShapeError``. With outputs given, and
        ``plan`` and ``workspace`` where their size is not 0, a launch allocates nothing.
        """
        if plan is None:
            run, buffer = self._launch, None
            max_splits, batch_invariant, max_q_len = 0, invariance.enabled, 0
        else:
            shape, run = self._last
            if type(plan) is not Plan or plan.shape is not shape:
                run = self._launch_of(plan)
            buffer = plan.buffer
            max_splits = plan.max_splits
            batch_invariant = plan.batch_invariant
            max_q_len = plan.max_q_len
        if cu_seqlens_q is not None and not max_q_len:
            raise self._unbounded(cu_seqlens_q)
        if (block_table is None) is self._wrong_absence:
            raise self._wrong_layout(block_table)
        if out is None or lse is None or lse is True:
            batch, q_len, num_heads = planned_extents(plan, q)
            if out is None:
                out = empty("out", first(q), (batch, q_len, num_heads, self._d_v), self._out_dtype(), stream)
            if lse is None or lse is True:
                lse = empty("lse", first(q), (batch, num_heads, q_len), "fp32", stream)
        if lse is False:
            lse = None
        if check is not False and flag("check", check):
            self.can_run(
                q=q,
                kv_cache=kv_cache,
                block_table=block_table,
                seq_lens=seq_lens,
                out=out,
                lse=lse,
                cu_seqlens_q=cu_seqlens_q,
                token_seq_lens=token_seq_lens,
                softmax_scale=softmax_scale,
                q_scale=q_scale,
                kv_scale=kv_scale,
                out_scale=out_scale,
                causal=causal,
                max_splits=max_splits,
                batch_invariant=batch_invariant,
                max_q_len=max_q_len,
            )
        while (
            lacking := run(
                q,
                kv_cache,
                block_table,
                seq_lens,
                out,
                lse,
                cu_seqlens_q,
                token_seq_lens,
                softmax_scale,
                q_scale,
                kv_scale,
                out_scale,
                causal,
                max_splits,
                batch_invariant,
                max_q_len,
                buffer,
                workspace,
                stream,
            )
        ) is not None:
            plan_bytes, workspace_bytes = lacking
            if plan_bytes:
                options = {"max_splits": max_splits, "batch_invariant": batch_invariant, "max_q_len": max_q_len, "stream": stream}
                buffer = plan_for(self, q, seq_lens, **options).buffer
            if workspace_bytes:
                workspace = empty("workspace", first(q), (workspace_bytes,), "uint8", stream)
        return out, lse

    __call__ = launch


class SparseDecodeKernel(Kernel):
    """The kernel of ``mla_kernels.sparse_decode``."""

    __slots__ = ()
    _broadcast = {"topk_length": ("q", 1), "extra_topk_length": ("q", 1)}
    _sized_by = {"batch": ["q", "indices", "out", "lse", "max_logits", "topk_length", "extra_indices", "extra_topk_length"], "num_heads": ["q", "out", "lse", "max_logits", "attn_sink"], "q_len": ["q", "indices", "out", "lse", "max_logits", "topk_length", "extra_indices", "extra_topk_length"], "topk": ["indices"]}
    _left_out = frozenset(["lse"])
    _launch: _launcher.SparseDecodeLaunch

    def launch(
        self,
        q: Packed,
        kv_cache: Packed,
        indices: Tensor,
        *,
        topk_length: Tensor | None = None,
        attn_sink: Tensor | None = None,
        extra_kv_cache: Packed | None = None,
        extra_indices: Tensor | None = None,
        extra_topk_length: Tensor | None = None,
        softmax_scale: float,
        q_scale: float = 1.0,
        kv_scale: float = 1.0,
        out_scale: float = 1.0,
        max_splits: int = 0,
        out: Tensor | None = None,
        lse: Tensor | bool | None = None,
        max_logits: Tensor | None = None,
        return_max_logits: bool = False,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> tuple[Tensor, ...]:
        """Launch; parameters, results and errors are those of ``mla_kernels.sparse_decode``.

        With outputs given, and ``workspace`` given where its size is not 0, a launch allocates nothing.
        """
        require_together("extra_kv_cache", extra_kv_cache, extra_indices, extra_topk_length)
        if topk_length is not None:
            topk_length = widened(topk_length, first(q), 1)
        if extra_topk_length is not None:
            extra_topk_length = widened(extra_topk_length, first(q), 1)
        if invariance.enabled and is_preset(max_splits, 0):
            max_splits = 1
        if return_max_logits is not False:
            return_max_logits = flag("return_max_logits", return_max_logits)
        if out is None or lse is None or lse is True or (max_logits is None and return_max_logits):
            batch, q_len, num_heads, _ = extents("q", first(q), "batch", "q_len", "num_heads", "576")
            if out is None:
                out = empty("out", first(q), (batch, q_len, num_heads, self._d_v), self._out_dtype(), stream)
            if lse is None or lse is True:
                lse = empty("lse", first(q), (batch, num_heads, q_len), "fp32", stream)
            if max_logits is None and return_max_logits:
                max_logits = empty("max_logits", first(q), (batch, num_heads, q_len), "fp32", stream)
        if lse is False:
            lse = None
        if check is not False and flag("check", check):
            self.can_run(
                q=q,
                kv_cache=kv_cache,
                indices=indices,
                out=out,
                lse=lse,
                max_logits=max_logits,
                topk_length=topk_length,
                attn_sink=attn_sink,
                extra_kv_cache=extra_kv_cache,
                extra_indices=extra_indices,
                extra_topk_length=extra_topk_length,
                softmax_scale=softmax_scale,
                q_scale=q_scale,
                kv_scale=kv_scale,
                out_scale=out_scale,
                max_splits=max_splits,
            )
        while (
            lacking := self._launch(
                q,
                kv_cache,
                indices,
                out,
                lse,
                max_logits,
                topk_length,
                attn_sink,
                extra_kv_cache,
                extra_indices,
                extra_topk_length,
                softmax_scale,
                q_scale,
                kv_scale,
                out_scale,
                max_splits,
                None,
                workspace,
                stream,
            )
        ) is not None:
            plan_bytes, workspace_bytes = lacking
            if plan_bytes:
                raise self._unplanned(plan_bytes)
            if workspace_bytes:
                workspace = empty("workspace", first(q), (workspace_bytes,), "uint8", stream)
        return (out, lse) if max_logits is None else (out, lse, max_logits)

    __call__ = launch


class SparsePrefillKernel(Kernel):
    """The kernel of ``mla_kernels.sparse_prefill``."""

    __slots__ = ()
    _launch: _launcher.SparsePrefillLaunch

    def launch(
        self,
        q: Packed,
        kv: Packed,
        indices: Tensor,
        *,
        topk_length: Tensor | None = None,
        attn_sink: Tensor | None = None,
        extra_kv: Packed | None = None,
        extra_indices: Tensor | None = None,
        extra_topk_length: Tensor | None = None,
        softmax_scale: float,
        q_scale: float = 1.0,
        kv_scale: float = 1.0,
        out_scale: float = 1.0,
        out: Tensor | None = None,
        max_logits: Tensor | None = None,
        lse: Tensor | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Launch; parameters, results and errors are those of ``mla_kernels.sparse_prefill``.

        With outputs given, and ``workspace`` given where its size is not 0, a launch allocates nothing.
        """
        require_together("extra_kv", extra_kv, extra_indices, extra_topk_length)
        if out is None or max_logits is None or lse is None:
            q_len, num_heads, _ = extents("q", first(q), "q_len", "num_heads", "576")
            if out is None:
                out = empty("out", first(q), (q_len, num_heads, self._d_v), self._out_dtype(), stream)
            if max_logits is None:
                max_logits = empty("max_logits", first(q), (q_len, num_heads), "fp32", stream)
            if lse is None:
                lse = empty("lse", first(q), (q_len, num_heads), "fp32", stream)
        q = with_rope(q, self._d_qk, stream)
        kv = with_rope(kv, self._d_qk, stream)
        extra_kv = with_rope(extra_kv, self._d_qk, stream)
        if check is not False and flag("check", check):
            self.can_run(
                q=q,
                kv=kv,
                indices=indices,
                out=out,
                max_logits=max_logits,
                lse=lse,
                topk_length=topk_length,
                attn_sink=attn_sink,
                extra_kv=extra_kv,
                extra_indices=extra_indices,
                extra_topk_length=extra_topk_length,
                softmax_scale=softmax_scale,
                q_scale=q_scale,
                kv_scale=kv_scale,
                out_scale=out_scale,
            )
        while (
            lacking := self._launch(
                q,
                kv,
                indices,
                out,
                max_logits,
                lse,
                topk_length,
                attn_sink,
                extra_kv,
                extra_indices,
                extra_topk_length,
                softmax_scale,
                q_scale,
                kv_scale,
                out_scale,
                None,
                workspace,
                stream,
            )
        ) is not None:
            plan_bytes, workspace_bytes = lacking
            if plan_bytes:
                raise self._unplanned(plan_bytes)
            if workspace_bytes:
                workspace = empty("workspace", first(q), (workspace_bytes,), "uint8", stream)
        return out, max_logits, lse

    __call__ = launch


class MergeStatesKernel(Kernel):
    """The kernel of ``mla_kernels.merge_states``."""

    __slots__ = ()
    _left_out = frozenset(["out_lse"])
    _launch: _launcher.MergeStatesLaunch

    def launch(
        self,
        o: Tensor,
        lse: Tensor,
        counts: Tensor | None = None,
        *,
        out: Tensor | None = None,
        out_lse: Tensor | bool | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Launch; parameters, results and errors are those of ``mla_kernels.merge_states``.

        With outputs given, and ``workspace`` given where its size is not 0, a launch allocates nothing.
        """
        if out is None or out_lse is None or out_lse is True:
            _, num_tokens, num_heads, head_dim = extents("o", o, "num_states", "num_tokens", "num_heads", "head_dim")
            if out is None:
                out = empty("out", o, (num_tokens, num_heads, head_dim), self._out_dtype(), stream)
            if out_lse is None or out_lse is True:
                out_lse = empty("out_lse", o, (num_tokens, num_heads), "fp32", stream)
        if out_lse is False:
            out_lse = None
        if check is not False and flag("check", check):
            self.can_run(
                o=o,
                lse=lse,
                counts=counts,
                out=out,
                out_lse=out_lse,
            )
        while (
            lacking := self._launch(
                o,
                lse,
                counts,
                out,
                out_lse,
                None,
                workspace,
                stream,
            )
        ) is not None:
            plan_bytes, workspace_bytes = lacking
            if plan_bytes:
                raise self._unplanned(plan_bytes)
            if workspace_bytes:
                workspace = empty("workspace", o, (workspace_bytes,), "uint8", stream)
        return out, out_lse

    __call__ = launch


class StoreKvKernel(Kernel):
    """The kernel of ``mla_kernels.store_kv``."""

    __slots__ = ()
    _launch: _launcher.StoreKvLaunch

    def launch(
        self,
        latent: Tensor,
        rope: Tensor | None,
        kv_cache: Packed,
        slot_mapping: Tensor,
        *,
        scale: Tensor | None = None,
        power_of_two_scales: bool = False,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> None:
        """Launch; parameters, results and errors are those of ``mla_kernels.store_kv``.

        With ``workspace`` given where its size is not 0, a launch allocates nothing.
        """
        if check is not False and flag("check", check):
            self.can_run(
                latent=latent,
                rope=rope,
                kv_cache=kv_cache,
                slot_mapping=slot_mapping,
                scale=scale,
                power_of_two_scales=power_of_two_scales,
            )
        while (
            lacking := self._launch(
                latent,
                rope,
                kv_cache,
                slot_mapping,
                scale,
                power_of_two_scales,
                None,
                workspace,
                stream,
            )
        ) is not None:
            plan_bytes, workspace_bytes = lacking
            if plan_bytes:
                raise self._unplanned(plan_bytes)
            if workspace_bytes:
                workspace = empty("workspace", latent, (workspace_bytes,), "uint8", stream)

    __call__ = launch


class GatherKvKernel(Kernel):
    """The kernel of ``mla_kernels.gather_kv``."""

    __slots__ = ()
    _launch: _launcher.GatherKvLaunch

    def launch(
        self,
        kv_cache: Packed,
        indices: Tensor,
        *,
        kv_scale: float = 1.0,
        out: Packed | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> Tensor:
        """Launch; parameters, results and errors are those of ``mla_kernels.gather_kv``.

        With outputs given, and ``workspace`` given where its size is not 0, a launch allocates nothing.
        """
        if out is None:
            (num_rows,) = extents("indices", indices, "num_rows")
            if out is None:
                out = empty("out", first(kv_cache), (num_rows, self._d_qk), self._out_dtype(), stream)
        if check is not False and flag("check", check):
            self.can_run(
                kv_cache=kv_cache,
                indices=indices,
                out=out,
                kv_scale=kv_scale,
            )
        while (
            lacking := self._launch(
                kv_cache,
                indices,
                out,
                kv_scale,
                None,
                workspace,
                stream,
            )
        ) is not None:
            plan_bytes, workspace_bytes = lacking
            if plan_bytes:
                raise self._unplanned(plan_bytes)
            if workspace_bytes:
                workspace = empty("workspace", first(kv_cache), (workspace_bytes,), "uint8", stream)
        return out

    __call__ = launch


class ToGlobalIndicesKernel(Kernel):
    """The kernel of ``mla_kernels.to_global_indices``."""

    __slots__ = ()
    _launch: _launcher.ToGlobalIndicesLaunch

    def launch(
        self,
        req_id: Tensor,
        block_table: Tensor,
        token_indices: Tensor,
        *,
        page_size: int | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> Tensor:
        """Launch; parameters, results and errors are those of ``mla_kernels.to_global_indices``.

        With outputs given, and ``workspace`` given where its size is not 0, a launch allocates nothing.
        """
        page_size = self._number("page_size", page_size)
        if out is None:
            num_tokens, topk = extents("token_indices", token_indices, "num_tokens", "topk")
            if out is None:
                out = empty("out", token_indices, (num_tokens, topk), "int32", stream)
        if check is not False and flag("check", check):
            self.can_run(
                req_id=req_id,
                block_table=block_table,
                token_indices=token_indices,
                out=out,
                page_size=page_size,
            )
        while (
            lacking := self._launch(
                req_id,
                block_table,
                token_indices,
                out,
                page_size,
                None,
                workspace,
                stream,
            )
        ) is not None:
            plan_bytes, workspace_bytes = lacking
            if plan_bytes:
                raise self._unplanned(plan_bytes)
            if workspace_bytes:
                workspace = empty("workspace", token_indices, (workspace_bytes,), "uint8", stream)
        return out

    __call__ = launch


KERNELS: dict[str, type[Kernel]] = {
    "decode": DecodeKernel,
    "sparse_decode": SparseDecodeKernel,
    "sparse_prefill": SparsePrefillKernel,
    "merge_states": MergeStatesKernel,
    "store_kv": StoreKvKernel,
    "gather_kv": GatherKvKernel,
    "to_global_indices": ToGlobalIndicesKernel,
}
"""The kernels by op."""
