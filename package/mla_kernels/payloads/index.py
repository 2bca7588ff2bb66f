"""Finds variants by config in time that hardly depends on their number: every value of a field is one bit set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mla_kernels.payloads.registry import Domain, Range, Value, Variant

KEPT_OPEN = ("num_heads", "q_len")
"""A config of an arch that leaves these open prefers variants that do not limit them more than others do."""


class Index:
    """The variants of one op. Bit ``i`` of a set stands for ``variants[i]``; the order is that of preference.

    Attributes
    ----------
    variants : tuple[Variant, ...]
        Highest priority first, then by name.
    fields : tuple[str, ...]
        The traits and numbers that a config of this op may name.
    known : frozenset[str]
        The same, and ``op``.
    """

    def __init__(self, variants: Iterable[Variant]) -> None:
        self.variants = tuple(sorted(variants, key=lambda variant: (-variant.priority, variant.name)))
        baked: dict[str, dict[Value, list[int]]] = {"arch": {}}
        accepts: dict[str, dict[int, tuple[Domain, list[int]]]] = {}
        for row, variant in enumerate(self.variants):
            baked["arch"].setdefault(variant.arch, []).append(row)
            for field, value in variant.baked.items():
                baked.setdefault(field, {}).setdefault(value, []).append(row)
            for field, domain in variant.accepts.items():
                # A registry shares equal domains, so identity groups them without hashing each.
                accepts.setdefault(field, {}).setdefault(id(domain), (domain, []))[1].append(row)
        self._baked = {
            field: {value: self._bits(rows) for value, rows in values.items()} for field, values in baked.items()
        }
        self._accepts = {
            field: tuple((domain, self._bits(rows)) for domain, rows in groups.values())
            for field, groups in accepts.items()
        }
        self.fields = tuple(dict.fromkeys([*self._baked, *self._accepts]))
        self.known = frozenset(("op", *self.fields))

    def best(self, config: Mapping[str, Value]) -> Variant | None:
        """The variant that serves ``config`` and is preferred to all others."""
        rows = self._matching(config)
        return self.variants[_lowest(self._open(rows, config))] if rows else None

    def matching(self, config: Mapping[str, Value]) -> tuple[Variant, ...]:
        """Every variant that serves ``config``, in order of preference."""
        rows = self._matching(config)
        first = self._open(rows, config)
        return tuple(self.variants[row] for part in (first, rows & ~first) for row in _rows(part))

    def nearest(self, config: Mapping[str, Value], limit: int) -> tuple[tuple[Variant, str], ...]:
        """The variants that miss ``config`` in the fewest fields, each with the first field that it misses."""
        serving = {field: self._serving(field, value) for field, value in config.items()}
        every = (1 << len(self.variants)) - 1
        missing = [every]  # missing[n]: the variants that miss n of the fields seen so far
        for rows in serving.values():
            missing = [
                (same & rows) | (fewer & ~rows & every)
                for same, fewer in zip([*missing, 0], [0, *missing], strict=True)
            ]
        found: list[tuple[Variant, str]] = []
        for level in missing[1:]:
            for row in _rows(level):
                if len(found) == limit:
                    return tuple(found)
                field = next(field for field, rows in serving.items() if not rows >> row & 1)
                found.append((self.variants[row], field))
        return tuple(found)

    def _matching(self, config: Mapping[str, Value]) -> int:
        rows = (1 << len(self.variants)) - 1
        for field, value in config.items():
            rows &= self._serving(field, value)
        return rows

    def _open(self, rows: int, config: Mapping[str, Value]) -> int:
        """Those of ``rows`` that limit no number which ``config`` leaves open more than others of its arch do."""
        for field in KEPT_OPEN:
            if field not in config and "arch" in config:
                rows = self._widest(rows, field)
        return rows

    def _widest(self, rows: int, field: str) -> int:
        groups = [(domain, those) for domain, those in self._accepts.get(field, ()) if those & rows]
        for domain, those in groups:
            if any(_is_within(domain, other) for other, _ in groups):
                rows &= ~those
        return rows

    def _serving(self, field: str, value: Value) -> int:
        rows = self._baked.get(field, {}).get(value, 0)
        for domain, those in self._accepts.get(field, ()):
            if value in domain:
                rows |= those
        return rows

    def _bits(self, rows: Iterable[int]) -> int:
        bits = bytearray(len(self.variants) // 8 + 1)
        for row in rows:
            bits[row >> 3] |= 1 << (row & 7)
        return int.from_bytes(bits, "little")


def _is_within(domain: Domain, other: Domain) -> bool:
    """Whether ``other`` has all numbers of ``domain``, and more."""
    if not isinstance(domain, Range) or not isinstance(other, Range) or domain == other:
        return False
    ends_before = other.max is None or (domain.max is not None and domain.max <= other.max)
    return other.min <= domain.min and ends_before and domain.multiple_of % other.multiple_of == 0


def _lowest(rows: int) -> int:
    return (rows & -rows).bit_length() - 1


def _rows(rows: int) -> Iterator[int]:
    while rows:
        row = _lowest(rows)
        yield row
        rows ^= 1 << row
