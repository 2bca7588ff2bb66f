"""Runs one case and says what is wrong with what came of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import mla_kernels as mla
import numpy as np
import torch
from mla_kernels.errors import InternalError, InvalidArgumentError, MlaError, PayloadError, VariantNotFoundError

from tests.fuzz.memory import Array, Space
from tests.fuzz.model import Answer
from tests.fuzz.problems.case import RETURNED, Case

OF_THE_PLAN = ("max_splits", "batch_invariant", "max_q_len")
OF_THE_OP = ("out_dtype", "kv_dtype", "extra_kv_dtype", "compute_dtype")


@dataclass
class Outcome:
    """What became of a case.

    Attributes
    ----------
    end : str
        ``accepted`` or ``refused``, or the name of what was raised.
    fault : str
        The class of the fault, such as ``wrong answer``; empty where there is none.
    detail : str
    """

    end: str
    fault: str = ""
    detail: str = ""


class FaultError(Exception):
    """Something is wrong; the first argument is its class."""


def tensor_of(value: Any) -> Any:
    """The argument as a call takes it."""
    if isinstance(value, Array):
        return value.tensor
    if isinstance(value, tuple) and any(isinstance(part, Array) for part in value):
        return tuple(part.tensor if isinstance(part, Array) else part for part in value)
    return value


def lay(case: Case, space: Space) -> dict[str, Any]:
    """Lay every array of a case into memory, and return the arguments of the call."""
    for _, array in case.arrays():
        if array.region is None:
            space.put(array)
    found = {name: tensor_of(value) for name, value in case.arguments.items()}
    if "change" in case.notes:
        name, part, change = case.notes["change"]
        given = found[name]
        found[name] = (
            tuple(change(one) if i == part else one for i, one in enumerate(given)) if part >= 0 else change(given)
        )
    return found


def kernel_of(case: Case) -> Any:
    """The kernel of the case's variant."""
    return mla.lookup(op=case.op, arch=case.variant.arch, **case.variant.traits)


def direct(case: Case, space: Space, arguments: dict[str, Any]) -> Callable[[], Any]:
    """A launch of the kernel itself, with its workspace and often its plan in watched memory."""
    kernel = kernel_of(case)
    options = {name: arguments.pop(name) for name in OF_THE_PLAN if name in arguments and case.op == "decode"}
    for name in OF_THE_OP:
        arguments.pop(name, None)
    problem = {name: value for name, value in arguments.items() if is_of_problem(case, name, value)}
    if case.how == "planned" or "max_q_len" in options:
        options = {"max_splits": 0, "batch_invariant": False} | options
        arguments["plan"] = planned(case, space, kernel, arguments["seq_lens"], options)
        problem |= options
    if case.notes.get("workspace"):
        arguments["workspace"] = workspace(case, space, kernel.workspace_size(**problem))
    return lambda: kernel(**arguments)


def planned(case: Case, space: Space, kernel: Any, seq_lens: Any, options: dict[str, Any]) -> Any:
    """A plan in watched memory."""
    batch, q_len, num_heads = case.notes["dims"]
    dims = {"batch": batch, "q_len": q_len, "num_heads": num_heads}
    ragged = {"batch": 1, "num_requests": batch, "num_heads": num_heads}
    size = kernel.plan_size(**(ragged if "max_q_len" in options else dims), **options, **on(case))
    buffer = case.notes["plan"] = Array("uint8", (size,), (1,), align=16)
    plan = mla.Plan(space.put(buffer), case.variant.name, **dims, **options)
    kernel.plan(seq_lens, out=plan)
    if forge := case.notes.get("forge"):
        forge(buffer)
    assert buffer.region is not None
    buffer.region.before[...] = buffer.region.arena.read(buffer.region.begin, len(buffer.region.before))
    return plan


def workspace(case: Case, space: Space, size: int) -> Any:
    """Memory of exactly so many bytes, or a wrong one where the case wants that and there is one."""
    wish, step, align = case.notes["workspace"], 1, 16
    if size and wish is not True:
        case.verdict, case.names, case.label = "refuse", ("workspace",), f"a workspace that is {wish}"
        size, step, align = {"small": (size - 1, 1, 16), "gapped": (size, 2, 16), "odd": (size, 1, 1)}[wish]
        if wish == "odd" and size % 16 == 0:
            size += 1  # then the end of the arena makes its first byte odd
    case.notes["room"] = room = Array("uint8", (size,), (step,), align=align)
    return space.put(room)


def is_of_problem(case: Case, name: str, value: Any) -> bool:
    """Whether sizes are asked with an argument: not with what only the call itself takes."""
    short = name.endswith("topk_length") and len(getattr(value, "shape", ())) == 1 and case.op == "sparse_decode"
    return name in inspectable(case.op) and not short and not (name in RETURNED[case.op] and isinstance(value, bool))


def on(case: Case) -> dict[str, int]:
    """The device, where sizes depend on it."""
    return {"device": 0} if case.variant.arch != "cpu" else {}


_KNOWN: dict[str, frozenset[str]] = {}


def inspectable(op: str) -> frozenset[str]:
    """The arguments of a launch."""
    if op not in _KNOWN:
        from mla_kernels import _launcher

        _KNOWN[op] = frozenset(_launcher.OPS[op])
    return _KNOWN[op]


def call_of(case: Case, space: Space, arguments: dict[str, Any]) -> Callable[[], Any]:
    """The call of a case."""
    if "call" in case.notes:
        made: Callable[[], Any] = case.notes["call"](arguments, space)
        return made
    if case.how == "op":
        op = getattr(mla, case.op)
        return lambda: op(**arguments)
    return direct(case, space, arguments)


