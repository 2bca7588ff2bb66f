"""The image for cibuildwheel has Pythons where manylinux's images have them."""

from __future__ import annotations

import os
import tomllib

import pytest

from ci.release import local_image
from ci.rows import ROOT, rows


@pytest.fixture
def prefix(tmp_path):
    """The folder of a Python, with a file that belongs to this machine only."""
    folder = tmp_path / "machine" / "python3.10"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python3.10").write_text("#!/bin/sh\n")
    (folder / "bin" / "python").symlink_to("python3.10")
    (folder / "site.pth").touch()
    return folder


def test_a_python_is_where_manylinux_has_it(tmp_path, prefix):
    root = tmp_path / "root"
    (root / "usr" / "local" / "bin").mkdir(parents=True)
    local_image._add_python(root, "3.10", prefix)
    assert os.readlink(root / "opt" / "python" / "cp310-cp310") == str(prefix)
    assert os.readlink(root / "usr" / "local" / "bin" / "python3.10") == str(prefix / "bin" / "python3.10")
    copied = root / prefix.relative_to("/")
    assert (copied / "bin" / "python").read_text() == "#!/bin/sh\n"
    assert not (copied / "site.pth").exists()


def test_the_image_has_the_python_that_builds_every_wheel():
    built = {identifier.partition("-")[0] for row in rows() for identifier in row.identifiers}
    assert built == {f"cp{local_image.PYTHONS[1].replace('.', '')}"}


def test_the_page_names_the_image():
    assert f"MANYLINUX_X86_64_IMAGE={local_image.IMAGE}\n" in (ROOT / "docs" / "releasing.md").read_text()


def test_the_pythons_run_what_is_asked_of_them():
    """The package supports the one that builds; ci/ needs tomllib, which the last one has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={local_image.PYTHONS[1]}"
    assert tuple(map(int, local_image.PYTHONS[2].split("."))) >= (3, 11)
