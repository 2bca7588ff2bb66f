"""What the kernels of planned ops share: a plan schedules one step, and every layer launches by it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mla_kernels import _launcher
from mla_kernels.errors import DTypeError, ShapeError, UnsupportedError, ValueRangeError
from mla_kernels.formats import HEAD_DIM
from mla_kernels.kernels import invariance
from mla_kernels.kernels.base import NO_END, Bind, Kernel, Plan
from mla_kernels.payloads.registry import Limits, Value, Variant
from mla_kernels.scalars import count, flag, is_preset, quoted
from mla_kernels.tensors import Packed, Tensor, device_of, empty, extents, first

_MOST_SHAPES = 256
_MOST_IS_MISSING = "the largest number of new tokens of a request, because cu_seqlens_q is given"


class PlannedKernel(Kernel):
    """A kernel that launches by a plan of the step."""

    __slots__ = ("_last", "_launches", "_ragged", "_wrong_absence")

    def __init__(self, variant: Variant, config: Mapping[str, Value], bind: Bind, limits: Limits) -> None:
        super().__init__(variant, config, bind, limits)
        self._launches: dict[tuple[str, int, int, int, int], Any] = {}
        self._ragged: _launcher.Kernel | None = None
        # The shape and launch of the plan used last: layers share a plan, and identity is quicker than a hash.
        self._last: tuple[object, Any] = (object(), None)
        # What `block_table is None` must not be: True where the config says paged, False where contiguous.
        self._wrong_absence = {"paged": True, "contiguous": False}.get(str(config.get("kv_layout")))

    def plan(
        self,
        seq_lens: Tensor,
        *,
        num_heads: int | None = None,
        q_len: int | None = None,
        max_splits: int | None = None,
        batch_invariant: bool | None = None,
        max_q_len: int | None = None,
        out: Plan | None = None,
        stream: int | None = None,
    ) -> Plan:
        """Schedule one step from its lengths, on the device that holds them.

        Parameters
        ----------
        seq_lens : int32 [batch]
            Tokens in the cache of each request, the new ones included.
        num_heads : int, optional
            By default what the kernel's config fixes.
        q_len : int, optional
            By default what the kernel's config fixes.
        max_splits : int, optional
            The most parts that a request is split into; 0, the default, lets the payload choose from the shape.
        batch_invariant : bool, optional
            Whether its own length alone decides the parts of a request; see ``mla_kernels.batch_invariant``.
        max_q_len : int, optional
            With ``cu_seqlens_q``: the most new tokens of a request, in place of ``q_len``.
        out : Plan, optional
            A plan of the same shape to refresh in place; nothing is then allocated.
        stream : int, optional
            By default the framework's current stream.

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
        q_len = _most_tokens(max_q_len, q_len)
        stated: dict[str, Any] = {
            "batch": batch,
            "max_q_len": max_q_len,
            "q_len": q_len,
            "num_heads": num_heads,
            "max_splits": max_splits,
            "batch_invariant": batch_invariant,
        }
        if out is None:
            out = self._made(seq_lens, stated, stream)
        else:
            self._require_shape(out, stated)
        problem = _problem(out, seq_lens)
        self._native_for(problem).plan(problem, out.buffer, stream)
        return out

    def _require_shape(self, out: Plan, stated: Mapping[str, Any]) -> None:
        """Refuse a plan of other numbers than those that are stated."""
        self._require_own(out, "out")
        for name, value in stated.items():
            check = flag if name == "batch_invariant" else count
            if value is not None and check(name, value) != getattr(out, name):
                if name == "batch_invariant" and not value and invariance.enabled:
                    continue  # the switch outdoes False, and the plan may be older than the switch
                raise ShapeError("out", f"a plan of {name} {getattr(out, name)}", f"a plan of {name} {value}")

    def _launched(self, problem: dict[str, object]) -> dict[str, object]:
        """The arguments of a call as its launch has them; sizes of ragged queries need no bounds."""
        problem = super()._launched(problem)
        if _is_ragged(problem.get("max_q_len")):
            problem.setdefault("num_requests", None)  # named, the dimension is not taken for the batch
        return problem

    def _native_for(self, problem: Mapping[str, object]) -> _launcher.Kernel:
        """The kernel for ragged queries, which are one batch of any number of tokens, where the problem has them."""
        if not _is_ragged(problem.get("max_q_len")):
            return self._native
        if self._ragged is None:
            self._ragged = self._bind(limits=_ragged(self._limits))
        return self._ragged

    def _sized(self, problem: dict[str, object]) -> dict[str, object]:
        """The arguments of a call whose sizes are asked for; the switch says what they leave out, as for a plan."""
        return super()._sized({"batch_invariant": invariance.enabled} | problem)

    def _untold(self, problem: Mapping[str, object]) -> list[str]:
        """The dimensions that nothing tells; ``max_q_len`` stands for ``q_len``."""
        is_ragged = _is_ragged(problem.get("max_q_len"))
        return [name for name in super()._untold(problem) if not (is_ragged and name == "q_len")]

    def _made(self, seq_lens: Tensor, stated: dict[str, Any], stream: int | None) -> Plan:
        """A plan whose buffer nothing has written yet."""
        fixed = self.config.get("q_len")
        if _is_ragged(stated["max_q_len"]) and fixed not in {None, stated["q_len"]}:
            accepts = f"{fixed}, the q_len that the kernel's config fixes; look the kernel up without q_len"
            raise ValueRangeError("max_q_len", str(stated["q_len"]), accepts)
        for name in ("q_len", "num_heads"):
            stated[name] = self._number(name, stated[name])
        if invariance.enabled:
            stated["batch_invariant"] = True
        asked = {name: value for name, value in stated.items() if value is not None}
        # From the shape alone: to look at a tensor, some frameworks ask for the stream.
        _, device = device_of("seq_lens", seq_lens)
        shape = {**_extents(**asked), "device": device}
        size = self._native_for(shape).plan_size(shape)
        return Plan(_buffer(seq_lens, size, stream), self.variant.name, **asked)

    def _launch_of(self, plan: object) -> Any:
        """The launch that takes only what ``plan`` was made for; it is remembered."""
        plan = self._require_own(plan)
        run = self._launches.get(plan.shape) or self._limited(plan)
        self._last = (plan.shape, run)
        return run

    def _limited(self, plan: Plan) -> Any:
        """A launch for the shape of ``plan``, whose numbers become exact limits."""
        exact = {"batch": plan.batch, "q_len": plan.q_len, "num_heads": plan.num_heads}
        limits = self._limits
        for name, extent in exact.items():
            fixed = self.config.get(name, extent)
            if fixed != extent:
                raise ShapeError(
                    "plan", f"a plan of {name} {extent}", f"{name} {fixed}, which the kernel's config fixes"
                )
        if plan.max_q_len:
            exact = {"num_requests": plan.batch, "max_q_len": plan.max_q_len, "num_heads": plan.num_heads}
            limits = _ragged(limits)
        native = self._bind(limits={**limits, **{name: (n, n, 1, True) for name, n in exact.items()}})
        if len(self._launches) >= _MOST_SHAPES:
            self._launches.clear()
        return self._launches.setdefault(plan.shape, native.launch)

    def _require_own(self, plan: object, name: str = "plan") -> Plan:
        if not isinstance(plan, Plan):
            raise DTypeError(name, type(plan).__name__, "the Plan that kernel.plan(seq_lens) returns")
        if plan.variant != self.variant.name:
            raise ValueRangeError(name, f"a plan of {plan.variant}", f"a plan of {self.variant.name}")
        return plan

    def _unbounded(self, bounds: Tensor) -> ValueRangeError:
        with suppress(ValueRangeError):  # which the payload raises, in words that do not tell where a kernel takes it
            self._native.can_run({"cu_seqlens_q": bounds})
        by_plan = "; a kernel takes it from plan=kernel.plan(seq_lens, max_q_len=...)"
        return ValueRangeError("max_q_len", "0", _MOST_IS_MISSING + by_plan)

    def _wrong_layout(self, block_table: Tensor | None) -> UnsupportedError:
        if block_table is None:
            accepts = "an int32 tensor [batch, table_width], because the kernel's config says paged"
            return UnsupportedError("block_table", "None", accepts)
        return UnsupportedError("block_table", "a tensor", "None, because the kernel's config says contiguous")


