"""The commands: ``python -m codegen generate | check | list | explain NAME | add | remove <field=value>... | bench``"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from codegen import readme, sync
from codegen.edit.add import add
from codegen.edit.point import asked, parse, serves
from codegen.edit.remove import remove
from codegen.load import load
from codegen.model import Values, Variant
from codegen.render import SOURCE_SUFFIX, render
from codegen.render.pages import box_text, reason_texts, values_text
from codegen.schema import MatrixError
from codegen.synthetic import SIZES, seconds
from codegen.validate import checked


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m codegen", description="From the matrix to sources and registry.")
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=help)
        subparser.set_defaults(run=run)
        return subparser

    command("generate", _generate, "write generated/ where it differs from the matrix")
    command("check", _check, "say where generated/ differs from the matrix, and fail if it does")
    command("list", _list, "the variants of the matrix").add_argument("point", nargs="*", metavar="field=value")
    command("explain", _explain, "one variant, its row and unit").add_argument("name")
    for name, change, help in (
        ("add", add, "add a point to the matrix, then generate"),
        ("remove", remove, "remove the variants of a point from the matrix, then generate"),
    ):
        subparser = command(name, _change, help)
        subparser.add_argument("point", nargs="+", metavar="field=value")
        subparser.set_defaults(change=change)
    command("bench", _bench, "time expand, validate and render for synthetic matrices")
    options = parser.parse_args(arguments)
    return int(options.run(options))


def _files() -> dict[str, str]:
    matrix = load()
    return render(matrix, checked(matrix))


def _generate(_: argparse.Namespace) -> int:
    files = _files()
    difference = sync.write(files)
    readme.write(files["SUPPORT.md"])
    for path in difference.orphan:
        print(f"removed generated/{path}, which no row makes")
    changed = len(difference.missing) + len(difference.stale)
    print(f"{len(files)} files, {changed} written, {len(difference.orphan)} removed")
    return 0


def _check(_: argparse.Namespace) -> int:
    files = _files()
    difference = sync.compare(files)
    if difference:
        print(f"{difference}\ngenerated/ is not what the matrix says; run: nox -s generate", file=sys.stderr)
        return 1
    if readme.is_stale(files["SUPPORT.md"]):
        print("the table in README.md is not what the matrix says; run: nox -s generate", file=sys.stderr)
        return 1
    print("generated/ is what the matrix says")
    return 0


def _list(options: argparse.Namespace) -> int:
    matrix = load()
    wanted = asked(matrix, parse(options.point))
    for variant in checked(matrix):
        if serves(variant, wanted):
            print(variant.name)
    return 0


def _explain(options: argparse.Namespace) -> int:
    matrix, name = load(), options.name
    found: Variant | None = next((variant for variant in checked(matrix) if variant.name == name), None)
    if found is None:
        raise MatrixError([f"no variant {name!r}; python -m codegen list prints all"])
    arch = matrix.archs[found.arch]
    unit = f"generated/{arch.payload}/{found.unit}{SOURCE_SUFFIX[arch.device]}"
    print(f"{found.name}\n  row       {found.where}\n  unit      {unit}")
    for trait, value in found.baked:
        print(f"  {trait:<9} {value}")
    print(f"  accepts   {values_text(dict(found.accepts))}\n  priority  {found.priority}")
    if found.accuracy:
        print(f"  accuracy  {found.accuracy}")
    for allow in matrix.allows:
        if (allow.op, allow.arch) == (found.op, found.arch):
            print("\n".join(f"  allowed   {box_text(matrix, box)}" for box in allow.boxes))
            print("\n".join(f"  left out  {reason}" for reason in reason_texts(allow)))
    return 0


def _change(options: argparse.Namespace) -> int:
    before = _accepts()
    changed = options.change(parse(options.point))
    after = _accepts()
    for name in changed:
        print(name)
        if name in before and name in after:
            print(f"  accepts   {values_text(after[name])}")
    return _generate(options)


def _accepts() -> dict[str, dict[str, Values]]:
    """What each variant accepts at run time, by its name."""
    return {variant.name: dict(variant.accepts) for variant in checked(load())}


def _bench(_: argparse.Namespace) -> int:
    matrix = load()
    print("variants,seconds,microseconds_a_variant")
    for count in SIZES:
        taken = seconds(count, matrix)
        print(f"{count},{taken:.3f},{taken / count * 1e6:.1f}")
    return 0
