"""``mla-kernels replay``: launches recorded calls again, and says what is wrong with the results."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mla_kernels.diagnostics import tables
from mla_kernels.errors import MlaError

if TYPE_CHECKING:
    from mla_kernels.diagnostics.recording.call import Call


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("file", nargs="+", type=Path, metavar="FILE", help="a call that was recorded")
    parser.add_argument("--arch", help="arch to launch on; by default the one that the call was recorded on")


def run(options: argparse.Namespace) -> int:
    """Replay every file; the status is 1 where a result is wrong or a call cannot be replayed."""
    from mla_kernels.diagnostics.recording import capture

    with tables.status("importing torch"):
        tables.require("torch", "mla-kernels[torch]")
    capture.stop()
    told = [_told(path, options.arch) for path in options.file]
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        for number, each in enumerate(told):
            print(*([""] * bool(number)), *map(tables.wrapped, _lines(each)), sep="\n")
    return int(any(each["fault"] for each in told))


def _told(path: Path, arch: str | None) -> dict[str, Any]:
    """What a file holds, what was wrong with it, and what this machine makes of it."""
    from mla_kernels.diagnostics.recording import replay, verdict
    from mla_kernels.diagnostics.recording.call import load

    call = load(path)
    try:
        launched = replay.again(call, arch or call.arch)
    except MlaError as error:
        hint = "" if arch or call.arch == "cpu" else "; --arch=cpu replays it on the host"
        raise type(error)(*_said(error, path, hint)) from error
    wanted = replay.wanted(call, launched.variant)
    for results in (call.outputs, launched.results, wanted):
        replay.forget_unwritten(call, results)
    recorded = list(verdict.differences(launched.variant, call.outputs, wanted))
    again = list(verdict.differences(launched.variant, launched.results, wanted))
    was, now = (any(each.wrong for each in found) for found in (recorded, again))
    same = bool(call.outputs) and all(
        verdict.same_bits(value, launched.results[name]) for name, value in call.outputs.items()
    )
    return {
        "file": str(path),
        "op": call.op,
        "recorded": {"variant": call.variant, "arch": call.arch, "failure": call.failure, **_origin(call)},
        "arguments": _arguments(call),
        "replayed": {"variant": launched.variant.name, "device": launched.device, "same_bits": same},
        "recorded_results": [each.as_dict() for each in recorded],
        "replayed_results": [each.as_dict() for each in again],
        "lines": [*(f"recorded {each}" for each in recorded), *(f"replayed {each}" for each in again)],
        "conclusion": _conclusion(bool(call.failure), was, now),
        "fault": was or now or bool(call.failure),
    }


def _said(error: MlaError, path: Path, hint: str) -> tuple[str, ...]:
    """The arguments of the same error, with the file in front."""
    argument, got, accepts = (getattr(error, name, "") for name in ("argument", "got", "accepts"))
    if argument:
        return f"{path}: {argument}", got, accepts + hint
    return (f"{path}: {', '.join(map(str, error.args))}{hint}",)


def _origin(call: Call) -> dict[str, Any]:
    known = ("recorded", "device", "version", "payload", "commit", "library_sha256")
    return {name: call.info.get(name) for name in known}


def _arguments(call: Call) -> dict[str, str]:
    """The arguments in words."""
    from mla_kernels.diagnostics.recording.call import arguments, parts

    given = {name: call.inputs[name] for name in arguments(call.op) if call.inputs.get(name) is not None}
    words = {name: str(value) for name, value in (*given.items(), *call.planned.items())}
    for name, value in given.items():
        found = [f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for _, tensor in parts(name, value)]
        if found:
            kept = f", {len(call.pages[name])} of {call.pool.get(name)} pages" if name in call.pages else ""
            words[name] = f"{' and '.join(found)}{kept}"
    return words


def _lines(told: dict[str, Any]) -> list[str]:
    recorded, replayed = told["recorded"], told["replayed"]
    digest = str(recorded["library_sha256"])[:16]
    source = f"on {recorded['device']}, mla-kernels {recorded['version']}, library sha256 {digest}"
    lines = [
        f"{told['file']}: {told['op']}, recorded {recorded['recorded']} {source}",
        f"  by {recorded['variant']}",
        *(f"  {name}: {value}" for name, value in told["arguments"].items()),
        f"replayed by {replayed['variant']} on {replayed['device']}",
    ]
    if recorded["failure"]:
        lines.append(f"the recorded launch failed: {recorded['failure']}")
    else:
        equal = "equal bit by bit" if replayed["same_bits"] else "not equal bit by bit"
        lines.append(f"the recorded and the replayed results are {equal}")
    return [*lines, *told["lines"], told["conclusion"]]


def _conclusion(failed: bool, was: bool, now: bool) -> str:
    if now:
        again = "both results are" if was else "the replayed result is"
        return f"{again} wrong: report it with this file"
    if was or failed:
        what = "the recorded launch failed" if failed else "the recorded result is wrong"
        return (
            f"{what}, and this launch is right. It may depend on what is not in the file: another GPU or payload, "
            "an old plan, memory that something else wrote, or a stream that did not wait. Report it with this file"
        )
    return "no fault: all results are within what rounding allows"