def plan_for(
    kernel: Kernel,
    q: Packed,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    *,
    max_q_len: int | None = 0,
    **options: Any,
) -> Plan:
    """Plan one call: the shape is that of its queries, and of ragged ones the requests are those of ``seq_lens``."""
    if not is_preset(max_q_len, 0):
        _, _, num_heads = ragged_extents(q)
        return kernel.plan(seq_lens, num_heads=num_heads, max_q_len=max_q_len, **options)
    if cu_seqlens_q is not None:
        raise ValueRangeError("max_q_len", "0", _MOST_IS_MISSING)
    batch, q_len, num_heads, _ = extents("q", first(q), "batch", "q_len", "num_heads", str(HEAD_DIM))
    if extents("seq_lens", seq_lens, "batch") != (batch,):
        raise ShapeError("seq_lens", f"shape {list(seq_lens.shape)}", f"[{batch}], as q has")
    return kernel.plan(seq_lens, num_heads=num_heads, q_len=q_len, **options)


def require_planned(plan: object, stated: Mapping[str, object]) -> None:
    """Refuse a number beside a plan that was made with another one: the plan's decides.

    Raises
    ------
    DTypeError, ValueRangeError
    """
    if not isinstance(plan, Plan):
        return  # which the launch refuses
    for name, value in stated.items():
        own = getattr(plan, name)
        if type(value) is type(own) and value == own:  # what a graph of torch.compile can compare, too
            continue
        preset, read = (False, flag) if name == "batch_invariant" else (0, count)
        if not is_preset(value, preset) and read(name, value) != own:
            raise ValueRangeError(name, quoted(value), f"{own}, as the plan has; or pass {name} to kernel.plan")


