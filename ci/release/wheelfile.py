"""Opens a wheel once, and holds its names, its metadata and all its files."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from functools import cached_property
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import BuildTag, InvalidWheelFilename, NormalizedName, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version


class WheelError(Exception):
    """A wheel cannot be used: the message says which, why, and what to do about it."""


@dataclass(frozen=True)
class Wheel:
    """A wheel: what its file name says, and the bytes of every file in it, by path."""

    path: Path
    name: NormalizedName
    version: Version
    build: BuildTag
    tags: frozenset[Tag]
    files: dict[str, bytes]
    info: str
    repeated: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Wheel:
        """Open a wheel and read all of it.

        Raises
        ------
        WheelError
            The file name is no wheel's, the archive is damaged, it lacks its metadata, or the metadata names another
            distribution or version than the file name.
        """
        try:
            name, version, build, tags = parse_wheel_filename(path.name)
        except (InvalidWheelFilename, InvalidVersion) as error:
            raise WheelError(f"{path.name}: this is no wheel's file name ({error}); build it again") from error
        try:
            with zipfile.ZipFile(path) as archive:
                entries = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
                files = {entry: archive.read(entry) for entry in entries}
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
            raise WheelError(f"{path.name}: the archive cannot be read ({error}); build or fetch it again") from error
        infos = {entry.split("/")[0] for entry in entries if entry.split("/")[0].endswith(".dist-info")}
        if len(infos) != 1 or f"{min(infos)}/METADATA" not in files:
            raise WheelError(f"{path.name}: it lacks METADATA in one .dist-info folder; build it again")
        repeated = tuple(sorted({entry for entry in entries if entries.count(entry) > 1}))
        wheel = cls(path, name, version, build, tags, files, infos.pop(), repeated)
        wheel._require_own_metadata()
        return wheel

    def _require_own_metadata(self) -> None:
        name, version = str(self.metadata["Name"]), str(self.metadata["Version"])
        if canonicalize_name(name) != self.name:
            raise WheelError(f"{self.path.name}: METADATA names {name}, the file name {self.name}; build it again")
        try:
            same = Version(version) == self.version
        except InvalidVersion:
            same = False
        if not same:
            raise WheelError(
                f"{self.path.name}: METADATA says version {version}, the file name {self.version}; build it again"
            )

    @cached_property
    def metadata(self) -> Message:
        """The headers of METADATA."""
        return self._headers("METADATA")

    @cached_property
    def wheel(self) -> Message:
        """The headers of WHEEL; none where the file is absent."""
        return self._headers("WHEEL")

    def values(self, field: str) -> list[str]:
        """Return every value of a METADATA field that may come several times."""
        return [str(value) for value in self.metadata.get_all(field, [])]

    @property
    def libraries(self) -> dict[str, bytes]:
        """The shared libraries by path, extension modules included."""
        return {path: data for path, data in self.files.items() if data.startswith(b"\x7fELF")}

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platform parts of the tag."""
        return tuple(sorted({tag.platform for tag in self.tags}))

    def _headers(self, name: str) -> Message:
        return BytesParser(policy=compat32).parsebytes(self.files.get(f"{self.info}/{name}", b""), headersonly=True)
