"""The hash of a payload's sources changes with whatever may change its library, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sources import sources_sha256

ROOT = Path(__file__).parents[3]


@pytest.fixture
def copy(tmp_path) -> Path:
    for name in ("csrc", "cmake"):
        shutil.copytree(ROOT / "package" / name, tmp_path / "package" / name)
    shutil.copy(ROOT / "package" / "CMakeLists.txt", tmp_path / "package")
    shutil.copytree(ROOT / "generated", tmp_path / "generated")
    return tmp_path


def sha256(folder: Path, payload: str) -> str:
    return sources_sha256(folder / "package", folder / "generated", payload)


def append(path: str, text: str, *, new: bool = False):
    def edit(folder: Path) -> None:
        assert (folder / path).exists() != new, path
        with (folder / path).open("a") as file:
            file.write(text)

    return edit


def replace(path: str, old: str, new: str):
    def edit(folder: Path) -> None:
        text = (folder / path).read_text()
        assert old in text, path
        (folder / path).write_text(text.replace(old, new, 1))

    return edit


def move(folder: Path) -> None:
    (folder / "package/csrc/sm90/scheduler/plan.cu").rename(folder / "package/csrc/sm90/scheduler/planned.cu")


def touches(copy: Path, edit) -> set[str]:
    """The payloads whose hash an edit changes."""
    payloads = ("cpu", "sm90", "sm100")
    before = {payload: sha256(copy, payload) for payload in payloads}
    edit(copy)
    return {payload for payload in payloads if sha256(copy, payload) != before[payload]}


@pytest.mark.parametrize(
    ("edit", "payloads"),
    [
        (append("package/csrc/common/dtype.h", "int more;"), {"cpu", "sm90", "sm100"}),
        (append("package/csrc/cuda/device.h", "int more;"), {"sm90", "sm100"}),
        (append("package/csrc/cpu/op.h", "int more;"), {"cpu"}),
        (append("generated/include/mla/abi.h", "int more;"), {"cpu", "sm90", "sm100"}),
        (append("generated/sm100/store_kv.cu", "int more;"), {"sm100"}),
        (append("generated/sm90/sources.cmake", "set(MORE 1)"), {"sm90"}),
        (append("package/cmake/flags.cmake", "set(MORE 1)"), {"cpu", "sm90", "sm100"}),
        (replace("generated/sm100/pyproject.toml", "nvidia-cutlass==", "nvidia-cutlass==9"), {"sm100"}),
        (replace("generated/sm100/pyproject.toml", 'version = "', 'version = "9'), {"sm100"}),
        (replace("generated/sm100/pyproject.toml", "install.strip = true", "install.strip = false"), {"sm100"}),
        (replace("generated/sm100/pyproject.toml", "keywords = [", 'keywords = ["more", '), set()),
        (move, {"sm90"}),
        (append("package/csrc/common/dtype.h", "// A comment.\n/* Another,\n of two lines. */\n\n"), set()),
        (append("package/cmake/flags.cmake", "# A comment.\n"), set()),
        (append("generated/include/mla/bindings.h", "int more;"), set()),
        (append("package/csrc/launcher/module.cpp", "int more;"), set()),
        (append("package/csrc/common/unused.h", "int more;", new=True), set()),
    ],
)
def test_what_a_payload_is_built_from_counts(copy, edit, payloads):
    assert touches(copy, edit) == payloads


def test_a_string_that_looks_like_a_comment_counts(copy):
    for address in ("http://one", "http://two"):
        append("package/csrc/common/dtype.h", f'constexpr auto {address[-3:]} = "{address}";\n')(copy)
        if address.endswith("one"):
            first = sha256(copy, "cpu")
    assert sha256(copy, "cpu") != first
