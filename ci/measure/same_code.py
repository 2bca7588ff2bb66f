"""Tells whether two libraries or wheels hold the same machine code: ``nox -s same_code -- OLD NEW``.

Functions are paired by their instructions, whatever they are called, so code that was only moved and renamed is found
to be the same. What is left is paired by likeness, and each difference is shown. The exit status is 1 where a kernel
differs, or a function that computes with packed floats, which are the row kernels of the CPU's instruction sets.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.measure.functions import Function, of_library


@dataclass(frozen=True)
class Comparison:
    """The functions of both libraries, each as often as it occurs."""

    equal: list[Function]
    only_old: list[Function]
    only_new: list[Function]

    @classmethod
    def of(cls, old: Sequence[Function], new: Sequence[Function]) -> Comparison:
        """Pair functions of the same instructions and the same resources, each with one other."""
        unpaired: dict[object, list[Function]] = {}
        for function in new:
            unpaired.setdefault(_identity(function), []).append(function)
        equal, only_old = [], []
        for function in old:
            same = unpaired.get(_identity(function))
            if same:
                same.pop()
                equal.append(function)
            else:
                only_old.append(function)
        return cls(equal, only_old, [function for left in unpaired.values() for function in left])

    def of_set(self, name: str) -> Comparison:
        """Return the part of one instruction set."""
        each = (self.equal, self.only_old, self.only_new)
        return Comparison(*([function for function in part if function.instruction_set == name] for part in each))

    @property
    def same(self) -> bool:
        """Whether no function is left without its equal."""
        return not (self.only_old or self.only_new)

    def counts(self) -> str:
        """Say such as ``72 equal, 0 only in the old library, 0 only in the new one``."""
        equal, old, new = (len(part) for part in (self.equal, self.only_old, self.only_new))
        return f"{equal} equal, {old} only in the old library, {new} only in the new one"

    def likely_pairs(self) -> Iterator[tuple[Function | None, Function | None]]:
        """Pair functions that differ: those of one name, then those with most instructions in common."""
        left, right = list(self.only_old), list(self.only_new)
        pairs = sorted(((_likeness(old, new), i, j) for i, old in enumerate(left) for j, new in enumerate(right)))
        olds, news = set(range(len(left))), set(range(len(right)))
        for _, i, j in reversed(pairs):
            if i in olds and j in news:
                olds.remove(i)
                news.remove(j)
                yield left[i], right[j]
        yield from ((left[i], None) for i in sorted(olds))
        yield from ((None, right[j]) for j in sorted(news))


def _identity(function: Function) -> tuple[object, ...]:
    return function.instructions, function.usage


def _likeness(old: Function, new: Function) -> tuple[bool, float]:
    common = (old.opcodes & new.opcodes).total()
    return old.name == new.name, common / max(len(old.instructions), len(new.instructions), 1)


def difference(old: Function, new: Function) -> str:
    """Say in words what changed between two functions."""
    before, after = ([text.partition(" ; ")[0] for text in each.instructions] for each in (old, new))
    told = [f"{old.name}\n  -> {new.name}" if old.name != new.name else old.name]
    told.append(f"  instructions: {len(before)} -> {len(after)}")
    if old.usage != new.usage:
        told.append(f"  resources: {old.usage}\n          -> {new.usage}")
    if before == after:
        waits = sum(one != other for one, other in zip(old.instructions, new.instructions, strict=True))
        told.append(f"  the text is the same; {waits} instructions are encoded otherwise (waits, stalls, reuse)")
        return "\n".join(told)
    change = Counter(new.opcodes)
    change.subtract(old.opcodes)
    counts = sorted((-abs(count), f"{count:+d} {opcode}") for opcode, count in change.items() if count)
    told.append(f"  opcodes: {', '.join(text for _, text in counts[:12]) or 'the same'}")
    changed = sum(line[0] in "+-" for line in list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:])
    told.append(f"  lines of the difference: {changed}")
    return "\n".join(told)


def patch(old: Function, new: Function) -> Iterator[str]:
    """Return a unified diff of the instructions of two functions."""
    return difflib.unified_diff(old.instructions, new.instructions, old.name, new.name, lineterm="")


def functions(path: Path) -> list[Function]:
    """Return the functions of a library, or of the library in a wheel."""
    if path.suffix != ".whl":
        return of_library(path)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as wheel:
        (name,) = (each for each in wheel.namelist() if Path(each).match("libmla_*.so"))
        return of_library(Path(wheel.extract(name, folder)))


def report(found: Comparison, *, patches: bool) -> Iterator[str]:
    """Tell the counts, those of the CPU's instruction sets apart, and every difference that counts."""
    yield found.counts()
    sets = sorted({each.instruction_set for each in (*found.equal, *found.only_old, *found.only_new)})
    if sets != [""]:
        yield from (f"{name or 'no packed floats'}: {found.of_set(name).counts()}" for name in sets)
    for old, new in required(found).likely_pairs():
        if old and new:
            yield difference(old, new)
            yield from patch(old, new) if patches else ()
        else:
            one = old or new
            yield f"only in the {'old' if old else 'new'} library: {one.name if one else ''}"


def required(found: Comparison) -> Comparison:
    """Return the functions that must be equal: all kernels of a GPU, and the row kernels of a CPU."""
    cpu = any(each.instruction_set for each in (*found.equal, *found.only_old, *found.only_new))
    return Comparison(
        *(
            [function for function in part if function.instruction_set or not cpu]
            for part in (found.equal, found.only_old, found.only_new)
        )
    )


def main() -> int:
    """Compare the two libraries that the command line names."""
    parser = argparse.ArgumentParser(prog="nox -s same_code --", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--diff", action="store_true", help="print the instructions that differ, too")
    options = parser.parse_args()
    found = Comparison.of(functions(options.old), functions(options.new))
    print("\n".join(report(found, patches=options.diff)))
    return 0 if required(found).same and found.equal else 1


if __name__ == "__main__":
    sys.exit(main())
