"""Methods of kernels and lookups with odd numbers and odd names: an answer or a typed error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mla_kernels as mla

from tests.fuzz.changes.arguments import shown
from tests.fuzz.judge import inspectable, kernel_of
from tests.fuzz.memory import Array, Space
from tests.fuzz.problems.case import Case, Maker

NUMBERS: tuple[Any, ...] = (-1, 2**31, 2**63, 2**70, -(2**63), "x", None, 1.5, True, [], object(), b"", ())
FIELDS = (
    "page_size", "num_heads", "q_len", "topk", "head_dim", "q_dtype", "kv_dtype", "out_dtype", "arch", "load", "d_qk",
    "d_v", "compute_dtype",
)  # fmt: skip


class Key(str):
    """A name that equals no other, not even one that reads the same."""

    __slots__ = ()

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def asked(make: Maker, case: Case) -> Case:
    """Ask about a legal case in an odd way."""
    way = make.random.choice((names, sizes, prepare, lookups, lookups))
    case.kind, case.how, case.verdict = "asked", "asked", "either"
    case.notes["call"] = way(make, case)
    return case


Call = Callable[[dict[str, Any], Space], Callable[[], Any]]


def names(make: Maker, case: Case) -> Call:
    """Many names that read alike."""
    arrays = [name for name, value in case.arguments.items() if isinstance(value, Array)]
    name, count = make.random.choice(arrays), make.random.choice((2, 20, 30, 60, 200))
    method = make.random.choice(("workspace_size", "can_run", "plan_size"))
    case.verdict, case.names = "refuse", (name, "TypeError", *case.arguments)
    case.label = f"{method} with many arguments of one name"
    if make.device == "cpu":
        case.notes["framework"] = "numpy"

    def call(arguments: dict[str, Any], space: Space) -> Callable[[], Any]:
        kernel = kernel_of(case)
        return lambda: getattr(kernel, method)(**{Key(name): arguments[name] for _ in range(count)})

    return call


def sizes(make: Maker, case: Case) -> Call:
    """Sizes of problems with odd extents."""
    method = make.random.choice(("workspace_size", "plan_size", "can_run"))
    wanted = (
        "batch", "q_len", "num_heads", "topk", "max_splits", "device", "num_tokens", "page_size", "other", "q",
        "num_requests", "max_q_len",
    )  # fmt: skip
    problem = {name: make.random.choice((1, 2, 64, *NUMBERS)) for name in make.random.sample(wanted, 3)}
    case.names = (*wanted, *inspectable(case.op), "TypeError", "plan", "batch")
    case.label = f"{method}({', '.join(sorted(problem))})"
    return lambda arguments, space: lambda: getattr(kernel_of(case), method)(**problem)


def prepare(make: Maker, case: Case) -> Call:
    """Odd devices."""
    value = make.random.choice(NUMBERS)
    case.names, case.label = ("device",), f"prepare({shown(value)})"
    case.verdict = "either"
    return lambda arguments, space: lambda: kernel_of(case).prepare(value)


def lookups(make: Maker, case: Case) -> Call:
    """A lookup whose fields are odd."""
    name = make.random.choice(FIELDS)
    value = make.random.choice((*NUMBERS, "", "fp99", "no", 0))
    function = make.random.choice(("lookup", "variants", "explain"))
    case.names, case.label = (name, f"config field of {case.op}"), f"{function}({name}={shown(value)})"
    if value == "" and name.endswith("dtype"):
        case.verdict = "refuse"
    config: dict[str, Any] = {"op": case.op, "arch": case.variant.arch, name: value}
    return lambda arguments, space: lambda: getattr(mla, function)(**config)
