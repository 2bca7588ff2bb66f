"""Problems of one op told as problems of another: the C++ functions that copy one struct of the ABI into the other.

A field of the target comes from the field of its name in the source unless a rule says otherwise. Where nothing gives
a field its value, or a field of the source goes nowhere, nothing is rendered: an argument cannot get lost on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codegen import abi
from codegen.schema import MatrixError
from codegen.signature.arguments import Op


@dataclass(frozen=True)
class Conversion:
    """A function from one problem struct to another.

    Attributes
    ----------
    name, doc : str
        Of the C++ function.
    source, target : str
        Ops.
    renamed : Mapping[str, str]
        The source's field for a field of the target that has another name there.
    constants : Mapping[str, int]
        Fields of the target that always have this value. Along a dimension of 1, strides are 0.
    given : tuple[str, ...]
        Fields of the target that are arguments of the function.
    takes_all : bool
        Whether every field of the source must arrive.
    """

    name: str
    doc: str
    source: str
    target: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    takes_all: bool = True


CONVERSIONS = (
    Conversion(
        "as_decode",
        "The decode of one request whose caches are one page each: payloads may compute both by one kernel.",
        "sparse_prefill",
        "sparse_decode",
        renamed={"page_size": "kv_len", "extra_page_size": "extra_kv_len"},
        constants={"batch": 1, "num_pages": 1, "extra_num_pages": 1, "max_splits": 0},
    ),
    Conversion(
        "as_gather",
        "The gathering of the rows that a sparse decode selects; attention applies their scale.",
        "sparse_decode",
        "gather_kv",
        constants={"kv_scale": 1},
        given=("indices", "out_latent", "out_latent_stride_row", "out_rope", "out_rope_stride_row", "num_rows"),
        takes_all=False,
    ),
    Conversion(
        "as_extra",
        "The same with the extra cache, and what is selected of it, in place of the first.",
        "sparse_decode",
        "sparse_decode",
        renamed={
            field.name.removeprefix("extra_"): field.name
            for field in abi.OP["sparse_decode"].fields
            if field.name.startswith("extra_")
        },
        takes_all=False,
    ),
)


def context() -> dict[str, Any]:
    """What ``conversions.h`` prints."""
    return {"conversions": [_function(conversion) for conversion in CONVERSIONS]}


def _function(conversion: Conversion) -> dict[str, Any]:
    fields = {member.name: member for member in abi.OP[conversion.target].fields}
    given = [fields[name].declaration for name in conversion.given]
    return {
        "name": conversion.name,
        "doc": conversion.doc,
        "source": conversion.source,
        "target": conversion.target,
        "parameters": [f"const mla_{conversion.source}_problem& problem", *given],
        "assignments": assignments(conversion),
    }


def assignments(conversion: Conversion) -> dict[str, str]:
    """The value in C++ of each field of the target but those that stay 0.

    Raises
    ------
    MatrixError
        A field is not accounted for.
    """
    source, target = abi.OP[conversion.source], abi.OP[conversion.target]
    sources = {member.name for member in source.fields} - {"op", "reserved"}
    zeros = _strides_along_one(target, conversion.constants)
    values, used = {"op": f"MLA_OP_{target.name.upper()}"}, set()
    for name in (member.name for member in target.fields):
        if name in conversion.given:
            values[name] = name
        elif name in conversion.constants:
            values[name] = str(conversion.constants[name])
        elif (origin := conversion.renamed.get(name, name)) in sources:
            values[name] = f"problem.{origin}"
            used.add(origin)
        elif name not in zeros and name not in {"op", "reserved"}:
            raise MatrixError(
                [
                    f"{conversion.name}: nothing gives {target.name}.{name} a value; "
                    f"add it to {source.name} in codegen/ops, or a constant here: codegen/signature/conversions.py"
                ]
            )
    lost = sorted(sources - used) if conversion.takes_all else []
    if lost:
        raise MatrixError(
            [
                f"{conversion.name}: {source.name}.{name} goes nowhere; "
                f"add it to {target.name} in codegen/ops, or rename it in codegen/signature/conversions.py"
                for name in lost
            ]
        )
    return {name: value for name, value in values.items() if value != "0"}


def _strides_along_one(op: Op, constants: Mapping[str, int]) -> set[str]:
    return {
        f"{view}_stride_{letter}"
        for tensor in op.tensors
        for view in tensor.views
        for dim, letter in zip(tensor.dims, tensor.strides, strict=True)
        if constants.get(dim) == 1
    }
