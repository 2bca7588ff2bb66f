"""The kernels of attention ops: over a dense cache, over selected slots of a cache, and over selected rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mla_kernels.errors import DTypeError, ShapeError, UnsupportedError, ValueRangeError
from mla_kernels.frameworks import Packed, Tensor, device_of, empty, extents, first, widened, with_rope
from mla_kernels.kernel import Bind, Kernel, Limits, Plan
from mla_kernels.registry import Value, Variant
from mla_kernels.widths import LATENT

_MOST_SHAPES = 256


class DecodeKernel(Kernel):
    """Attention of new tokens over a dense KV cache, contiguous or paged."""

    __slots__ = ("_last", "_launches", "_wrong_absence")

    def __init__(self, variant: Variant, config: Mapping[str, Value], bind: Bind, limits: Limits) -> None:
        super().__init__(variant, config, bind, limits)
        self._launches: dict[tuple[str, int, int, int], Any] = {}
        # The shape and launch of the plan used last: layers share a plan, and identity is quicker than a hash.
        self._last: tuple[object, Any] = (object(), None)
        # What `block_table is None` must not be: True where the config says paged, False where contiguous.
        self._wrong_absence = {"paged": True, "contiguous": False}.get(str(config.get("kv_layout")))

    def launch(
        self,
        q: Packed,
        kv_cache: Packed,
        block_table: Tensor | None = None,
        seq_lens: Tensor | None = None,
        *,
        plan: Plan | None = None,
        softmax_scale: float,
        causal: bool = True,
        q_scale: float = 1.0,
        kv_scale: float = 1.0,
        out_scale: float = 1.0,
        out: Tensor | None = None,
        lse: Tensor | bool | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Launch; parameters, results and errors are those of ``mla_kernels.decode``.

        A plan of another variant or shape raises ``ValueRangeError`` or ``ShapeError``. With ``out`` and ``lse`` given,
        and ``plan`` and ``workspace`` where their size is not 0, a launch allocates nothing.
        """
        if plan is None:
            run = self._launch
            buffer, max_splits = None, 0
            batch_invariant = False
        else:
            shape, run = self._last
            if type(plan) is not Plan or plan.shape is not shape:
                run = self._launch_of(plan)
            buffer, max_splits = plan.buffer, plan.max_splits
            batch_invariant = plan.batch_invariant
        if (block_table is None) is self._wrong_absence:
            raise self._wrong_layout(block_table)
        if out is None:
            out = empty("out", first(q), (*_shape(q, plan), LATENT), self._out_dtype())
        if lse is None:
            batch, q_len, num_heads = _shape(q, plan)
            lse = empty("lse", first(q), (batch, num_heads, q_len), "fp32")
        elif lse is False:
            lse = None
        if check:
            self.can_run(
                q=q, kv_cache=kv_cache, block_table=block_table, seq_lens=seq_lens, out=out, lse=lse,
                softmax_scale=softmax_scale, q_scale=q_scale, kv_scale=kv_scale, out_scale=out_scale, causal=causal,
                max_splits=max_splits, batch_invariant=batch_invariant,
            )  # fmt: skip
        while (
            lacking := run(
                q, kv_cache, block_table, seq_lens, out, lse,
                softmax_scale, q_scale, kv_scale, out_scale, causal, max_splits, batch_invariant,
                buffer, workspace, stream,
            )
        ) is not None:  # fmt: skip
            plan_bytes, workspace_bytes = lacking
            if plan_bytes:
                options = {"max_splits": max_splits, "batch_invariant": batch_invariant, "stream": stream}
                buffer = plan_for(self, q, seq_lens, **options).buffer
            if workspace_bytes:
                workspace = empty("workspace", first(q), (workspace_bytes,), "uint8")
        return out, lse

    __call__ = launch

    def plan(
        self,
        seq_lens: Tensor,
        *,
        num_heads: int | None = None,
        q_len: int | None = None,
        max_splits: int | None = None,
        batch_invariant: bool | None = None,
        out: Plan | None = None,
        stream: int | None = None,
    ) -> Plan:
        """Schedule one step from its lengths, on the device that holds them.

        Parameters
        ----------
        seq_lens : int32 [batch]
            Tokens in the cache of each request, the new ones included.
        num_heads, q_len : int, optional
            By default what the kernel's config fixes.
        max_splits : int, optional
            The most parts that a request is split into; 0, the default, lets the payload choose from the shape.
        batch_invariant : bool, optional
            Whether the parts of a request depend on its own length only; False by default.
        out : Plan, optional
            A plan of the same shape to refresh in place; nothing is then allocated.
        stream : int, optional
            By default the framework's current stream; ignored on a CPU.

        Returns
        -------
        Plan
            ``out`` where it was given.

        Raises
        ------
        InvalidArgumentError
            The lengths are no int32 vector, a number is neither given nor fixed, or ``out`` has another shape.
        """
        (batch,) = extents("seq_lens", seq_lens, "batch")
        if out is None:
            asked = Plan(
                None, self.variant.name, batch, self._number("q_len", q_len), self._number("num_heads", num_heads),
                max_splits or 0, bool(batch_invariant),
            )  # fmt: skip
            # From the shape alone: to look at a tensor, some frameworks ask for the stream.
            _, device = device_of("seq_lens", seq_lens)
            size = self._native.plan_size({**_problem(asked, None), "device": device})
            buffer = empty("out", seq_lens, (size,), "uint8")
            out = Plan(buffer, *asked.shape, asked.max_splits, asked.batch_invariant)
        else:
            self._require_own(out)
            stated = {"batch": batch, "q_len": q_len, "num_heads": num_heads, "max_splits": max_splits,
                      "batch_invariant": batch_invariant}  # fmt: skip
            for name, value in stated.items():
                if value is not None and value != getattr(out, name):
                    raise ShapeError("out", f"a plan of {name} {getattr(out, name)}", f"a plan of {name} {value}")
        self._native.plan(_problem(out, seq_lens), out.buffer, stream)
        return out

    def _launch_of(self, plan: object) -> Any:
        """The launch that takes only what ``plan`` was made for; it is remembered."""
        plan = self._require_own(plan)
        run = self._launches.get(plan.shape) or self._limited(plan)
        self._last = (plan.shape, run)
        return run

    def _limited(self, plan: Plan) -> Any:
        """A launch for the shape of ``plan``, whose numbers become exact limits."""
        exact = {"batch": plan.batch, "q_len": plan.q_len, "num_heads": plan.num_heads}
        for name, extent in exact.items():
            fixed = self.config.get(name, extent)
            if fixed != extent:
                raise ShapeError(
                    "plan", f"a plan of {name} {extent}", f"{name} {fixed}, which the kernel's config fixes"
                )
        native = self._bind(limits={**self._limits, **{name: (n, n, 1) for name, n in exact.items()}})
        if len(self._launches) >= _MOST_SHAPES:
            self._launches.clear()
        return self._launches.setdefault(plan.shape, native.launch)

    def _require_own(self, plan: object) -> Plan:
        if not isinstance(plan, Plan):
            raise DTypeError("plan", type(plan).__name__, "the Plan that kernel.plan(seq_lens) returns")
        if plan.variant != self.variant.name:
            raise ValueRangeError("plan", f"a plan of {plan.variant}", f"a plan of {self.variant.name}")
        return plan

    def _wrong_layout(self, block_table: Tensor | None) -> UnsupportedError:
        if block_table is None:
            accepts = "an int32 tensor [batch, table_width], because the kernel's config says paged"
            return UnsupportedError("block_table", "None", accepts)
        return UnsupportedError("block_table", "a tensor", "None, because the kernel's config says contiguous")


