"""Writes a static simple index of wheels: ``python -m ci.release.index FOLDER... OUT``.

``OUT`` serves as it is from any web server, as HTML (PEP 503) and JSON (PEP 691), with hashes, sizes and each wheel's
metadata beside it (PEP 658, PEP 714). Source distributions are left out: from this index nothing is ever compiled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.utils import NormalizedName
from packaging.version import Version

from ci.release.wheelfile import Wheel, WheelError

PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta name="pypi:repository-version" content="1.1"><title>{title}</title></head>
<body>
{links}
</body>
</html>
"""


@dataclass(frozen=True)
class Entry:
    """A wheel as the index lists it, with its bytes."""

    wheel: Wheel
    data: bytes

    @classmethod
    def read(cls, path: Path) -> Entry:
        """Read a wheel.

        Raises
        ------
        WheelError
            It cannot be read, or its name and its metadata contradict one another.
        """
        return cls(Wheel.read(path), path.read_bytes())

    @property
    def filename(self) -> str:
        """The wheel's file name."""
        return self.wheel.path.name

    @property
    def metadata(self) -> bytes:
        """METADATA, byte for byte."""
        return self.wheel.files[f"{self.wheel.info}/METADATA"]

    @property
    def requires_python(self) -> str | None:
        """METADATA's Requires-Python."""
        value = self.wheel.metadata["Requires-Python"]
        return None if value is None else str(value)

    def json(self) -> dict[str, Any]:
        """Describe the file in the JSON of its project."""
        metadata = {"sha256": sha256(self.metadata)}
        found = {
            "filename": self.filename,
            "url": quote(self.filename),
            "hashes": {"sha256": sha256(self.data)},
            "size": len(self.data),
            "core-metadata": metadata,
            "dist-info-metadata": metadata,
        }
        return found | ({"requires-python": self.requires_python} if self.requires_python else {})

    def html(self) -> str:
        """Describe the file in the page of its project."""
        metadata = f"sha256={sha256(self.metadata)}"
        attributes = {
            "href": f"{quote(self.filename)}#sha256={sha256(self.data)}",
            "data-requires-python": self.requires_python,
            "data-core-metadata": metadata,
            "data-dist-info-metadata": metadata,
        }
        listed = " ".join(f'{name}="{escape(value)}"' for name, value in attributes.items() if value)
        return f"<a {listed}>{escape(self.filename)}</a><br>"


def sha256(data: bytes) -> str:
    """Return a digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def entries(folders: Iterable[Path]) -> dict[NormalizedName, list[Entry]]:
    """Return the wheels that lie in ``folders``, by normalised name, oldest version first.

    Raises
    ------
    WheelError
        There is none, one cannot be read, or two are the same wheel with different bytes.
    """
    folders = list(folders)
    found: dict[tuple[Any, ...], Entry] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.whl")):
        entry = Entry.read(path)
        wheel = entry.wheel
        same = found.setdefault((wheel.name, wheel.version, wheel.build, wheel.tags), entry)
        if same.data != entry.data:
            raise WheelError(f"{same.wheel.path} and {path} are the same wheel with different bytes; keep one of them")
    if not found:
        raise WheelError(f"there is no wheel in {', '.join(map(str, folders))}; build some with `nox -s wheels`")
    projects: dict[NormalizedName, list[Entry]] = {}
    for entry in sorted(found.values(), key=lambda entry: (entry.wheel.name, entry.wheel.version, entry.filename)):
        projects.setdefault(entry.wheel.name, []).append(entry)
    return projects


def files(projects: dict[NormalizedName, list[Entry]]) -> dict[str, bytes]:
    """Return the whole index: the bytes of every file, by path."""
    meta = {"api-version": "1.1"}
    links = "\n".join(f'<a href="{name}/">{name}</a><br>' for name in projects)
    root = {"meta": meta, "projects": [{"name": name} for name in projects]}
    found = {"index.html": page("Simple index", links), "index.json": json_bytes(root)}
    for name, listed in projects.items():
        versions: list[Version] = sorted({entry.wheel.version for entry in listed})
        project = {
            "meta": meta,
            "name": name,
            "versions": [str(version) for version in versions],
            "files": [entry.json() for entry in listed],
        }
        found[f"{name}/index.html"] = page(f"Links for {name}", "\n".join(entry.html() for entry in listed))
        found[f"{name}/index.json"] = json_bytes(project)
        for entry in listed:
            found[f"{name}/{entry.filename}"] = entry.data
            found[f"{name}/{entry.filename}.metadata"] = entry.metadata
    return found


def page(title: str, links: str) -> bytes:
    """Return an HTML page of the index."""
    return PAGE.format(title=escape(title), links=links).encode()


def json_bytes(document: dict[str, Any]) -> bytes:
    """Return a JSON document of the index."""
    return (json.dumps(document, indent=1) + "\n").encode()


def write(index: dict[str, bytes], out: Path) -> None:
    """Put an index at ``out``, in place of the one there; the old one stays whole if anything fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and not (out / "index.html").is_file():
        raise WheelError(f"{out} is no index, so it is not replaced; name another folder, or remove it")
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as name:
        new, old = Path(name, "new"), Path(name, "old")
        for path, data in index.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            (new / path).write_bytes(data)
        if out.exists():
            out.rename(old)
        try:
            new.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the index, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="wheels lie in it")
    parser.add_argument("out", type=Path, metavar="OUT")
    options = parser.parse_args(arguments)
    try:
        projects = entries(options.folders)
        write(files(projects), options.out)
    except (WheelError, OSError) as error:
        print(f"no index was written: {error}", file=sys.stderr)
        return 1
    for name, listed in projects.items():
        print(f"{name}: {', '.join(entry.filename for entry in listed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
