"""What the kernels of all ops share: the variant, the limits that its config sets, and its launch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from mla_kernels import _launcher
from mla_kernels._types import FIELDS
from mla_kernels.errors import DTypeError, UnsupportedError, ValueRangeError, WorkspaceError
from mla_kernels.formats import HEAD_DIM, LATENT
from mla_kernels.payloads.registry import Limits, Range, Value, Variant
from mla_kernels.scalars import count, flag, quoted
from mla_kernels.tensors import Tensor, device_of, first, widened

NativeLaunch = Callable[..., tuple[int, int] | None]
"""Launches, or launches nothing and returns the bytes that it lacks of plan and workspace where they are None."""

NO_END = (1 << 63) - 1


class Bind(Protocol):
    """Makes the launcher's kernel of one variant for the given limits."""

    def __call__(self, *, limits: Limits) -> _launcher.Kernel: ...  # noqa: D102


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The schedule of one step, reused by every layer; it belongs to one variant and one problem shape.

    Attributes
    ----------
    buffer : tensor
        ``uint8``; its size depends on the shape only, its content on the lengths.
    variant : str
        The name of the variant that made it.
    batch : int
        The number of requests that it was made for.
    q_len : int
        The number of new tokens of each request that it was made for, or the most where requests differ.
    num_heads : int
        The number of query heads that it was made for.
    max_splits : int
        The most parts that a request is split into; 0 lets the payload choose from the shape.
    batch_invariant : bool
        Whether the parts of a request depend on its own length only.
    max_q_len : int
        ``q_len`` where requests have different numbers of new tokens, otherwise 0.
    """

    buffer: Tensor = field(repr=False)
    variant: str
    batch: int
    q_len: int
    num_heads: int
    max_splits: int = 0
    batch_invariant: bool = False
    max_q_len: int = 0
    shape: tuple[str, int, int, int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what no plan has: anybody may make one of these."""
        if type(self.variant) is not str:
            raise DTypeError("variant", type(self.variant).__name__, "the name of a variant")
        for name in ("batch", "q_len", "num_heads", "max_splits", "max_q_len"):
            object.__setattr__(self, name, count(name, getattr(self, name)))
        if self.max_q_len not in (0, self.q_len):
            raise ValueRangeError("max_q_len", str(self.max_q_len), f"0, or {self.q_len} as q_len")
        object.__setattr__(self, "batch_invariant", flag("batch_invariant", self.batch_invariant))
        object.__setattr__(self, "shape", (self.variant, self.batch, self.q_len, self.num_heads, self.max_q_len))