class SparseDecodeKernel(Kernel):
    """Attention of new tokens over selected slots of a KV cache."""

    __slots__ = ()

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
        """Launch; parameters, results and errors are those of ``mla_kernels.sparse_decode``."""
        like = first(q)
        batch, q_len, num_heads, _ = extents("q", like, "batch", "q_len", "num_heads", "576")
        _require_both("extra_kv_cache", extra_kv_cache, extra_indices, extra_topk_length)
        topk_length, extra_topk_length = widened(topk_length, q_len), widened(extra_topk_length, q_len)
        if out is None:
            out = empty("out", like, (batch, q_len, num_heads, LATENT), self._out_dtype())
        if lse is None:
            lse = empty("lse", like, (batch, num_heads, q_len), "fp32")
        elif lse is False:
            lse = None
        if max_logits is None and return_max_logits:
            max_logits = empty("max_logits", like, (batch, num_heads, q_len), "fp32")
        arguments = (
            q, kv_cache, indices, out, lse, max_logits, topk_length, attn_sink,
            extra_kv_cache, extra_indices, extra_topk_length,
            softmax_scale, q_scale, kv_scale, out_scale, max_splits,
        )  # fmt: skip
        self._finish(arguments, like, workspace, stream, check)
        return (out, lse) if max_logits is None else (out, lse, max_logits)

    __call__ = launch


