"""The ops as ``torch.library`` ops, for ``torch.compile``: each launches its kernel, and a fake says what it returns.

Compiled code allocates its own outputs and chooses its own stream, so ``out``, ``workspace`` and ``stream`` belong to
eager calls only. A torch op takes tensors, numbers and names: latent and rope are two of its values, and a plan is its
buffer, its variant and its shape. Importing this module imports torch and registers the ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from mla_kernels._types import INSTEAD
from mla_kernels.api import selection
from mla_kernels.api.signatures import SIGNATURES, Output, Signature
from mla_kernels.errors import UnsupportedError
from mla_kernels.kernels.base import Plan
from mla_kernels.kernels.planned import plan_for, require_planned
from mla_kernels.tensors import cache_format, element_name, first

_NAMESPACE = "mla_kernels"
_TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_NO_GRADIENT = (
    "a tensor that requires none, because the kernels have no backward pass; detach() it, or call under torch.no_grad()"
)
_NO_PLAN = (None, "", [0, 0, 0])
"""Buffer, variant, and batch, ``q_len`` and ``num_heads``: what a plan's other numbers are, its scalars say."""


def require_defaults(**arguments: object) -> None:
    """Refuse what a compiled graph decides for itself.

    Raises
    ------
    UnsupportedError
        An argument was given.
    """
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise UnsupportedError(name, type(value).__name__, "None under torch.compile, which allocates for itself")


def call(op: str, arguments: dict[str, Any]) -> Any:
    """Put an op into the graph that is being traced.

    Parameters
    ----------
    op : str
    arguments : dict
        All arguments of ``mla_kernels.<op>`` by name.

    Returns
    -------
    tensors
        What ``mla_kernels.<op>`` returns.

    Raises
    ------
    UnsupportedError
        A graph cannot take an argument.
    """
    signature = SIGNATURES[op]
    for output in signature.outputs:
        given = arguments[output.name]
        if given is not True or output.made != "unless_false":
            require_defaults(**{output.name: given})
    _require_no_gradient(arguments)
    if arguments.get("plan") is not None:
        require_planned(arguments["plan"], {name: arguments[name] for name in signature.planned})
    require_defaults(**{name: arguments[name] for name in ("workspace", "stream", "check")})
    results = getattr(torch.ops.mla_kernels, op)(*_values(signature, arguments))
    if len(signature.outputs) < 2:
        return results
    returned = zip(signature.outputs, results, strict=True)
    return tuple(
        None if output.made == "unless_false" and arguments[output.name] is False else result
        for output, result in returned
        if output.made != "on_request" or arguments[f"return_{output.name}"]
    )


def _require_no_gradient(arguments: dict[str, Any]) -> None:
    """Refuse what a launch would: a graph is launched without its tensors' gradients, which would be lost."""
    if not torch.is_grad_enabled():
        return
    for name, value in arguments.items():
        for tensor in value if isinstance(value, tuple) else (value,):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                raise UnsupportedError(name, "a tensor that requires a gradient", _NO_GRADIENT)


def _values(signature: Signature, arguments: dict[str, Any]) -> list[Any]:
    """The values of a torch op, in its schema's order."""
    plan = arguments.get("plan")
    values: list[Any] = []
    for name in signature.order:
        value = arguments[name]
        if name == "plan":
            values += (
                _NO_PLAN if plan is None else (plan.buffer, plan.variant, [plan.batch, plan.q_len, plan.num_heads])
            )
        elif name in signature.planned and plan is not None:
            values.append(getattr(plan, name))
        elif name in signature.selects_only:
            values.append(element_name(value))
        elif name not in signature.packed:
            values.append(value)
        elif isinstance(value, tuple):
            values += value
        else:
            values += (value, None)
    return values


