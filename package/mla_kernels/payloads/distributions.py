"""The installed distributions that hold payloads; importlib's own search hides a second version of one.

Other distributions of the environment may be broken in any way. Their metadata is read as text, and no code of theirs
runs: no package is imported, and no finder is asked that a package added to ``sys.meta_path``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

from mla_kernels.version import __version__

CORE = "mla-kernels"
OF_CORE = "cpu"
"""The payload that is part of the core."""
GROUP = "mla_kernels.payloads"
_FOLDER = re.compile(r"[A-Za-z0-9._+!-]+")
"""What names and versions consist of; a folder with other characters is no distribution's, and may be no text."""
_MAX_BYTES = 1 << 24
"""Of a file of metadata; a longer one counts as none."""


@dataclass(frozen=True, slots=True, eq=False)
class Installed:
    """One copy of a distribution that holds payloads.

    Attributes
    ----------
    name, version : str
    folder : Path
        Its ``dist-info``.
    """

    name: str
    version: str
    folder: Path

    @property
    def root(self) -> Path:
        """The folder that its packages are in."""
        return self.folder.parent

    @property
    def entries(self) -> Mapping[str, str]:
        """The entry points of its payloads: the package of each by name.

        Raises
        ------
        configparser.Error
            Its ``entry_points.txt`` is broken.
        """
        parser = ConfigParser(delimiters=("=",), interpolation=None, default_section="")
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(self.text("entry_points.txt"), source="entry_points.txt")
        return {plain(name): module for name, module in parser[GROUP].items()} if GROUP in parser else {}

    def text(self, name: str) -> str:
        """A file of the ``dist-info``; empty where there is none, or it is no text."""
        return _text(self.folder / name)


def installed() -> dict[str, tuple[Installed, ...]]:
    """Every distribution that holds payloads by name, and of each all copies in the order of ``sys.path``."""
    copies: dict[str, dict[str, Installed]] = {}
    for folder in _metadata_folders():
        if GROUP not in _text(folder / "entry_points.txt"):
            continue
        copy = Installed(_name(folder), _version(folder), folder)
        copies.setdefault(copy.name, {}).setdefault(os.path.realpath(folder), copy)
    return {name: tuple(found.values()) for name, found in copies.items()}


def versions(names: Collection[str]) -> dict[str, str]:
    """The versions of those of the named distributions that are installed."""
    folders: dict[str, Path] = {}
    for folder in _metadata_folders():
        folders.setdefault(_name(folder), folder)
    return {name: _version(folders[name]) for name in names if name in folders}


def owner(payload: str) -> str:
    """The one distribution that may bring a payload of this name."""
    return CORE if payload == OF_CORE else canonical(f"{CORE}-{payload}")


def foreign(name: str) -> bool:
    """Whether a distribution may bring no payload, by its name."""
    return name != CORE and not name.startswith(f"{CORE}-")


def plain(text: str) -> str:
    """A text of others as it may be printed anywhere: what is not ASCII or would move the cursor is escaped."""
    return text if text.isascii() and text.isprintable() else ascii(text)[1:-1]


def canonical(name: str) -> str:
    """A distribution's name in the one form that all its spellings have."""
    return re.sub(r"[-_.]+", "-", name).lower()


def clash(found: Mapping[str, Sequence[Installed]], name: str) -> str | None:
    """Why a distribution cannot be used whose versions differ, and how to mend it; None for one version, or none."""
    copies = found.get(name, ())
    if len({copy.version for copy in copies}) < 2:
        return None
    places = " and ".join(f"{copy.version} ({copy.folder})" for copy in copies)
    wanted = name if name == CORE else f"{name}=={__version__}"
    again = "" if foreign(name) else f"; then, {install([_payload(name)], wanted)}"
    return (
        f"several versions of {name} are installed: {places}; remove each by pip uninstall -y {name}, "
        f"repeated until pip finds none{again}"
    )


def reinstall(*names: str) -> str:
    """The commands that put back the files of distributions."""
    distinct = dict.fromkeys(names)
    pinned = " ".join(f"{name}=={__version__}" for name in distinct)
    return install(map(_payload, distinct), pinned, options="--force-reinstall --no-deps ")


def install(payloads: Iterable[str], wanted: str, *, options: str = "") -> str:
    """The commands that build and install wheels of payloads, and the one that installs them from an index."""
    built = f"nox -s wheels -- {' '.join(payloads)} && pip install {options}dist/*.whl"
    return f"in a clone, {built}; where an index has it, pip install {options}{wanted}"


def _payload(name: str) -> str:
    """The payload of a distribution."""
    return OF_CORE if name == CORE else name.removeprefix(f"{CORE}-")


def _metadata_folders() -> Iterator[Path]:
    """The folders of metadata in the order of ``sys.path``, without those that pip set aside by a ``~``."""
    for place in filter(lambda place: isinstance(place, str), sys.path):
        try:
            names = os.listdir(place or ".")
        except (OSError, ValueError):
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")) and _FOLDER.fullmatch(name):
                yield Path(place, name)


def _name(folder: Path) -> str:
    """The name in that of the folder, because ``METADATA`` can state any other."""
    return canonical(folder.stem.partition("-")[0])


def _version(folder: Path) -> str:
    metadata = _text(folder / "METADATA") or _text(folder / "PKG-INFO")
    # importlib would parse the long description with the header.
    found = re.search(r"^Version:(.*)$", metadata.partition("\n\n")[0], re.MULTILINE)
    return plain(found[1].strip()) if found else folder.stem.partition("-")[2]


def _text(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return ""
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
