"""Takes variants out of the matrix: a value out of a row's list, or a row; the inverse of ``add``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codegen import abi
from codegen.edit.point import matches, named
from codegen.load import load
from codegen.model import Value, Values, Variant, choices
from codegen.rows import Entry, entries, with_field, without
from codegen.schema import MATRIX, MatrixError
from codegen.validate import checked


def remove(point: Mapping[str, Value], folder: Path = MATRIX) -> tuple[str, ...]:
    """Remove the variants that have all traits that ``point`` names, and return their names.

    Widths that it does not name are the default ones.
    A value of a field that is accepted at run time is taken out of the lists of these variants instead, where their
    rows make no others. A table of a device loses them for all of its archs.

    Raises
    ------
    MatrixError
        No variant is of the point, or a row cannot be written without it; nothing is then written.
    """
    matrix = load(folder)
    before = checked(matrix)
    op, arch, fields = named(matrix, point)
    usual = {name: choices(values)[0] for name, values in matrix.unnamed(op).items() if name not in fields}
    traits = {name: value for name, value in fields.items() if name in abi.OP[op].traits} | usual
    served = {name: value for name, value in fields.items() if name not in traits}
    gone = [variant for variant in before if matches(variant, op, arch, traits)]
    if not gone:
        raise MatrixError(["the matrix holds no such variant; python -m codegen list prints all"])
    places = {entry.where: entry for path in sorted(folder.glob("*.toml")) for _, _, rows in entries(path, "kernel")
              for entry in rows}  # fmt: skip
    touched = [places[where] for where in dict.fromkeys(variant.where for variant in gone)]
    old = {path: path.read_text(encoding="utf-8") for path in dict.fromkeys(entry.path for entry in touched)}
    new = {path: text.splitlines() for path, text in old.items()}
    for entry in reversed(touched):  # so that the lines of the others stay where they are
        made = [variant for variant in before if variant.where == entry.where and variant.arch == arch]
        from_row = [variant for variant in gone if variant.where == entry.where]
        if served and len(from_row) < len(made):
            raise MatrixError([f"{entry.where} makes other variants too; write it as two rows first"])
        if served:
            new[entry.path] = _narrowed(new[entry.path], entry, dict(from_row[0].accepts), served)
        elif len(from_row) == len(made):
            new[entry.path] = without(new[entry.path], entry)
        else:
            new[entry.path] = _reduced(new[entry.path], entry, made, from_row, traits)
    for path, lines in new.items():
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    try:
        changed = _changed(before, checked(load(folder)))
        if not changed:
            raise MatrixError([f"{entry.where}: nothing changed; change the row by hand" for entry in touched])
    except MatrixError:
        for path, text in old.items():
            path.write_text(text, encoding="utf-8")
        raise
    return changed


def _changed(before: Sequence[Variant], after: Sequence[Variant]) -> tuple[str, ...]:
    """The names of the variants that are gone or accept something else."""
    left = {variant.name: variant.accepts for variant in after}
    return tuple(variant.name for variant in before if left.get(variant.name) != variant.accepts)


def _narrowed(lines: list[str], entry: Entry, accepts: Mapping[str, Values], served: Mapping[str, Value]) -> list[str]:
    """The lines with a row that accepts less at run time."""
    for name, value in served.items():
        lines = with_field(lines, entry, name, _shorter(entry, name, accepts[name], value))
    return lines


def _reduced(
    lines: list[str], entry: Entry, made: Sequence[Variant], gone: Sequence[Variant], traits: Mapping[str, Value]
) -> list[str]:
    """The lines with a row that no longer makes some of its variants."""
    for name, value in traits.items():
        if [variant for variant in made if dict(variant.baked)[name] == value] == list(gone):
            return with_field(lines, entry, name, _shorter(entry, name, entry.fields[name], value))
    raise MatrixError([f"{entry.where} makes more than these by the same lists; write it as two rows first"])


def _shorter(entry: Entry, name: str, values: Any, value: Value) -> Any:
    """A list without a value; the value itself where one is left."""
    if not isinstance(values, (list, tuple)) or value not in values:
        raise MatrixError([f"{entry.where}: {name} is no list with {value} in it; change the row by hand"])
    left = [each for each in values if each != value]
    if not left:
        raise MatrixError([f"{entry.where}: {name} would accept nothing; remove the variant"])
    return left if len(left) > 1 else left[0]