class Kernel:
    """A variant bound to a config: call it on tensors. ``lookup`` makes it.

    ``kernel(...)`` is ``kernel.launch(...)``; CPython calls a method faster than an object. A kernel can be copied and
    pickled; another process binds the same variant of the payload that is installed there.

    Attributes
    ----------
    variant : Variant
    config : Mapping[str, str | int]
        What the lookup asked for; its numbers are exact limits of the kernel.
    """

    __slots__ = ("_bind", "_d_qk", "_d_v", "_launch", "_limits", "_native", "config", "variant")
    _broadcast: ClassVar[Mapping[str, tuple[str, int]]] = {}
    """Tensors that callers may give without a dimension, and the tensor and axis that have it."""
    _sized_by: ClassVar[Mapping[str, Collection[str]]] = {}
    """The dimensions that the sizes of buffers depend on, and what else of a call tells each."""
    _left_out: ClassVar[frozenset[str]] = frozenset()
    """Outputs that a bool leaves out or allocates."""
    launch: Callable[..., Any]
    __call__: Callable[..., Any]

    def __init__(self, variant: Variant, config: Mapping[str, Value], bind: Bind, limits: Limits) -> None:
        self.variant = variant
        self.config = config
        self._d_qk = int(variant.baked.get("d_qk", HEAD_DIM))
        self._d_v = int(variant.baked.get("d_v", LATENT))
        self._bind = bind
        self._limits = limits
        self._native = bind(limits=limits)
        self._launch: NativeLaunch = self._native.launch

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.variant, self.config, self._bind, self._limits)

    def __repr__(self) -> str:
        numbers = "".join(f", {name}={value}" for name, value in self.config.items() if isinstance(value, int))
        return f"<Kernel {self.variant.name}{numbers}>"

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Make a plan; only ops whose work is scheduled ahead have one."""
        raise UnsupportedError("plan", f"a kernel of {self.variant.op}", "a kernel of decode; the others need no plan")

    def plan_size(self, **problem: object) -> int:
        """Bytes of a plan's buffer; 0 where the kernel needs none.

        Parameters
        ----------
        **problem
            As of ``workspace_size``; a device of CUDA is that of a tensor, or ``device`` by its ordinal.

        Returns
        -------
        int
            It depends on shapes, ``max_splits``, ``batch_invariant`` and the device only, never on lengths.

        Raises
        ------
        InvalidArgumentError
            As of ``workspace_size``.
        """
        problem = self._sized(problem)
        size = self._native_for(problem).plan_size(problem)
        self._require_extents(problem)
        return size

    def workspace_size(self, **problem: object) -> int:
        """Bytes of workspace that a launch needs.

        Parameters
        ----------
        **problem
            Arguments of the call by name, or the dimensions that they would have: ``q=q`` or ``batch=8, q_len=1,
            num_heads=128``, and ``topk`` for sparse attention. Numbers that the kernel's config fixes may be left out.
            ``batch_invariant`` is by default what ``mla_kernels.batch_invariant`` says.

        Returns
        -------
        int
            It depends on shapes, ``max_splits`` and ``batch_invariant`` only, never on lengths.

        Raises
        ------
        InvalidArgumentError
            The size depends on a number that is neither given nor fixed, or an argument is refused as in a launch.
        """
        problem = self._sized(problem)
        size = self._native_for(problem).workspace_size(problem)
        self._require_extents(problem)
        return size

    def can_run(self, **problem: object) -> bool:
        """Whether the launch of ``problem`` would be accepted; on CUDA, lengths and indices are read for it.

        Parameters
        ----------
        **problem
            The arguments of the launch by name.

        Returns
        -------
        bool
            Always True: where a launch would refuse, the same error is raised here.

        Raises
        ------
        MlaError
            What the launch would raise.
        """
        problem = self._launched(problem)
        self._native_for(problem).can_run(problem)
        argument, *others = _launcher.OPS[self.variant.op]
        whole = argument in problem and problem.keys() >= set(others)
        if whole and device_of(argument, first(problem[argument]))[0] != "cpu":
            from mla_kernels.kernels.device_checks import verify  # only a launch that is checked has use for it

            verify(self.variant.op, problem)
        return True

    def prepare(self, device: int = 0) -> None:
        """Load what a launch on a device needs, so that the first one can be captured in a CUDA graph.

        Parameters
        ----------
        device : int
            The ordinal of a CUDA device; has no effect on the host.

        Raises
        ------
        DTypeError, DeviceError
            ``device`` is no ordinal, or that device cannot run the kernel.
        """
        if not isinstance(device, int):
            accepts = "the ordinal of a CUDA device, such as 0 or torch.cuda.current_device()"
            raise DTypeError("device", quoted(device), accepts)
        self._native.prepare(device)

    def _native_for(self, problem: Mapping[str, object]) -> _launcher.Kernel:
        """The launcher's kernel whose limits are those of such a problem."""
        return self._native

    def _sized(self, problem: dict[str, object]) -> dict[str, object]:
        """The arguments of a call whose sizes are asked for, with the numbers that the config fixes."""
        problem = self._launched(problem)
        return problem | {name: self.config[name] for name in self._untold(problem) if name in self.config}

    def _untold(self, problem: Mapping[str, object]) -> list[str]:
        """The dimensions that sizes depend on and nothing of a problem tells."""
        return [
            name
            for name, tellers in self._sized_by.items()
            if all(problem.get(teller) is None for teller in (name, *tellers))
        ]

    def _require_extents(self, problem: Mapping[str, object]) -> None:
        """Refuse a problem whose size is not known; after the launcher, which refuses wrong arguments by their names.

        Raises
        ------
        ValueRangeError
        """
        for name in self._untold(problem):
            self._number(name, None)

    def _launched(self, problem: dict[str, object]) -> dict[str, object]:
        """The arguments of a call as its launch has them."""
        for name in self._left_out & problem.keys():
            if isinstance(problem[name], bool):
                problem[name] = None
        for name, (like, axis) in self._broadcast.items():
            if name in problem:
                problem[name] = widened(problem[name], first(problem.get(like)), axis)
        return problem

    def _out_dtype(self) -> str:
        return str(self.variant.baked["out_dtype"])

    def _unplanned(self, plan_bytes: int) -> WorkspaceError:
        """What a launch raises where the payload asks for a plan that the op does not have."""
        return WorkspaceError("plan", "None", f"{plan_bytes} bytes, which no {self.variant.op} can be given")

    def _number(self, name: str, given: int | None) -> int:
        """A number given by the caller, or fixed by the config."""
        value = self.config.get(name) if given is None else given
        if value is None:
            where = "here or to lookup" if name in FIELDS else "here"
            accepts = f"an integer, because the kernel's config does not fix it; pass {name} {where}"
            raise ValueRangeError(name, "None", accepts)
        return count(name, value)


def require_together(name: str, extra: object, indices: object, lengths: object) -> None:
    """Refuse a second cache without indices into it, indices without the cache, and lengths without both.

    Raises
    ------
    UnsupportedError
    """
    if (extra is None) is not (indices is None):
        missing, given = ("extra_indices", name) if indices is None else (name, "extra_indices")
        raise UnsupportedError(missing, "None", f"a tensor, because {given} is given")
    if indices is None and lengths is not None:
        raise UnsupportedError("extra_topk_length", "a tensor", "None, because extra_indices is None")


def limits(variant: Variant, config: Mapping[str, Value]) -> Limits:
    """The extents that a kernel takes: exactly the config's numbers, and elsewhere what the variant accepts."""
    contiguous = config.get("kv_layout") == "contiguous"
    result: dict[str, tuple[int, int, int]] = {}
    for name, domain in variant.accepts.items():
        fixed = config.get(name)
        if name == "page_size" and contiguous:
            continue
        if isinstance(fixed, int):
            result[name] = (fixed, fixed, 1)
        elif isinstance(domain, Range):
            result[name] = (domain.min, NO_END if domain.max is None else domain.max, domain.multiple_of)
        else:
            numbers = [value for value in domain.values if isinstance(value, int)]
            if numbers:
                result[name] = (min(numbers), max(numbers), 1)
    return result
