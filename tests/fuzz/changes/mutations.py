"""Calls with one wrong argument: each must be refused by a typed error that names it, and write nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from codegen.abi import OP
from codegen.signature.arguments import Tensor
from tests.fuzz.changes.arguments import extra, refuse, scalar, shown
from tests.fuzz.changes.producers import PRODUCERS, Raising
from tests.fuzz.elements import STORED
from tests.fuzz.memory import TORCH, Array, Space
from tests.fuzz.problems.case import Case, Maker

Change = Callable[[Any], Any]
"""What becomes of the tensor of an argument once it lies in memory."""

NO_TENSORS: tuple[Any, ...] = (3, 1.5, "x", b"", object(), [1, 2], {}, (), ((),), np.float32(1), torch, 2**63, ...)
FOREIGN = {
    "float": ("int32", "int64", "float64", "bool", "int8", "int16", "complex64", "float8_e5m2"),
    "int": ("int16", "uint8", "float32", "bool", "float64", "complex64", "int8"),
}


def mutated(make: Maker, case: Case, space: Space) -> Case:
    """Make one argument of a legal case wrong."""
    case.kind = "mutated"
    op = OP[case.op]
    choices: list[Callable[[Maker, Case, Space], None]] = [tensor] * 8 + [scalar] * 3 + [extra] * 2
    if not op.scalars:
        choices = [tensor] * 8 + [extra] * 2
    make.random.choice(choices)(make, case, space)
    return case


def tensor(make: Maker, case: Case, space: Space) -> None:
    """Make a tensor wrong."""
    rows = {row.name: row for row in OP[case.op].tensors}
    names = [name for name in rows if name in case.arguments or not rows[name].optional]
    row = rows[make.random.choice(names)]
    given = case.arguments.get(row.name)
    whole = given if isinstance(given, (Array, tuple)) else None
    if whole is None or make.chance(0.25):
        no_tensor(make, case, row)
        return
    part = make.random.randrange(len(whole)) if isinstance(whole, tuple) else -1
    array = whole[part] if isinstance(whole, tuple) else whole
    make.random.choice(TENSORS)(make, case, row, array, part, space)


def no_tensor(make: Maker, case: Case, row: Tensor) -> None:
    """Give something that is no tensor, or none where one must be."""
    value = make.random.choice(NO_TENSORS)
    if not row.optional and row.role != "output" and make.chance(0.1):
        value = None
        if row.name in ("topk_length", "block_table") or (row.name == "rope" and not case.variant.form.rope):
            return
    if row.name == "cu_seqlens_q" and make.chance(0.1):
        value = None
    if row.packed and make.chance(0.3) and row.name in case.arguments:
        value = odd_pair(make, case.arguments[row.name])
    case.arguments[row.name] = value
    refuse(case, f"{row.name} is {shown(value)}", row.name)


def odd_pair(make: Maker, given: Any) -> Any:
    """A pair that is none."""
    one = given[0] if isinstance(given, tuple) else given
    return make.random.choice((Late((one,)), Late((one, one, one)), Late((one, None)), Late((one, 3)), (None, None)))


class Late(tuple[Any, ...]):
    """A tuple whose arrays become tensors when the call is made."""

    __slots__ = ()


def changes(case: Case, row: Tensor, part: int, label: str, change: Change, verdict: str = "refuse") -> None:
    """Change a tensor once it lies in memory."""
    case.notes["change"] = (row.name, part, change)
    refuse(case, f"{row.name} {label}", *named(case, row), verdict=verdict)


def named(case: Case, row: Tensor) -> tuple[str, ...]:
    """The names that an error about an argument may give: those that say together which variant it is, too."""
    return (row.name, *OP[case.op].selects) if row.name in OP[case.op].selects else (row.name,)


def other_dtype(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """Another element type."""
    integer = array.dtype.startswith("int") and array.dtype != "uint8"
    dtype = make.random.choice(FOREIGN["int" if integer else "float"])
    changes(
        case,
        row,
        part,
        f"of {dtype}",
        lambda t: torch.zeros(tuple(t.shape), dtype=getattr(torch, dtype), device=device_of(t)),
    )


def other_rank(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """A dimension more or fewer."""
    if row.broadcast or row.row == 1:
        return no_tensor(make, case, row)
    way = make.random.choice(("more", "fewer", "none"))
    if way == "more":
        return changes(case, row, part, "with a dimension more", lambda t: t[None])
    if way == "fewer" and array.shape and array.shape[0] > 0:
        return changes(case, row, part, "with a dimension fewer", lambda t: t[0])
    return changes(
        case, row, part, "without dimensions", lambda t: torch.zeros((), dtype=TORCH[array.dtype], device=device_of(t))
    )


def other_extent(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """An extent that contradicts the other tensors, or a width that no format has."""
    dims = list(row.dims)
    shared = [i for i, dim in enumerate(dims) if i < len(array.shape) and is_shared(case, dim) and row.broadcast != dim]
    wide = len(array.shape) > len(dims) and row.row not in (None, "head_dim")
    if wide and (not shared or make.chance(0.4)):
        place, by = len(dims), make.random.choice((-1, 1, 2))
    elif shared:
        place, by = make.random.choice(shared), make.random.choice((-1, 1, 3))
    else:
        return no_tensor(make, case, row)
    shape = list(array.shape)
    shape[place] = max(0, shape[place] + by)
    if tuple(shape) == array.shape or array.dtype not in TORCH:
        return no_tensor(make, case, row)
    changes(
        case,
        row,
        part,
        "of another extent",
        lambda t: torch.zeros(shape, dtype=TORCH[array.dtype], device=device_of(t)),
    )
    case.names = ()
    return None


def is_shared(case: Case, dim: str) -> bool:
    """Whether an extent follows from another tensor."""
    return dim == "num_bounds" or sum(dim in row.dims for row in given_rows(case)) > 1


def given_rows(case: Case) -> list[Tensor]:
    """The tensors that a case gives."""
    return [row for row in OP[case.op].tensors if isinstance(case.arguments.get(row.name), (Array, tuple))]


def device_of(tensor: Any) -> Any:
    """Where a tensor is."""
    return tensor.device if isinstance(tensor, torch.Tensor) else "cpu"


def other_stride(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """A stride along a dimension that must have none, or one that makes written elements overlap."""
    letters = [*row.strides, *([""] if len(array.shape) > len(row.dims) else [])]
    fixed = [i for i, letter in enumerate(letters) if not letter and i < len(array.shape) and array.shape[i] > 1]
    if row.written and array.shape and max(array.shape) > 1 and make.chance(0.5):
        place = make.random.choice([i for i, n in enumerate(array.shape) if n > 1])
        steps = tuple(0 if i == place else s for i, s in enumerate(array.strides))
    elif fixed:
        place = make.random.choice(fixed)
        step = make.random.choice((0, 2, 3))
        steps = tuple(step if i == place else s * 3 for i, s in enumerate(array.strides))
    else:
        return no_tensor(make, case, row)
    if 0 in array.shape:
        return no_tensor(make, case, row)
    case.arguments[row.name] = swapped(case.arguments[row.name], part, replace(array, strides=steps))
    refuse(case, f"{row.name} with strides {'0 where written' if 0 in steps else 'that are too wide'}", row.name)
    return None


def swapped(value: Any, part: int, array: Array) -> Any:
    """An argument with one of its arrays replaced."""
    return array if part < 0 else tuple(array if i == part else other for i, other in enumerate(value))


def backwards(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """A negative stride, which NumPy has."""
    if make.device != "cpu" or array.dtype in ("bf16", "e4m3") or not array.shape or max(array.shape) < 2:
        return no_tensor(make, case, row)
    space.framework = "numpy"
    turned = [i for i, n in enumerate(array.shape) if n > 1 and array.strides[i] > 0]
    if not turned:
        return no_tensor(make, case, row)
    place = make.random.choice(turned)
    turn = tuple(slice(None, None, -1) if i == place else slice(None) for i in range(len(array.shape)))
    if 0 in array.shape:
        return no_tensor(make, case, row)
    return changes(case, row, part, "backwards", lambda t: numpy_of(t)[turn])


def numpy_of(tensor: Any) -> np.ndarray:
    """The same memory as an array of NumPy."""
    found: np.ndarray = tensor.numpy() if isinstance(tensor, torch.Tensor) else tensor
    return found


def read_only(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """Memory that may not be written."""
    if make.device != "cpu" or array.dtype in ("bf16", "e4m3"):
        return no_tensor(make, case, row)
    space.framework = "numpy"

    def locked(tensor: Any) -> np.ndarray:
        same = numpy_of(tensor)[...]
        same.flags.writeable = False
        return same

    # NumPy may lack the type of an output that the call would allocate.
    return changes(case, row, part, "that is read-only", locked, "refuse" if row.written else "either")


def elsewhere(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """A tensor of another device or layout, or one without memory."""
    kept = TORCH[array.dtype]
    made: tuple[tuple[str, Change], ...] = (
        ("on meta", lambda t: torch.empty(tuple(t.shape), dtype=kept, device="meta")),
        ("that is sparse", lambda t: torch.zeros(tuple(t.shape), device=device_of(t)).to_sparse()),
        (
            "of zeros without memory",
            lambda t: torch._efficientzerotensor(tuple(t.shape), dtype=kept, device=device_of(t)),
        ),
    )
    if make.device != "cpu" and make.chance(0.4):
        changes(case, row, part, "on the host", lambda t: t.cpu())
        case.names = ()  # the first argument tells the device, and others may be on another one
        return
    label, change = make.random.choice(made)
    changes(case, row, part, label, change, "either" if "zeros" in label else "refuse")


def negated(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """A tensor that is negated when it is read, and whose memory holds the opposite: refused, or right."""
    if array.dtype in ("e4m3", "uint8") or 0 in array.strides:
        return no_tensor(make, case, row)
    space.framework = "torch"

    def lazily(tensor: torch.Tensor) -> torch.Tensor:
        if not row.written or row.role == "updated":
            tensor.copy_(-tensor)
            note(case, array)
        return torch._neg_view(tensor)

    label = "negated lazily"
    changes(case, row, part, label, lazily, "refuse" if row.written else "either")
    return None


def note(case: Case, array: Array) -> None:
    """Take what an array's memory holds now for what it held before."""
    region = array.region
    assert region is not None
    region.before[...] = region.arena.read(region.begin, len(region.before))