def _arguments(signature: Signature, values: Iterator[Any]) -> dict[str, Any]:
    """The arguments that the values of a torch op stand for; of a plan, the buffer, the variant and the shape.

    These are no ``Plan`` yet: where a fake is asked, its numbers may be symbols.
    """
    arguments: dict[str, Any] = {}
    for name in signature.order:
        arguments[name] = next(values)
        if name == "plan":
            made_by, shape = next(values), next(values)
            arguments[name] = None if arguments[name] is None else (arguments[name], made_by, *shape)
        elif name in signature.packed:
            rope = next(values)
            arguments[name] = arguments[name] if rope is None else (arguments[name], rope)
    return arguments


def _run(op: str, *values: Any) -> Any:
    """Select a kernel and launch it, as ``mla_kernels.<op>`` does."""
    signature = SIGNATURES[op]
    arguments = _arguments(signature, iter(values))
    if arguments.get("plan") is not None:  # which brings its scalars: they are then no arguments
        arguments["plan"] = Plan(*arguments["plan"], **{name: arguments[name] for name in signature.planned})
    by = [arguments[name] for name in signature.selects_by]
    if signature.layout:
        by.append(arguments[signature.layout] is not None)
    if signature.ragged:
        by.append(getattr(arguments["plan"], signature.ragged, arguments.get(signature.ragged, 0)))
    tensors = tuple(arguments.get(name) for name in signature.selects)
    kernel = selection.select(getattr(selection, op), tensors, *by)
    launched = {name: value for name, value in arguments.items() if name not in signature.selects_only}
    if signature.plans:
        scalars = {name: launched.pop(name) for name in signature.planned}
        if launched["plan"] is None and any(scalars.values()):
            bounds = arguments.get("cu_seqlens_q")
            launched["plan"] = plan_for(kernel, tensors[0], arguments[signature.plans], bounds, **scalars)
    asked = {f"return_{output.name}": True for output in signature.outputs if output.made == "on_request"}
    return kernel.launch(**launched, **asked)


def _fake(op: str, *values: Any) -> Any:
    """Empty tensors of the types and shapes that the op returns."""
    signature = SIGNATURES[op]
    arguments = _arguments(signature, iter(values))
    results = tuple(_empty(signature, output, arguments) for output in signature.outputs)
    return results if len(results) > 1 else results[0] if results else None


def _empty(signature: Signature, output: Output, arguments: dict[str, Any]) -> torch.Tensor:
    like = first(arguments[signature.selects[0]])
    shape = [_extent(extent, arguments) for extent in output.shape]
    return like.new_empty(shape, dtype=_dtype(output, arguments, like))  # type: ignore[no-any-return]


def _extent(extent: int | str | tuple[str, int], arguments: dict[str, Any]) -> int:
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        (cache,) = (name for name in ("kv_cache", "kv") if name in arguments)
        return int(getattr(cache_format(cache, arguments[cache], arguments.get("kv_dtype")), extent))
    argument, axis = extent
    return first(arguments[argument]).shape[axis]  # type: ignore[no-any-return]  # int() would make a symbol a constant


def _dtype(output: Output, arguments: dict[str, Any], like: torch.Tensor) -> torch.dtype:
    """The type of an output: fixed, asked for, or that of the first tensor; a quantised cache is read as another."""
    if output.dtype != "out_dtype":
        return getattr(torch, output.dtype)  # type: ignore[no-any-return]
    asked = arguments.get("out_dtype")
    if "kv_dtype" in arguments and "q" not in arguments:
        cache = arguments["kv_cache"]
        asked = selection.gather_kv(cache, None, arguments["kv_dtype"], asked)["out_dtype"]
    own = element_name(like.dtype)
    stated = asked or INSTEAD["out_dtype"].get(own)
    return _TORCH[stated] if stated else like.dtype  # of a type that no kernel takes, the launch refuses the argument


def _register() -> None:
    for op, signature in SIGNATURES.items():
        name = f"{_NAMESPACE}::{op}"
        torch.library.define(name, signature.schema, tags=torch.Tag.pt2_compliant_tag)
        torch.library.impl(name, "CompositeExplicitAutograd", partial(_run, op))
        torch.library.register_fake(name, partial(_fake, op))


_register()
