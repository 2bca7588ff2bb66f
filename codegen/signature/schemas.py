"""The schemas of ``torch.library``, and what Python must know to read their values."""

from __future__ import annotations

import json

from codegen.signature.arguments import Op

_IN_SCHEMA = {"float": "float", "int": "SymInt", "bool": "bool"}
_PLAN = ("Tensor? plan", "str plan_variant", "SymInt[] plan_shape")


def lines(op: Op) -> list[str]:
    """The arguments of the op's ``Signature``, as Python prints them."""
    by = (*(option.name for option in op.options), *(scalar.name for scalar in op.scalars if scalar.configured))
    named = {
        "order": order(op),
        "packed": tuple(tensor.name for tensor in op.inputs if tensor.packed),
        "selects": op.selects,
        "selects_by": by,
        "selects_only": tuple(option.name for option in op.options),
        "layout": op.layout,
        "plans": op.plans,
        "ragged": op.ragged,
        "planned": tuple(scalar.name for scalar in op.scalars if scalar.planned),
    }
    result = ["schema=(", *[f"    {json.dumps(part)}" for part in _schema(op)], "),"]
    for name, value in named.items():
        if value:
            result += (
                _assigned(name, [json.dumps(part) for part in value])
                if isinstance(value, tuple)
                else [f"{name}={json.dumps(value)},"]
            )
    return result + _assigned("outputs", _outputs(op))


def _assigned(name: str, parts: list[str]) -> list[str]:
    """A tuple as an argument, one part a line where it has many."""
    one = f"{name}=({', '.join(parts)}{',' if len(parts) == 1 else ''}),"
    return [one] if len(one) < 110 else [f"{name}=(", *[f"    {part}," for part in parts], "),"]


def order(op: Op) -> tuple[str, ...]:
    """What callers bring: tensors, the plan, names and numbers."""
    tensors = (tensor.name for tensor in op.inputs)
    plan = ("plan",) if op.plans else ()
    options = (option.name for option in op.options)
    return (*tensors, *plan, *options, *(scalar.name for scalar in op.scalars))


def _schema(op: Op) -> list[str]:
    """The schema in parts, an argument each."""
    plan = _PLAN if op.plans else ()
    options = (f"str? {option.name}" for option in op.options)
    scalars = (f"{_IN_SCHEMA[scalar.python]} {scalar.name}" for scalar in op.scalars)
    arguments = [*_tensors(op), *plan, *options, *scalars]
    results = ", ".join("Tensor" for _ in op.outputs)
    returned = results if len(op.outputs) == 1 else f"({results})"
    return ["(", *[f"{argument}, " for argument in arguments[:-1]], arguments[-1], f") -> {returned}"]


def _tensors(op: Op) -> list[str]:
    """The tensors in a schema: latent and rope are two, and what is written has a letter."""
    letters = iter("abcdefgh")
    arguments = []
    for tensor in op.inputs:
        parts = {tensor.name: tensor.may_be_none} | ({tensor.rope: True} if tensor.packed else {})
        for name, optional in parts.items():
            alias = f"({next(letters)}!)" if tensor.written else ""
            arguments.append(f"Tensor{alias}{'?' if optional else ''} {name}")
    return arguments


def _outputs(op: Op) -> list[str]:
    sources = {dim: (tensor.name, axis) for tensor in reversed(op.inputs) for axis, dim in enumerate(tensor.shape)}
    result = []
    for tensor in op.outputs:
        extents = [str(dim) if isinstance(dim, int) else '("{}", {})'.format(*sources[dim]) for dim in tensor.shape]
        if tensor.width:
            extents[-1] = f'"{tensor.width}"'
        shape = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
        result.append(f'Output("{tensor.name}", "{tensor.dtype}", "{tensor.made}", {shape})')
    return result
