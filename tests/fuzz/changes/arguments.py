"""Scalars, dtypes, workspaces, streams and names that are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from codegen.abi import OP
from tests.fuzz.formats import TWINS
from tests.fuzz.memory import Space
from tests.fuzz.problems.case import Case, Maker, is_bare

FLAGS: tuple[Any, ...] = ("no", "", 2, -1, 2**63, None, [], 1.0, (), "False", object())
FLOATS: tuple[Any, ...] = (
    "1",
    None,
    float("nan"),
    float("inf"),
    -float("inf"),
    1e39,
    10**400,
    1j,
    [],
    (1.0,),
    object(),
    b"1",
)
COUNTS: tuple[Any, ...] = (-1, 2**63, -(2**70), 2**70, 1.5, "3", None, [], (), object(), float("nan"))
DTYPES: tuple[Any, ...] = ("", "fp99", 3, b"bf16", object(), [], {}, (), "int32", 1.5, "bf16 ", "float64", True)
WORKSPACES: tuple[Any, ...] = (0, 3, "x", (), b"", [], object(), 1.5, True)
LIKE_FLOATS: tuple[Any, ...] = (np.float32(0.0625), np.float64(0.5), np.float16(0.25), True, np.int64(1), 1, 2**60)
STREAMS: tuple[Any, ...] = ("x", 1.5, (), [], object(), b"")


def refuse(case: Case, label: str, *names: str, verdict: str = "refuse") -> None:
    """Say what was done to which argument."""
    case.verdict, case.label, case.names = verdict, label, names


def shown(value: Any) -> str:
    """A value in few words, and without its address."""
    text = repr(value) if isinstance(value, (int, float, str, bytes, tuple, list, dict, type(None))) else ""
    return text if text and len(text) < 30 and "Array" not in text else type(value).__name__


def scalar(make: Maker, case: Case, space: Space) -> None:
    """Make a scalar wrong."""
    row = make.random.choice(OP[case.op].scalars)
    if row.name in ("softmax_scale", "out_scale") and make.chance(0.25):
        case.arguments[row.name] = value = make.random.choice(LIKE_FLOATS[:-1])
        refuse(case, f"{row.name} is {type(value).__name__}", row.name, verdict="either")
        return
    values: tuple[Any, ...] = {"finite": FLOATS, "flag": FLAGS}.get(row.check, COUNTS)
    value = make.random.choice(values)
    if row.check == "positive" and make.chance(0.2):
        value = 0
    if row.name == "max_q_len" and make.chance(0.4):
        unlike_bounds(make, case)
        return
    if row.planned:
        case.how = "op"
    case.arguments[row.name] = value
    unsaid = value is None and row.planned  # which a plan takes for its default
    refuse(case, f"{row.name} is {shown(value)}", row.name, verdict="either" if unsaid else "refuse")


def unlike_bounds(make: Maker, case: Case) -> None:
    """Say that queries are ragged where they are not, or are not where they are."""
    is_ragged = "cu_seqlens_q" in case.arguments
    case.how, case.arguments["max_q_len"] = "op", 0 if is_ragged else make.random.choice((1, 2, 5))
    label = f"max_q_len {'0 with' if is_ragged else 'without'} cu_seqlens_q"
    refuse(case, label, "max_q_len", "cu_seqlens_q", "q")


def extra(make: Maker, case: Case, space: Space) -> None:
    """Make what is neither a tensor of the op nor a scalar wrong: dtypes, workspace, stream, or the names."""
    options = [option.name for option in OP[case.op].options]
    way = make.random.choice(("room", "workspace", "stream", "name", "short", *options, *options))
    if OP[case.op].plans and make.chance(0.15):
        case.how, case.arguments["plan"] = "op", make.random.choice((3, "x", (), object(), b"", [], 0, False, ""))
        refuse(case, f"plan is {shown(case.arguments['plan'])}", "plan")
        return
    if way == "room" and not is_bare(case):
        case.how, case.notes["workspace"] = "kernel", make.random.choice(("small", "gapped", "odd"))
        return
    case.how = "op"
    if way in ("workspace", "room"):
        way = "workspace"
        value = make.random.choice(WORKSPACES)
        refuse(case, f"workspace is {shown(value)}", "workspace")
    elif way == "stream":
        value = make.random.choice(STREAMS)
        refuse(case, f"stream is {shown(value)}", "stream")
    elif way == "name":
        way, value = make.random.choice(("ouT", "q ", "self", "kernel_", "")), None
        refuse(case, "an argument of no such name", "TypeError")
    elif way == "short":
        required = [row.name for row in OP[case.op].tensors if not row.optional and row.role != "output"]
        name = make.random.choice(required)
        if case.op == "decode" and name == "seq_lens":
            name = "q"
        del case.arguments[name]
        refuse(case, f"{name} is left out", "TypeError")
        return
    elif way == "kv_dtype" and way in case.arguments and case.variant.form.width in TWINS and make.chance(0.3):
        del case.arguments[way]
        refuse(case, f"{way} is left out", way)
        return
    else:
        value = make.random.choice(DTYPES)
        refuse(case, f"{way} is {shown(value)}", way, "out", "kv_cache")
    case.arguments[way] = value