class SparsePrefillKernel(Kernel):
    """Attention of a prompt's tokens over selected rows of one unpaged KV tensor."""

    __slots__ = ()

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
        """Launch; parameters, results and errors are those of ``mla_kernels.sparse_prefill``."""
        like = first(q)
        q_len, num_heads, _ = extents("q", like, "q_len", "num_heads", "576")
        _require_both("extra_kv", extra_kv, extra_indices, extra_topk_length)
        q, kv, extra_kv = with_rope(q), with_rope(kv), with_rope(extra_kv)
        if out is None:
            out = empty("out", like, (q_len, num_heads, LATENT), self._out_dtype())
        if max_logits is None:
            max_logits = empty("max_logits", like, (q_len, num_heads), "fp32")
        if lse is None:
            lse = empty("lse", like, (q_len, num_heads), "fp32")
        arguments = (
            q, kv, indices, out, max_logits, lse, topk_length, attn_sink,
            extra_kv, extra_indices, extra_topk_length,
            softmax_scale, q_scale, kv_scale, out_scale,
        )  # fmt: skip
        self._finish(arguments, like, workspace, stream, check)
        return out, max_logits, lse

    __call__ = launch


def plan_for(kernel: Kernel, q: Packed, seq_lens: Tensor, **options: Any) -> Plan:
    """Plan one call: the shape is that of its queries."""
    batch, q_len, num_heads, _ = extents("q", first(q), "batch", "q_len", "num_heads", "576")
    if extents("seq_lens", seq_lens, "batch") != (batch,):
        raise ShapeError("seq_lens", f"shape {list(seq_lens.shape)}", f"[{batch}], as q has")
    return kernel.plan(seq_lens, num_heads=num_heads, q_len=q_len, **options)


def _shape(q: Packed, plan: Plan | None) -> tuple[int, int, int]:
    """Batch, ``q_len`` and ``num_heads`` of a launch."""
    if plan is not None:
        return plan.batch, plan.q_len, plan.num_heads
    batch, q_len, num_heads, _ = extents("q", first(q), "batch", "q_len", "num_heads", "576")
    return batch, q_len, num_heads


def _require_both(name: str, extra: object, indices: object, lengths: object) -> None:
    """An extra cache and the indices into it come together, and lengths only with them."""
    if (extra is None) is not (indices is None):
        missing, given = ("extra_indices", name) if indices is None else (name, "extra_indices")
        raise UnsupportedError(missing, "None", f"a tensor, because {given} is given")
    if indices is None and lengths is not None:
        raise UnsupportedError("extra_topk_length", "a tensor", "None, because extra_indices is None")


def _problem(plan: Plan, seq_lens: Tensor | None) -> dict[str, object]:
    return {
        "seq_lens": seq_lens,
        "batch": plan.batch,
        "q_len": plan.q_len,
        "num_heads": plan.num_heads,
        "max_splits": plan.max_splits,
        "batch_invariant": plan.batch_invariant,
    }
