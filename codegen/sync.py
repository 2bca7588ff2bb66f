"""Brings a folder in line with rendered files, or says where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GENERATED = Path(__file__).parent.parent / "generated"


@dataclass(frozen=True, slots=True)
class Difference:
    """Paths, relative to the folder, that are not as rendered."""

    missing: tuple[str, ...]
    stale: tuple[str, ...]
    orphan: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.stale or self.orphan)

    def __str__(self) -> str:
        kinds = {
            "missing: {}": self.missing,
            "stale: {}": self.stale,
            "orphan: {}: no row makes it; nox -s generate deletes it": self.orphan,
        }
        return "\n".join(text.format(path) for text, paths in kinds.items() for path in paths)


def compare(files: Mapping[str, str], folder: Path = GENERATED) -> Difference:
    """What ``write`` would create, change and delete."""
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return Difference(
        missing=tuple(sorted(set(files) - present)),
        stale=tuple(
            sorted(name for name in present & set(files) if (folder / name).read_bytes() != files[name].encode())
        ),
        orphan=tuple(sorted(present - set(files))),
    )


def write(files: Mapping[str, str], folder: Path = GENERATED) -> Difference:
    """Write what differs, delete orphans, leave equal files (and their time stamps) alone; return what was done."""
    difference = compare(files, folder)
    for name in (*difference.missing, *difference.stale):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], encoding="utf-8", newline="\n")
    for name in difference.orphan:
        (folder / name).unlink()
    return difference
