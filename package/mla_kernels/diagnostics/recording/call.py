"""One call of an op: what it was given, what it gave, and what ran it; as an object, and as a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mla_kernels.api.signatures import SIGNATURES
from mla_kernels.diagnostics.recording import tensor_file
from mla_kernels.errors import RecordError

FORMAT, VERSION = "mla_kernels call", "1"
_KINDS = {"float": (float, int), "bool": (bool,), "SymInt": (int,), "str": (str,)}
_SECOND = ".rope"
"""What follows the name of a pair in the name of its second tensor."""
_INPUT, _OUTPUT, _PAGES = "input.", "output.", "pages."


class Argument(NamedTuple):
    """An argument as the signature of its op states it."""

    kind: str
    optional: bool
    written: bool

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor or a pair of them."""
        return self.kind == "Tensor"


@dataclass
class Call:
    """A call that was recorded.

    Attributes
    ----------
    op, arch, variant : str
    baked : dict
        The traits of the variant.
    inputs : dict
        The arguments by name: tensors of the host, pairs of them, numbers, or None. An op that writes one of them has
        it here as it was before.
    outputs : dict
        The results by name, and what the op writes, as it was afterwards; empty where the launch failed.
    planned : dict
        The numbers that a plan brought; empty without a plan.
    invariant : bool
        Whether ``mla_kernels.batch_invariant`` was on.
    pages : dict
        Of a cache of which only some pages are kept, their numbers in the pool.
    pool : dict
        How many pages that pool had.
    strides : dict
        Of each tensor whose memory was not contiguous, by its name in the file.
    failure : str
        What the launch raised; empty where it gave a result.
    info : dict
        What ``mla-kernels info --json`` prints, and more of the machine and the payload.
    """

    op: str
    arch: str
    variant: str
    baked: dict[str, str | int]
    inputs: dict[str, Any]
    outputs: dict[str, Any] = field(default_factory=dict)
    planned: dict[str, Any] = field(default_factory=dict)
    invariant: bool = False
    pages: dict[str, torch.Tensor] = field(default_factory=dict)
    pool: dict[str, int] = field(default_factory=dict)
    strides: dict[str, list[int]] = field(default_factory=dict)
    failure: str = ""
    info: dict[str, Any] = field(default_factory=dict)


_STATED = ("op", "arch", "variant", "baked", "planned", "invariant", "pool", "strides", "failure", "info")
"""Attributes that are kept as JSON; ``numbers`` stands beside them for inputs that are no tensors."""


def arguments(op: str) -> dict[str, Argument]:
    """The arguments of an op's launch but for what it allocates: read off the signature, which the generator writes."""
    signature = SIGNATURES[op]
    stated = {
        name: Argument(kind, bool(optional), bool(written))
        for kind, written, optional, name in re.findall(r"(\w+)(\(\w!\))?(\?)? (\w+)(?=[,)])", signature.schema)
    }
    left_out = {"plan", *signature.planned, *signature.selects_only}
    return {name: stated[name] for name in signature.order if name not in left_out}


def written(op: str) -> tuple[str, ...]:
    """The inputs that an op writes."""
    return tuple(name for name, argument in arguments(op).items() if argument.written)


