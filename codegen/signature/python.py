"""Template contexts for Python: the public functions, the kernels, the launcher's stub, and torch's schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codegen import abi
from codegen.signature import docstrings, schemas
from codegen.signature.arguments import LATENT, ROPE, Op, Scalar, Tensor

_WIDTHS = {"latent": LATENT, "rope": ROPE}
_ALLOCATED = {"float32": '"fp32"', "int32": '"int32"'}
_COMMON = {"workspace": "Tensor | None = None", "stream": "int | None = None", "check": "bool = False"}
"""What the functions of all ops take."""
_SIZED = ("batch", "q_len", "num_heads", "topk")
_SWITCHED = {"batch_invariant": "invariance.enabled"}
"""The scalars whose default is a switch."""


def context(served: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Everything that the templates of ``templates/python/`` print; ``served`` has what kernels of each op take."""
    return {"abi_hash": abi.abi_hash(), **_WIDTHS, "ops": [_op(op, served[op.name]) for op in abi.OPS]}


def _op(op: Op, served: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": op.name,
        "pascal": op.pascal,
        "options": [option.name for option in op.options],
        "planned": [scalar.name for scalar in op.scalars if scalar.planned],
        "unplanned": " and ".join(f"{s.name} is {_singleton(s)}" for s in op.scalars if s.planned),
        "planned_presets": ", ".join(_SWITCHED.get(s.name, _default(s)) for s in op.scalars if s.planned),
        "splits": any(scalar.name == "max_splits" and not scalar.planned for scalar in op.scalars),
        "sized": _sized(op) if any(scalar.name == "max_splits" for scalar in op.scalars) else {},
        "plans": op.plans,
        "ragged": op.ragged,
        "layout": op.layout,
        "first": op.first.name,
        "bounds": op.ragged.bounds if op.ragged else None,
        "like": _one(op.first),
        "arguments": [argument.name for argument in op.arguments],
        "returns": _returns(op),
        "ignored": "  # type: ignore[no-any-return]" if len(op.outputs) > 1 else "",
        **_public(op, served),
        **_launch(op),
        "signature": schemas.lines(op),
        "native": [f"{argument.name}: {_native(argument)}" for argument in op.arguments],
    }


def _sized(op: Op) -> dict[str, list[str]]:
    """The dimensions that the sizes of an op's buffers depend on, and what else of a call tells each."""
    tellers = {dim: [tensor.name for tensor in op.tensors if dim in tensor.dims] for dim in _SIZED}
    if op.ragged:
        requests = [tensor.name for tensor in op.tensors if op.ragged.requests in tensor.dims]
        tellers[op.ragged.batch] += [op.ragged.requests, *requests]
    return {dim: names for dim, names in tellers.items() if names}


def _public(op: Op, served: Mapping[str, str]) -> dict[str, Any]:
    """The function of an op that callers see."""
    options = [f"{option.name}: DTypeLike | None = None" for option in op.options]
    scalars = [_scalar(scalar) for scalar in op.scalars]
    return {
        "public": _parameters(op, [*options, *scalars]),
        "named": [*schemas.order(op), *_output_parameters(op), *_COMMON],
        "select": _select(op),
        "passed": [
            *[tensor.name if not tensor.keyword else f"{tensor.name}={tensor.name}" for tensor in op.inputs],
            *[f"{name}={name}" for name in _launch_keywords(op)],
        ],
        "summary": op.summary,
        "docstring": docstrings.lines(op, served),
    }


def _launch(op: Op) -> dict[str, Any]:
    """The ``launch`` of an op's kernel."""
    scalars = [_scalar(scalar, launch=True) for scalar in op.scalars if not scalar.planned]
    missing = [_is_missing(tensor) for tensor in op.outputs]
    return {
        "launch": _parameters(op, scalars),
        "together": op.together,
        "bare": [tensor.name for tensor in op.inputs if tensor.bare],
        "broadcast": [
            {"name": tensor.name, "axis": op.first.dims.index(tensor.broadcast)}
            for tensor in op.inputs
            if tensor.broadcast
        ],
        "configured": [scalar.name for scalar in op.scalars if scalar.configured],
        "reads": _reads(op) if op.outputs else None,
        "missing": " or ".join(f"({text})" if " and " in text else text for text in missing),
        "outputs": [
            {
                "name": tensor.name,
                "missing": _is_missing(tensor),
                "shape": ", ".join([*tensor.dims, f"self._{tensor.width}"] if tensor.width else map(str, tensor.shape)),
                "dtype": _ALLOCATED.get(tensor.dtype, f"self._{tensor.dtype}()"),
            }
            for tensor in op.outputs
        ],
        "on_request": [tensor.name for tensor in op.outputs if tensor.made == "on_request"],
        "left_out": [tensor.name for tensor in op.outputs if tensor.made == "unless_false"],
        "result": _result(op),
    }


