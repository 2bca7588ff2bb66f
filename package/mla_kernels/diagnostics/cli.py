"""The command line: what is installed and whether it works, which variants exist, why a lookup answers, how fast."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import mla_kernels
from mla_kernels import _launcher
from mla_kernels.devices.driver import driver
from mla_kernels.devices.machine import devices, dotted
from mla_kernels.diagnostics import tables
from mla_kernels.diagnostics.bench import command as bench
from mla_kernels.errors import MlaError, ValueRangeError
from mla_kernels.payloads import evidence
from mla_kernels.payloads.discovery import Payload, payloads


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, or 1 with a message for an error."""
    options = _parser().parse_args(arguments)
    return status_of(options.run, options)


def status_of(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """The exit status of a command: its own, or 1 where it raises an error of this package, which is printed."""
    try:
        status = run(options)
        sys.stdout.flush()  # while a reader that has gone can still be met
    except MlaError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing is left to say
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mla_kernels", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print JSON instead of text")
        added.set_defaults(run=run)
        return added

    command("info", _info, "versions, devices, and the payloads found and rejected")
    command("doctor", _doctor, "check files, driver and payloads, and one launch of each; status 1 for a fault")
    for added in (
        command("list", _list, "the variants that serve a partial config"),
        command("explain", _explain, "why a config is served by a variant, or by none"),
    ):
        added.add_argument("config", nargs="*", metavar="field=value", help="such as op=decode page_size=64")
    bench.add_options(command("bench", bench.run, "time the decode kernels of an arch"))
    return parser


def _config(pairs: Sequence[str]) -> dict[str, object]:
    config: dict[str, object] = {}
    for pair in pairs:
        field, equals, value = pair.partition("=")
        if not equals:
            raise ValueRangeError("config", repr(pair), "field=value")
        config[field] = int(value) if value.isdecimal() else value
    return config


def _info(options: argparse.Namespace) -> int:
    installed = payloads()
    asked = driver()
    report: dict[str, Any] = {
        "version": mla_kernels.__version__,
        "abi_hash": _launcher.ABI_HASH,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu_isa_limit": os.environ.get("MLA_KERNELS_CPU_ISA"),
        "driver": {"state": asked.state, "version": asked.version, "reason": asked.reason},
        "devices": [
            {
                "device": f"{each.kind}:{each.ordinal}",
                "arch": each.arch,
                "capability": dotted(each.capability) if each.capability else None,
                "description": each.description,
            }
            for each in devices()
        ],
        "payloads": [_describe(payload) for payload in installed.found.values()],
        "rejected": [{"payload": each.name, "reason": each.reason} for each in installed.rejected],
    }
    if options.json:
        return _print_json(report)
    print(f"mla-kernels {report['version']} (ABI {report['abi_hash']}), Python {report['python']}, {report['machine']}")
    if report["cpu_isa_limit"]:
        print(f"the CPU's instruction set is lowered to {report['cpu_isa_limit']} by MLA_KERNELS_CPU_ISA")
    print(asked.reason or f"the CUDA driver serves CUDA {asked.version}")
    _print_table("devices", report["devices"])
    _print_table("payloads", report["payloads"])
    if report["rejected"]:
        _print_table("rejected payloads", report["rejected"])
    return 0


def _state(payload: Payload) -> str:
    if payload.registry.device == "cpu":
        return "runs on the host"
    return evidence.state(payload.folder, payload.folder / f"libmla_{payload.name}.so")


def _describe(payload: Payload) -> dict[str, Any]:
    return {
        "payload": payload.name,
        "version": payload.version,
        "arch": payload.registry.arch,
        "variants": len(payload.registry.variants),
        "commit": payload.manifest.revision,
        "state": _state(payload),
        "folder": str(payload.folder),
    }


def _doctor(options: argparse.Namespace) -> int:
    from mla_kernels.diagnostics import doctor

    checks = doctor.examine()
    faults = sum(check.state == "fault" for check in checks)
    rows = [asdict(check) for check in checks]
    if options.json:
        _print_json(rows)
    else:
        try:
            _print_table("doctor", rows)
        except tables.MissingPackageError:  # what is broken should not need rich to be told
            print(*(f"{row['state']:8}{row['name']}: {row['detail']}" for row in rows), sep="\n")
        print(f"{faults} of {len(checks)} checks found a fault" if faults else "no fault found")
    return 1 if faults else 0


def _list(options: argparse.Namespace) -> int:
    found = mla_kernels.variants(**_config(options.config))
    if options.json:
        return _print_json([variant.as_dict() for variant in found])
    rows = [
        {
            "variant": variant.name,
            "priority": variant.priority,
            "accepts": "; ".join(f"{field}: {domain}" for field, domain in variant.accepts.items()),
        }
        for variant in found
    ]
    _print_table(f"{len(found)} variants", rows)
    return 0


def _explain(options: argparse.Namespace) -> int:
    explanation = mla_kernels.explain(_config(options.config))
    if options.json:
        _print_json(explanation.as_dict())
    else:
        print(explanation)
    return 0 if explanation.chosen else 1


def _print_json(value: object) -> int:
    print(json.dumps(value, indent=2))
    return 0


def _print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    tables.table(title, rows)
