"""The installed distributions that hold payloads; importlib's own search hides a second version of one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path

from mla_kernels.version import __version__

CORE = "mla-kernels"
GROUP = "mla_kernels.payloads"


@dataclass(frozen=True, slots=True, eq=False)
class Installed:
    """One copy of a distribution that holds payloads.

    Attributes
    ----------
    name, version : str
    folder : Path
        Its ``dist-info``.
    distribution : Distribution
        What importlib knows of it.
    """

    name: str
    version: str
    folder: Path
    distribution: Distribution

    @property
    def entries(self) -> tuple[EntryPoint, ...]:
        """The entry points of its payloads.

        Raises
        ------
        TypeError, ValueError
            Its ``entry_points.txt`` is broken.
        """
        return tuple(self.distribution.entry_points.select(group=GROUP))

    def text(self, name: str) -> str:
        """A file of the ``dist-info``; empty where there is none, or it is no text."""
        return _text(self.distribution, name)


def installed() -> dict[str, tuple[Installed, ...]]:
    """Every distribution that holds payloads by name, and of each all copies in the order of ``sys.path``."""
    copies: dict[str, dict[str, Installed]] = {}
    for distribution in distributions():
        if GROUP not in _text(distribution, "entry_points.txt"):
            continue
        folder = Path(str(getattr(distribution, "_path", distribution.locate_file(""))))
        if folder.name.startswith("~"):  # what pip set aside and could not delete; it ignores it too
            continue
        metadata = _text(distribution, "METADATA") or _text(distribution, "PKG-INFO")
        stated_name, _, stated_version = folder.stem.partition("-")
        name = _canonical(_field(metadata, "Name") or stated_name)
        copy = Installed(name, _field(metadata, "Version") or stated_version, folder, distribution)
        copies.setdefault(name, {}).setdefault(os.path.realpath(folder), copy)
    return {name: tuple(found.values()) for name, found in copies.items()}


def clash(found: Mapping[str, Sequence[Installed]], name: str) -> str | None:
    """Why a distribution cannot be used whose versions differ, and how to mend it; None for one version, or none."""
    copies = found.get(name, ())
    if len({copy.version for copy in copies}) < 2:
        return None
    places = " and ".join(f"{copy.version} ({copy.folder})" for copy in copies)
    wanted = name if name == CORE else f"{name}=={__version__}"
    return (
        f"several versions of {name} are installed: {places}; remove each by pip uninstall -y {name}, "
        f"repeated until pip finds none, then pip install {wanted}"
    )


def reinstall(*names: str) -> str:
    """The command that puts back the files of distributions."""
    pinned = " ".join(f"{name}=={__version__}" for name in dict.fromkeys(names))
    return f"pip install --force-reinstall --no-deps {pinned}"


def _text(distribution: Distribution, name: str) -> str:
    try:
        return distribution.read_text(name) or ""
    except (OSError, ValueError):
        return ""


def _field(metadata: str, name: str) -> str:
    """A field of the header; importlib would parse the long description with it."""
    found = re.search(rf"^{name}:(.*)$", metadata.partition("\n\n")[0], re.MULTILINE)
    return found[1].strip() if found else ""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