def parts(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """A tensor, or each of a pair, with its name in a file."""
    if isinstance(value, tuple):
        yield from zip((name, f"{name}{_SECOND}"), value, strict=True)
    elif isinstance(value, torch.Tensor):
        yield name, value


def save(call: Call, path: Path) -> None:
    """Write a call to a file."""
    tensors: dict[str, torch.Tensor] = {}
    for prefix, values in ((_INPUT, call.inputs), (_OUTPUT, call.outputs), (_PAGES, call.pages)):
        for name, value in values.items():
            tensors.update(parts(prefix + name, value))
    stated = {name: getattr(call, name) for name in _STATED}
    stated["numbers"] = {name: value for name, value in call.inputs.items() if not arguments(call.op)[name].is_tensor}
    metadata = {"format": FORMAT, "version": VERSION, "call": json.dumps(stated, allow_nan=False)}
    tensor_file.write(path, tensors, metadata)


def load(path: Path) -> Call:
    """Read a call from a file that may come from anybody.

    Raises
    ------
    RecordError
        The file is no recorded call, or not one that this version can read.
    """
    tensors, metadata = tensor_file.read(path)
    if metadata.get("format") != FORMAT:
        raise RecordError(f"{path} is not a recorded call: its metadata do not say '{FORMAT}'")
    if metadata.get("version") != VERSION:
        raise RecordError(
            f"{path} is a recorded call of version {metadata.get('version')}; this package reads {VERSION}"
        )
    try:
        stated = json.loads(metadata.get("call", ""))
        return _call(stated, tensors)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        why = str(error) or type(error).__name__
        raise RecordError(f"{path} is not a recorded call: {why}") from error


def _call(stated: Mapping[str, Any], tensors: dict[str, torch.Tensor]) -> Call:
    _require(isinstance(stated, dict) and stated.keys() == {*_STATED, "numbers"}, "its description lacks a field")
    for name in ("baked", "planned", "pool", "strides", "info", "numbers"):
        _require(isinstance(stated[name], dict), f"{name} is not an object")
    for name in ("op", "arch", "variant", "failure"):
        _require(isinstance(stated[name], str), f"{name} is not a string")
    _require(type(stated["invariant"]) is bool, "invariant is no flag")
    _require(stated["op"] in SIGNATURES, f"this version has no op {stated['op']!r}")
    call = Call(
        **{name: stated[name] for name in _STATED},
        inputs=dict(stated["numbers"]),
        outputs=_grouped(tensors, _OUTPUT),
        pages=_grouped(tensors, _PAGES),
    )
    known, given = arguments(call.op), _grouped(tensors, _INPUT)
    _require(not given.keys() & call.inputs.keys(), "an argument is a tensor and a number")
    call.inputs |= given
    for name in call.inputs:
        _require(name in known, f"this version has no argument {name!r} of {call.op}")
    for name, argument in known.items():
        value = call.inputs.setdefault(name, None) if argument.is_tensor else call.inputs.get(name)
        _require(_fits(argument, value, name in call.inputs), f"{name} is not what {call.op} takes")
    _require_results(call)
    return call


def _require_results(call: Call) -> None:
    """Refuse results that the op does not have, and numbers and names that are something else."""
    signature = SIGNATURES[call.op]
    results = {*(output.name for output in signature.outputs), *written(call.op)}
    _require(call.outputs.keys() <= results, f"a result is none of {call.op}")
    _require(bool(call.outputs) != bool(call.failure), "it has neither results nor a failure, or both")
    _require(all(type(value) in (str, int) for value in call.baked.values()), "a trait is no name or number")
    _require(call.planned.keys() <= {*signature.planned}, "a plan has other numbers")
    _require(all(type(value) in (bool, int) for value in call.planned.values()), "a plan has other numbers")
    _require(all(type(value) is int and value >= 0 for value in call.pool.values()), "a pool has no size")
    _require(all(pages.dim() == 1 for pages in call.pages.values()), "numbers of pages are no list")
    for name in written(call.op):
        if call.outputs:
            _require(_form(call.outputs.get(name)) == _form(call.inputs[name]), f"{name} has changed its shape")
    for strides in call.strides.values():
        _require(isinstance(strides, list) and all(type(each) is int for each in strides), "strides are no integers")


def _fits(argument: Argument, value: object, given: bool) -> bool:
    if argument.is_tensor:
        return isinstance(value, (torch.Tensor, tuple)) or (value is None and argument.optional)
    if value is None:
        return argument.optional or not given
    return type(value) in _KINDS[argument.kind]


def _form(value: Any) -> list[object]:
    return [(tensor.shape, tensor.dtype) for _, tensor in parts("", value)]


def _grouped(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, Any]:
    """The tensors under a prefix by argument; two of one argument are a pair."""
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    firsts = {name: tensor for name, tensor in own.items() if not name.endswith(_SECOND)}
    seconds = {name.removesuffix(_SECOND): tensor for name, tensor in own.items() if name.endswith(_SECOND)}
    _require(seconds.keys() <= firsts.keys(), "a tensor of a pair is alone")
    return {name: (tensor, seconds[name]) if name in seconds else tensor for name, tensor in firsts.items()}


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
