"""The command line: what is installed and whether it works, which variants exist, why a lookup answers, how fast."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mla_kernels
from mla_kernels._types import DTYPES
from mla_kernels.diagnostics import info, tables
from mla_kernels.diagnostics.bench import command as bench
from mla_kernels.diagnostics.bench.problems import require_positive
from mla_kernels.diagnostics.recording import command as replay
from mla_kernels.errors import MlaError, ValueRangeError
from mla_kernels.models import EVERY, Model, model, models
from mla_kernels.payloads.discovery import payloads
from mla_kernels.resolve.config import arch_named
from mla_kernels.resolve.obstacle import install
from mla_kernels.version import __version__

PROGRAM = "mla-kernels"
SHELLS = ("bash", "zsh")
LISTS = {"config": str, "file": Path}
"""Arguments of which a command takes several, and their types."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, or 1 with a message for an error."""
    options = _parsed(arguments)
    return status_of(options.run, options)


def status_of(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """The exit status of a command: its own, or 1 where it raises an error of this package, which is printed."""
    try:
        if getattr(options, "arch", None):
            options.arch = arch_named(options.arch)
        status = run(options)
        sys.stdout.flush()  # while a reader that has gone can still be met
    except MlaError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing is left to say
        return 1
    return status


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command; argparse leaves over the arguments of a list that follow an option."""
    options, left = _parser().parse_known_args(arguments)
    name = next((name for name in LISTS if hasattr(options, name)), None)
    if unknown := [each for each in left if name is None or each.startswith("-")]:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if name and left:
        setattr(options, name, [*getattr(options, name), *map(LISTS[name], left)])
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print JSON instead of text")
        added.set_defaults(run=run, parser=added)
        return added

    command("info", _info, "print versions, devices, payloads and environment variables, as a bug report needs them")
    command("doctor", _doctor, "check files and driver, and launch each payload on its devices; status 1 for a fault")
    for added in (
        command("list", _list, "list the variants that serve a partial config; status 1 if none does"),
        command("explain", _explain, "say why a variant serves a config, or why none does; status 1 if none does"),
    ):
        added.add_argument("config", nargs="*", metavar="field=value", help="such as op=decode page_size=64")
    added = command("models", _models, "list the models, and what the installed payloads serve of them")
    added.add_argument("name", nargs="?", metavar="MODEL", help="one model, such as DeepSeek-R1, with its configs")
    added.add_argument("--arch", help="an arch whose payload is installed; by default each of them")
    added.add_argument(
        "--tp",
        "--tensor-parallel",
        dest="tensor_parallel",
        type=int,
        default=1,
        metavar="N",
        help="ranks that share the heads; default 1",
    )
    bench.add_options(command("bench", bench.run, "time the decode kernels of an arch"))
    text = "launch recorded calls again and compare them with the reference; status 1 for a wrong result"
    replay.add_options(command("replay", replay.run, text))
    completion = commands.add_parser("completion", help="print a completion script for a shell")
    completion.add_argument("shell", choices=SHELLS)
    completion.set_defaults(run=_completion, parser=completion)
    return parser


def _config(pairs: Sequence[str]) -> dict[str, object]:
    config: dict[str, object] = {}
    for pair in pairs:
        field, equals, value = pair.partition("=")
        if not equals:
            raise ValueRangeError("config", repr(pair), "field=value, such as op=decode")
        config[field] = _integer(field, value) if value.isdecimal() else value
    return config


def _integer(field: str, digits: str) -> int:
    try:
        return int(digits)
    except ValueError as error:
        raise ValueRangeError(field, f"an integer of {len(digits)} digits", "one of fewer digits") from error


def _info(options: argparse.Namespace) -> int:
    told = info.report()
    if options.json:
        return _print_json(told)
    print(*info.lines(told), sep="\n")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from mla_kernels.diagnostics import doctor

    with tables.status("checking the installation"):
        checks = doctor.examine()
    faults = sum(check.state == "fault" for check in checks)
    if options.json:
        _print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            print(tables.wrapped(f"{check.state:8}{check.name}: {check.detail}", indent=8))
        print(f"{faults} of {len(checks)} checks found a fault" if faults else "all checks passed")
    return 1 if faults else 0


def _list(options: argparse.Namespace) -> int:
    config = _config(options.config)
    found = mla_kernels.variants(**config)
    if not found:
        print(_nothing(config), file=sys.stderr)
    if options.json:
        _print_json([variant.as_dict() for variant in found])
    elif found:
        rows = [
            {
                "variant": variant.name,
                "priority": variant.priority,
                "accepts": "; ".join(f"{field} {domain}" for field, domain in variant.accepts.items()),
            }
            for variant in found
        ]
        tables.table(f"{len(found)} variant{'s' * (len(found) != 1)}", rows)
        if tables.width() is not None:  # a pipe has a line for each variant, and no others
            for said in dict.fromkeys(variant.accuracy for variant in found if variant.accuracy):
                stated = sum(variant.accuracy == said for variant in found)
                print(tables.wrapped(f"accuracy of {stated} of them: {said}", indent=2))
    return 0 if found else 1


def _nothing(config: dict[str, object]) -> str:
    """Why a list is empty: the payload of the arch is absent, or none of its variants fits."""
    installed = payloads()
    name = arch_named(str(config.get("arch", "")))
    arch = installed.arch(name)
    if name and arch is None:
        return f"there is no arch {name}; accepts {', '.join(each.name for each in installed.archs)}"
    if arch is not None and installed.registry_of(name) is None:
        why = next((f"was rejected: {each.reason}" for each in installed.rejected if each.name == arch.payload), "")
        return f"the payload of arch {name} {why or f'is not installed: {install(arch)}'}"
    asked = " ".join(f"{field}={value}" for field, value in config.items())
    found = ", ".join(installed.found) or "none"
    return f"no variant of the installed payloads ({found}) serves {asked or 'anything'}"


def _explain(options: argparse.Namespace) -> int:
    explanation = mla_kernels.explain(_config(options.config))
    if options.json:
        _print_json(explanation.as_dict())
    else:
        print(*map(tables.wrapped, str(explanation).splitlines()), sep="\n")
    return 0 if explanation.chosen else 1


def _models(options: argparse.Namespace) -> int:
    require_positive(tensor_parallel=options.tensor_parallel)
    if options.name:
        return _model(model(options.name), options)
    served = {
        each: [arch for arch in _archs(options) if each.served(arch=arch, tensor_parallel=options.tensor_parallel)]
        for each in models()
        if each.heads % options.tensor_parallel == 0
    }
    if options.json:
        return _print_json([{**asdict(each), "served_by": archs} for each, archs in served.items()])
    rows = [
        {
            "model": each.name,
            "heads": each.heads // options.tensor_parallel,
            "d_qk": each.d_qk,
            "d_v": each.d_v,
            "top-k": each.topk or None,
            "served by": ", ".join(archs) or "no payload here",
        }
        for each, archs in served.items()
    ]
    tables.table(f"{_counted(len(rows), options.tensor_parallel)}; {PROGRAM} models MODEL tells more of one", rows)
    return 0


def _counted(shown: int, degree: int) -> str:
    """How many models are shown, and of how many where heads are the reason."""
    known = len(models())
    if shown == known:
        return f"{known} models"
    return f"{shown} of {known} models {'has' if shown == 1 else 'have'} heads that {degree} divides"


def _model(each: Model, options: argparse.Namespace) -> int:
    """What is known of one model, and the variant that serves each config of one of its ranks."""
    served = [
        {**config, "variant": mla_kernels.variants(**config)[0].name}
        for arch in _archs(options)
        for config in each.served(arch=arch, tensor_parallel=options.tensor_parallel)
    ]
    if options.json:
        return _print_json({**asdict(each), "served": served})
    for name, value in _facts(each).items():
        print(tables.wrapped(f"{name}: {', '.join(map(str, value)) if isinstance(value, tuple) else value}"))
    ranks = f"a rank of {options.tensor_parallel}" if options.tensor_parallel > 1 else "one rank"
    print(f"\nwith {each.heads // options.tensor_parallel} heads on {ranks}, the installed payloads serve")
    for config in served:
        fields = (f"{field}={value}" for field, value in config.items() if field != "variant")
        print(tables.wrapped(f"  {' '.join(fields)}"))
        print(f"    by {config['variant']}")
    if not served:
        print("  none of its operations")
    for name, reason in each.unserved:
        print(tables.wrapped(f"not served on {'any arch' if name == EVERY else name}: {reason}"))
    for config in _unserved(each, options):
        asked = " ".join(f"{field}={value}" for field, value in config.items())
        print(tables.wrapped(f"not served: {asked}; `{PROGRAM} explain` with these fields says why"))
    return 0


def _facts(each: Model) -> dict[str, Any]:
    """What a row says, but for what it leaves out and the archs that do not serve it."""
    known = {name: value for name, value in asdict(each).items() if name not in ("unserved", "sources")}
    known["q_lens"] = each.q_lens or "not stated"
    known |= {f"source of {name}": text for name, text in each.sources}
    return {name: value for name, value in known.items() if value not in ((), 0, False, "")}


def _unserved(each: Model, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The configs that no variant serves, of caches that some kernel could read."""
    degree = options.tensor_parallel
    return [
        config
        for arch in _archs(options)
        for served in [each.served(arch=arch, tensor_parallel=degree)]
        for config in each.configs(arch=arch, tensor_parallel=degree)
        if config not in served and config["kv_dtype"] in DTYPES
    ]


def _archs(options: argparse.Namespace) -> tuple[str, ...]:
    """The archs whose payloads are installed, or the one that is asked for."""
    found = tuple(payload.registry.arch for payload in payloads().found.values())
    if options.arch is None:
        return found
    if options.arch not in found:
        raise ValueRangeError("arch", repr(options.arch), f"{', '.join(found) or 'none'}, whose payloads are installed")
    return (options.arch,)


def _completion(options: argparse.Namespace) -> int:
    tables.require("shtab", "mla-kernels[cli]")
    import shtab

    print(shtab.complete(_parser(), shell=options.shell))
    return 0


def _print_json(value: object) -> int:
    print(json.dumps(value, indent=2))
    return 0