def with_gradient(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """A tensor that requires a gradient: refused only while gradients are recorded."""
    if array.dtype not in ("fp32", "fp16", "bf16") or row.written:
        return no_tensor(make, case, row)
    space.framework = "torch"
    recorded = make.chance(0.5)
    case.notes["no_grad"] = not recorded
    label = "that requires a gradient" + ("" if recorded else ", under no_grad")
    changes(case, row, part, label, lambda t: t.requires_grad_(), "refuse" if recorded else "accept")
    return None


def of_a_subclass(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """A Parameter, or a subclass that does nothing: taken."""
    space.framework = "torch"
    if make.chance(0.5) and array.dtype in ("fp32", "fp16", "bf16"):
        change: Change = lambda t: torch.nn.Parameter(t, requires_grad=False)  # noqa: E731
    else:
        change = lambda t: t.as_subclass(Plain)  # noqa: E731
    changes(case, row, part, "of a subclass", change, "accept" if make.device == "cpu" else "either")
    case.names = (*case.names, "stream")  # of a GPU, which a subclass does not tell


def from_producer(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """An object that speaks DLPack, well or badly."""
    if make.device != "cpu" or array.dtype in ("bf16", "e4m3"):
        return no_tensor(make, case, row)
    label, kind, verdict = make.random.choice(PRODUCERS)
    changes(case, row, part, label, lambda t: kind(numpy_of(t)), verdict)
    if kind is not Raising:
        case.names = ()  # what the first argument is decides how outputs are made
    return None


def unaligned(make: Maker, case: Case, row: Tensor, array: Array, part: int, space: Space) -> None:
    """An address that the size of an element does not divide."""
    if make.device != "cpu" or array.dtype in ("bf16", "e4m3", "uint8") or not array.span:
        return no_tensor(make, case, row)

    def shifted(tensor: Any) -> np.ndarray:
        room = np.zeros(array.span + 1, np.uint8)
        same = np.ndarray(
            array.shape, STORED[array.dtype], room.data, 1, [s * STORED[array.dtype].itemsize for s in array.strides]
        )
        same[...] = numpy_of(tensor)
        return same

    return changes(case, row, part, "at an odd address", shifted)


class Plain(torch.Tensor):
    """A subclass that does nothing."""


TENSORS: tuple[Callable[[Maker, Case, Tensor, Array, int, Space], None], ...] = (
    other_dtype, other_rank, other_extent, other_extent, other_stride, other_stride, backwards, read_only, elsewhere,
    negated, with_gradient, of_a_subclass,
)  # fmt: skip
