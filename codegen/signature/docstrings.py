"""The docstrings of Python's public functions, in numpy style, from the rows of the ops."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from codegen.signature.arguments import Op, Tensor

_WIDTH = 116
_WIDTHS = {"latent": "d_latent", "rope": "d_rope"}
"""Widths whose names tensors have, too."""
_COMMON = {
    "workspace : uint8 tensor, optional": "At least ``kernel.workspace_size(...)`` bytes; allocated unless given.",
    "stream : int, optional": "The address of a CUDA stream; by default the current stream of the framework. It has no"
    " effect on a CPU. What the call allocates is memory of that stream, as under ``torch.cuda.stream``.",
    "check : bool": "Read the device's lengths, indices and slots before the launch, and refuse bad ones. A CPU always"
    " does.",
}
"""What the functions of all ops take."""


def lines(op: Op, served: Mapping[str, str]) -> list[str]:
    """The docstring's lines after the summary; ``served`` has what kernels of the op take, for ``Tensor.takes``."""
    doc = " ".join(filter(None, (op.doc, served.get("widths"))))
    result = ["", *textwrap.wrap(doc, _WIDTH)] if doc else []
    result += ["", "Parameters", "----------"]
    for tensor in op.inputs:
        result += _entry(
            tensor.name, _described(tensor, served) + (", optional" if tensor.optional else ""), tensor.doc
        )
    if op.plans:
        result += _entry(
            "plan", "Plan, optional", f"From ``kernel.plan({op.plans})``; made for this call unless given."
        )
    for option in op.options:
        result += _entry(option.name, "str or dtype, optional", option.doc)
    for scalar in op.scalars:
        result += _entry(scalar.name, scalar.python, scalar.doc)
    for tensor in op.outputs:
        left_out = (
            "``False`` leaves it out; ``True`` allocates it, as None does." if tensor.made == "unless_false" else ""
        )
        result += _entry(tensor.name, f"{_described(tensor, served)}, optional", left_out)
        if tensor.made == "on_request":
            result += _entry(f"return_{tensor.name}", "bool", f"Whether to allocate and return ``{tensor.name}``.")
    for argument, doc in _COMMON.items():
        result += [argument, *_indented(doc)]
    if op.outputs:
        result += ["", "Returns", "-------"]
    for tensor in op.outputs:
        end = {"always": "", "unless_false": ", or None", "on_request": "; only where it is given or asked for"}
        result += _entry(tensor.name, _described(tensor, served) + end[tensor.made], tensor.doc)
    return result


def _described(tensor: Tensor, served: Mapping[str, str]) -> str:
    """``int32 [batch, table_width]``; widths of the format go by their names."""
    shape = f"[{', '.join(str(part) for part in tensor.shape)}]"
    if tensor.width:
        shape = f"[{', '.join([*tensor.dims, _WIDTHS.get(tensor.width, tensor.width)])}]"
    if tensor.broadcast:
        shape += f" or [{', '.join(dim for dim in tensor.dims if dim != tensor.broadcast)}]"
    fixed = "" if tensor.dtype.endswith("_dtype") else f"{tensor.dtype} "
    return f"{fixed}{shape}" + (f", {tensor.takes.format_map(served)}" if tensor.takes else "")


def _entry(name: str, kind: str, doc: str) -> list[str]:
    return [f"{name} : {kind}", *_indented(doc)]


def _indented(doc: str) -> list[str]:
    return textwrap.wrap(doc, _WIDTH, initial_indent="    ", subsequent_indent="    ")
