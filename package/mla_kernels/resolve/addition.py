"""What would add a config to the matrix, or why the matrix has no place for it.

The generator refuses a point by the same rule (``codegen/allow.py``), which it cannot share: neither imports the other.
A test walks over every point of the matrix and holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mla_kernels.payloads.registry import Allow, Choices, Domain, Registry, Value, Variant
from mla_kernels.resolve.config import DEFAULTS

Row = Mapping[str, Domain]
"""Points that there are kernels for: every combination of the values of its fields."""


def addition(op: str, config: Mapping[str, Value], nearest: Sequence[Variant], registry: Registry) -> tuple[str, str]:
    """Say how a config that no variant serves could become one of a payload's.

    Parameters
    ----------
    op : str
    config : Mapping[str, str | int]
        What was asked for.
    nearest : Sequence[Variant]
        The variants that come nearest, which decide what the config leaves open.
    registry : Registry
        Of the payload that serves the config's arch.

    Returns
    -------
    tuple[str, str]
        The command and nothing, or nothing and the reason.
    """
    asked = {field: value for field, value in config.items() if field != "arch"}
    for field, value in asked.items():
        domain = registry.domains.get(field)
        if domain is not None and value not in domain:
            return "", f"{field} {value} is outside the domain of the matrix: {domain}"
    tables = [table for table in registry.allow if table.op == op]
    rows, missing = _covering(tables, registry.fields(op), asked)
    if not rows:
        stated = next((table.reasons["op"] for table in tables if "op" in table.reasons), "")
        return "", stated or f"there is no kernel of {op} for {registry.arch}"
    if missing:
        return "", _refusal(rows, missing, asked)
    own = [variant for variant in nearest if variant.arch == registry.arch]
    point = _completed(rows, registry, op, asked, own[0].baked if own else {})
    like = next((each for each in registry.variants if each.op == op and each.baked == point), own[0] if own else None)
    for field in registry.accepted[op]:
        domain = like.domain(field) if like else None
        if field in asked and (domain is None or asked[field] not in domain):
            point[field] = asked[field]
    point = {field: value for field, value in point.items() if value != DEFAULTS.get(field)}
    return f"nox -s generate -- add {pairs({'op': op, 'arch': registry.arch, **point})}", ""


def pairs(fields: Mapping[str, Value]) -> str:
    """``op=decode q_dtype=bf16``."""
    return " ".join(f"{field}={value}" for field, value in fields.items())


def _covering(
    tables: Sequence[Allow], fields: Sequence[str], point: Mapping[str, Value]
) -> tuple[list[tuple[Allow, Row]], str]:
    """The rows that hold a point; or those that held it until a field of which none has the value, and that field."""
    rows = [(table, row) for table in tables for row in table.rows]
    for field in fields:
        if field in point:
            kept = [(table, row) for table, row in rows if field not in row or point[field] in row[field]]
            if not kept:
                return rows, field
            rows = kept
    return rows, ""


def _refusal(rows: Sequence[tuple[Allow, Row]], missing: str, point: Mapping[str, Value]) -> str:
    reason = next((table.reasons[missing] for table, _ in rows if missing in table.reasons), "")
    got = f"{missing} is {point[missing]}; accepts {_accepted([row[missing] for _, row in rows])}"
    return f"{reason} ({got})" if reason else got


def _accepted(sets: Sequence[Domain]) -> str:
    if all(isinstance(domain, Choices) for domain in sets):
        listed = [value for domain in sets if isinstance(domain, Choices) for value in domain.values]
        return str(Choices(tuple(dict.fromkeys(listed))))
    return " or ".join(dict.fromkeys(map(str, sets)))


def _completed(
    rows: Sequence[tuple[Allow, Row]],
    registry: Registry,
    op: str,
    point: Mapping[str, Value],
    pattern: Mapping[str, Value],
) -> dict[str, Value]:
    """All traits of a point: its own, and those of the pattern where the row that has most of it allows them."""
    traits = registry.traits[op]
    whole = [{trait: row.get(trait, registry.domains[trait]) for trait in traits} for _, row in rows]
    like = max(whole, key=lambda row: sum(pattern.get(trait) in row[trait] for trait in traits))
    return {trait: point.get(trait, _value(like[trait], pattern.get(trait))) for trait in traits}


def _value(domain: Domain, wanted: Value | None) -> Value:
    if wanted is not None and wanted in domain:
        return wanted
    return domain.values[0] if isinstance(domain, Choices) else domain.min
