"""Checks the tables of the matrix against ``matrix.json``: every fault of every file, with its line.

Names of the matrix become paths, symbols and text of generated files. Nothing is read from a table, and nothing is
rendered, before its names, texts and numbers have the form that the schema states.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema.exceptions import ValidationError

from codegen.schema.lines import line_of

BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "e4m3": 8, "e8m0": 8, "e2m1": 4}
"""The bits of an element, by its type."""

SCHEMA = Path(__file__).parent / "matrix.json"
FORMATS = {
    "word": re.compile(r"[a-z][a-z0-9_]*"),
    "type": re.compile(r"[A-Z][A-Za-z0-9]*"),
    "element": re.compile("|".join(BITS)),
    "text": re.compile(r"[\w(][\w .,:;()'/+&%=-]*"),
    "capability": re.compile(r"[1-9]\d*\.\d", re.ASCII),
    "day": re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII),
}
"""What a whole string must match, by the ``format`` of the schema."""

MATRIX = Path(__file__).parents[1] / "matrix"
HOME = {
    "default_widths": "formats.toml",
    "format": "formats.toml",
    "model": "models.toml",
    "unread": "models.toml",
    "peer": "peers.toml",
    "peer_source": "peers.toml",
}
"""Tables that one file has."""


class MatrixError(Exception):
    """The matrix cannot be used; ``problems`` lists every reason."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def check(folder: Path) -> dict[str, str]:
    """The text of each file of a matrix, by its name.

    Raises
    ------
    MatrixError
        With every place of every file that does not have the form of the schema.
    """
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.toml"))}
    found = [f"{name}: the matrix has no such file" for name in ("domains.toml", "formats.toml") if name not in texts]
    found += [fault for name, text in texts.items() for fault in _faults(name, text)]
    if found:
        raise MatrixError(found)
    return texts


@lru_cache(maxsize=64)
def _faults(name: str, text: str) -> tuple[str, ...]:
    """One line for each fault of a file, in the order of the file."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        marker = next((number for number, line in enumerate(text.splitlines(), 1) if line.startswith("<<<<<<<")), None)
        if marker is not None:
            return (f"{name}:{marker}: a merge conflict begins here; choose the rows, then nox -s generate",)
        said, _, place = str(error).partition(" (at line ")
        line = place.partition(",")[0] or text.count("\n") + 1
        return (f"{name}:{line}: this is not TOML: {said}",)
    found = [(line_of(text, path), said) for error in _validator().iter_errors(tables) for path, said in _said(error)]
    for table, home in HOME.items():
        if table not in tables and home == name:
            found.append((1, f"the table {table!r} is missing"))
        if table in tables and home != name:
            found.append((line_of(text, (table,)), f"the table {table!r} belongs to {home}"))
    return tuple(dict.fromkeys(f"{name}:{line}: {said}" for line, said in sorted(found)))


@cache
def _validator() -> Any:
    kinds = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    checker = FormatChecker(formats=())
    for name in FORMATS:
        checker.checks(name)(partial(_has_form, name))
    extended = validators.extend(Draft202012Validator, {"ordered": _ordered, "holds": _holds}, type_checker=kinds)
    return extended(json.loads(SCHEMA.read_text(encoding="utf-8")), format_checker=checker)


def _has_form(name: str, value: object) -> bool:
    """Whether a value matches its format, or is no string, which the schema says of itself."""
    return not isinstance(value, str) or FORMATS[name].fullmatch(value) is not None


def _ordered(_: object, names: Iterable[str], limits: object, __: object) -> Iterator[ValidationError]:
    """Two fields of a table, of which the first is at most the second."""
    least, most = (limits.get(name) if isinstance(limits, Mapping) else None for name in names)
    if type(least) is int and type(most) is int and least > most:
        yield ValidationError("not in order")


def _holds(_: object, names: Iterable[str], limits: object, __: object) -> Iterator[ValidationError]:
    """A range that ends, and has a multiple between its ends."""
    stated = limits if isinstance(limits, Mapping) else {}
    least, most, step = (stated.get(name, usual) for name, usual in zip(names, (0, None, 1), strict=True))
    if all(type(limit) is int for limit in (least, most, step)) and step > 0 and most // step * step < least:
        yield ValidationError("holds no number")


def _said(error: ValidationError) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is wrong: its path in the document, and the words."""
    path, schema = tuple(error.absolute_path), error.schema
    if error.validator == "required":
        for name in schema["required"]:
            if name not in error.instance:
                yield path, f"{_dotted(path)}field {name!r} is missing"
        return
    if error.validator == "additionalProperties":
        for name in error.instance:
            if name not in schema["properties"]:
                yield (*path, name), f"{_dotted(path)}field: got {name!r}; accepts {', '.join(schema['properties'])}"
        return
    if "propertyNames" in error.absolute_schema_path:
        yield (*path, error.instance), f"{_dotted(path)}name: got {error.instance!r}; accepts {schema['description']}"
        return
    accepts = schema["description"]
    if schema.get("format") == "element":
        accepts += f": {', '.join(BITS)}; a new one is added to codegen/schema/__init__.py"
    yield path, f"{_dotted(path)}got {error.instance!r}; accepts {accepts}"


def _dotted(path: Iterable[str | int]) -> str:
    names = ".".join(name for name in path if isinstance(name, str))
    return f"{names}: " if names else ""