def planned_extents(plan: Plan | None, q: Packed) -> tuple[int, int, int]:
    """Batch, ``q_len`` and ``num_heads`` of a launch."""
    if plan is not None:
        return ragged_extents(q) if plan.max_q_len else (plan.batch, plan.q_len, plan.num_heads)
    batch, q_len, num_heads, _ = extents("q", first(q), "batch", "q_len", "num_heads", str(HEAD_DIM))
    return batch, q_len, num_heads


def ragged_extents(q: Packed) -> tuple[int, int, int]:
    """Batch, tokens and ``num_heads`` of queries whose requests ``cu_seqlens_q`` bounds: one batch of all tokens.

    Raises
    ------
    DTypeError, ShapeError
    """
    batch, num_tokens, num_heads, _ = extents("q", first(q), "1", "num_tokens", "num_heads", str(HEAD_DIM))
    if batch != 1:
        accepts = "1, because with max_q_len the tokens of all requests are one batch, which cu_seqlens_q divides"
        raise ShapeError("q", f"batch = {batch}", accepts)
    return batch, num_tokens, num_heads


def _buffer(seq_lens: Tensor, size: int, stream: int | None) -> Tensor:
    """Memory for a plan, in the framework of the lengths."""
    try:
        return empty("plan", seq_lens, (size,), "uint8", stream)
    except UnsupportedError as error:
        accepts = "a tensor of torch, NumPy or CuPy, in which the buffer of the plan is allocated"
        raise UnsupportedError("seq_lens", type(seq_lens).__name__, accepts) from error


def _problem(plan: Plan, seq_lens: Tensor) -> dict[str, object]:
    """What a payload is told to fill a plan."""
    names = ("batch", "q_len", "num_heads", "max_splits", "batch_invariant", "max_q_len")
    return {"seq_lens": seq_lens, **_extents(**{name: getattr(plan, name) for name in names})}


def _extents(*, batch: int, q_len: int, max_q_len: int = 0, **others: object) -> dict[str, object]:
    """The dimensions of a plan's launches: ragged queries are one batch of tokens, however many there are."""
    if max_q_len:
        return {**others, "batch": 1, "num_requests": batch, "max_q_len": max_q_len}
    return {**others, "batch": batch, "q_len": q_len}


def _most_tokens(max_q_len: int | None, q_len: int | None) -> int | None:
    """The ``q_len`` of a plan, which ``max_q_len`` is where requests have different numbers of tokens."""
    if not _is_ragged(max_q_len):
        return q_len
    most = count("max_q_len", max_q_len)
    if q_len is not None and count("q_len", q_len) != most:
        raise ValueRangeError("q_len", str(q_len), f"None beside max_q_len, or {most} as it")
    return most


def _is_ragged(max_q_len: object) -> bool:
    """Whether ``max_q_len`` is given: what is no number is, and is refused later."""
    return not (max_q_len is None or is_preset(max_q_len, 0))


def _ragged(limits: Limits) -> Limits:
    """The limits of launches with ragged queries."""
    others = {name: limit for name, limit in limits.items() if name != "q_len"}
    return {**others, "batch": (1, 1, 1), "max_q_len": limits.get("q_len", (1, NO_END, 1))}