def _parameters(op: Op, keywords: list[str]) -> list[str]:
    """The parameters of a function in Python; what only a keyword names follows ``*``."""
    positional, defaults = [], False
    for tensor in op.inputs:
        if not tensor.keyword:
            defaults |= tensor.optional
            none = " | None" if defaults or tensor.may_be_none else ""
            positional.append(f"{tensor.name}: {_annotation(tensor)}{none}" + (" = None" if defaults else ""))
    optional = [f"{tensor.name}: {_annotation(tensor)} | None = None" for tensor in op.inputs if tensor.keyword]
    plan = ["plan: Plan | None = None"] if op.plans else []
    rest = [f"{name}: {annotation}" for name, annotation in {**_output_parameters(op), **_COMMON}.items()]
    return [*positional, "*", *optional, *plan, *keywords, *rest]


def _output_parameters(op: Op) -> dict[str, str]:
    """The outputs that callers may bring, with their annotations and defaults."""
    parameters = {}
    for tensor in op.outputs:
        boolean = " | bool" if tensor.made == "unless_false" else ""
        parameters[tensor.name] = f"{_annotation(tensor)}{boolean} | None = None"
        if tensor.made == "on_request":
            parameters[f"return_{tensor.name}"] = "bool = False"
    return parameters


def _launch_keywords(op: Op) -> list[str]:
    plan = ["plan"] if op.plans else []
    scalars = [scalar.name for scalar in op.scalars if not scalar.planned]
    return [*plan, *scalars, *_output_parameters(op), *_COMMON]


def _scalar(scalar: Scalar, launch: bool = False) -> str:
    if launch and scalar.configured:
        return f"{scalar.name}: {scalar.python} | None = None"
    return f"{scalar.name}: {scalar.python}" + ("" if scalar.default is None else f" = {_default(scalar)}")


def _default(scalar: Scalar) -> str:
    return repr(bool(scalar.default) if scalar.check == "flag" else scalar.default)


def _singleton(scalar: Scalar) -> str:
    """The default as the one object that CPython has for it: identity is quicker than a comparison."""
    return _default(scalar).replace("0", "ZERO")


def _annotation(tensor: Tensor) -> str:
    return "Packed" if tensor.packed else "Tensor"


def _native(argument: Tensor | Scalar) -> str:
    if isinstance(argument, Scalar):
        return argument.python
    return f"_{_annotation(argument)}" + (" | None" if argument.may_be_none else "")


def _select(op: Op) -> str:
    """The expression that finds the kernel."""
    tensors = ", ".join(op.selects)
    if op.plans:
        rest = [*([op.ragged.most] if op.ragged else []), *(option.name for option in op.options)]
        return f"selection.{op.name}_kernel({', '.join([tensors, f'{op.layout} is not None', 'plan', *rest])})"
    by = [*(option.name for option in op.options), *(scalar.name for scalar in op.scalars if scalar.configured)]
    one = "," if len(op.selects) == 1 else ""
    return f"select({', '.join([f'selection.{op.name}', f'({tensors}{one})', *by])})"


def _reads(op: Op) -> str:
    """The statement that reads the extents of the outputs off the first input that has them all."""
    needed = {part for tensor in op.outputs for part in tensor.shape if isinstance(part, str)}
    source = next((tensor for tensor in op.inputs if needed <= set(tensor.shape)), None)
    if source is None:
        raise ValueError(f"no input of {op.name} has all of {', '.join(sorted(needed))}, which its outputs have")
    if op.plans:
        return f"{', '.join(source.dims)} = planned_extents(plan, {source.name})"
    shape = source.shape
    names = ", ".join(str(part) if part in needed else "_" for part in shape) + ("," if len(shape) == 1 else "")
    left = f"({names})" if len(shape) == 1 else names
    dims = ", ".join(f'"{part}"' for part in shape)
    return f'{left} = extents("{source.name}", {_one(source)}, {dims})'


def _is_missing(tensor: Tensor) -> str:
    if tensor.made == "on_request":
        return f"{tensor.name} is None and return_{tensor.name}"
    if tensor.made == "unless_false":
        return f"{tensor.name} is None or {tensor.name} is True"
    return f"{tensor.name} is None"


def _result(op: Op) -> str:
    names = [tensor.name for tensor in op.outputs]
    asked = [tensor.name for tensor in op.outputs if tensor.made == "on_request"]
    usual = _joined([name for name in names if name not in asked])
    for name in asked:
        usual = f"({usual}) if {name} is None else ({_joined(names)})"
    return usual


def _joined(names: list[str]) -> str:
    return ", ".join(names)


def _returns(op: Op) -> str:
    if any(tensor.made == "on_request" for tensor in op.outputs):
        return "tuple[Tensor, ...]"
    types = ", ".join("Tensor" for _ in op.outputs)
    return f"tuple[{types}]" if len(op.outputs) > 1 else types or "None"


def _one(tensor: Tensor) -> str:
    """The tensor, or the latent of a pair."""
    return f"first({tensor.name})" if tensor.packed else tensor.name