def judged(case: Case, space: Space, settle: Callable[[], None] = lambda: None) -> Outcome:
    """Run a case and compare what it did with what it should have."""
    arguments = lay(case, space)
    try:
        with torch.no_grad() if case.notes.get("no_grad") else nullcontext():
            result = call_of(case, space, dict(arguments))()
        settle()
    except Exception as error:
        settle()
        return refused(case, space, error)
    try:
        check_accepted(case, arguments, result, space)
    except FaultError as fault:
        return Outcome("accepted", *map(str, fault.args))
    return Outcome("accepted")


def refused(case: Case, space: Space, error: Exception) -> Outcome:
    """Judge a refusal: its type, the argument it names, and that nothing was written."""
    end = type(error).__name__
    try:
        check_error(case, error)
        for region in space.regions:
            if not np.array_equal(region.arena.read(region.begin, len(region.before)), region.before):
                raise FaultError("written before a refusal", str(error))
    except FaultError as fault:
        return Outcome(end, *map(str, fault.args))
    return Outcome(end)


def check_error(case: Case, error: Exception) -> None:
    """Raise a fault unless the error is typed, names its argument, and was due."""
    said = f"{type(error).__name__}: {error}"
    if "NULL" in str(error) or not str(error):
        raise FaultError("an error without its reason", said)
    if isinstance(error, TypeError) and not isinstance(error, MlaError):
        if "TypeError" not in case.names:
            raise FaultError("untyped error", said)
        return
    if not isinstance(error, MlaError) or isinstance(error, (InternalError, PayloadError)):
        raise FaultError("untyped error", said)
    if case.verdict == "accept":
        raise FaultError("a legal call is refused", said)
    if isinstance(error, InvalidArgumentError):
        named = error.argument.partition("[")[0]
        known = case.names or (*inspect.signature(getattr(mla, case.op)).parameters, "plan")
        if named not in known:
            raise FaultError("another argument is named", f"{said} (one of {', '.join(known)} was wrong)")
        if error.got.isidentifier() and error.got in error.accepts.replace(",", " ").split():
            raise FaultError("an error that contradicts itself", said)
    elif not isinstance(error, VariantNotFoundError):
        raise FaultError("untyped error", said)


def check_accepted(case: Case, arguments: dict[str, Any], result: Any, space: Space) -> None:
    """Raise a fault unless the call was legal, its results are right, and nothing else was written."""
    if case.verdict == "refuse":
        raise FaultError("an illegal call is accepted", case.label)
    answers: dict[str, Answer] = {}
    if case.how != "asked":
        answers = case.answers()
        check_results(case, arguments, result, answers)
    check_regions(case, space, answers)


def check_results(case: Case, arguments: dict[str, Any], result: Any, answers: dict[str, Answer]) -> None:
    """Raise a fault where a result is wrong, or is not the tensor that was given for it."""
    returned = dict(zip(RETURNED[case.op], result if type(result) is tuple else (result,), strict=False))
    if case.op == "gather_kv":
        returned = {"out": result}
    if case.op == "store_kv":
        returned = {"kv_cache": None}
    for name, got in returned.items():
        given = case.arguments.get(name)
        if given is False or (got is None and name != "kv_cache"):
            if given is not False:
                raise FaultError("wrong answer", f"{name} is None")
            continue
        arrays = [part for part in (given if isinstance(given, tuple) else (given,)) if isinstance(part, Array)]
        if arrays and name != "kv_cache" and got is not arguments[name] and type(got) is not tuple:
            raise FaultError("wrong answer", f"{name} is not the tensor that was given")
        bits = read(arrays) if arrays else bits_of(got)
        if fault := answers[name].fault(bits):
            raise FaultError("wrong answer", f"{name}{fault}")


def check_regions(case: Case, space: Space, answers: dict[str, Answer]) -> None:
    """Raise a fault where a byte was written that belongs to no output."""
    written = {"kv_cache"} if case.op == "store_kv" else set(RETURNED[case.op])
    outputs = [(array, answers.get(name)) for name, array in case.arrays() if name in written]
    outputs += [(case.notes[name], None) for name in ("room",) if name in case.notes]
    inside = {id(region): region.arena.read(region.begin, len(region.before)).copy() for region in space.regions}
    for array, answer in outputs:
        if array.span:
            after = inside[id(array.region)]
            own = True if answer is None or answer.untouched is None else ~answer.untouched
            np.copyto(array.view(after), array.view(array.region.before), where=own)
    owners = {id(array.region): name for name, array in case.arrays()}
    for region in space.regions:
        after = inside[id(region)]
        if not np.array_equal(after, region.before):
            place = int(np.flatnonzero(after != region.before)[0])
            name = owners.get(id(region), "plan or workspace")
            what = "memory beside an output is overwritten" if name in written else "an input is changed"
            raise FaultError(
                what, f"{name}: byte {place} of {len(after)} is {after[place]}, was {region.before[place]}"
            )


def read(arrays: list[Array]) -> np.ndarray:
    """The stored elements of a result."""
    found = []
    for array in arrays:
        region = array.region
        assert region is not None
        found.append(array.view(region.arena.read(region.begin, len(region.before))).copy())
    return found[0] if len(found) == 1 else np.concatenate(found, axis=-1)


def bits_of(tensor: Any) -> np.ndarray:
    """The stored elements of a tensor that the call allocated."""
    if isinstance(tensor, np.ndarray):
        return tensor
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(np.uint16)
    return plain.numpy()
