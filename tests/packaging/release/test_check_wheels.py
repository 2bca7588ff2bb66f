"""Every check of a wheel catches its fault, and says which; a good wheel has none."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from ci.release import check_wheels
from ci.release.checks import contents, tools
from ci.release.wheelfile import Wheel, WheelError
from ci.rows import core, rows
from tests.packaging.release.conftest import OWN, TOOLS
from tests.packaging.release.fake_wheels import KERNEL, MACHINE, PLATFORM, ROWS, files_of, pack, wheel

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("payload", ROWS)
def test_a_good_wheel_has_no_fault(case, payload):
    assert case(payload).own_faults() == {}


def add(path: str, data: bytes = b"x"):
    return lambda case: case.files.update({path: data})


def drop(path: str):
    return lambda case: case.files.pop(path.format(info=case.info, folder=case.row.folder))


def said(name: str, old: str, new: str):
    return lambda case: case.replace(name, old, new)


def document(name: str, edit):
    return lambda case: case.change(name, edit)


def in_sbom(edit):
    return lambda case: case.change(case.sbom, edit)


FAULTS = [
    ("tag", "sm90", said("WHEEL", PLATFORM, f"linux_{MACHINE}"), f"WHEEL is tagged py3-none-linux_{MACHINE}"),
    ("tag", "cpu", said("WHEEL", "Purelib: false", "Purelib: true"), "Root-Is-Purelib"),
    ("tag", "cpu", drop("{info}/WHEEL"), "WHEEL is tagged none"),
    ("tag", "sm90", lambda case: case.retag(f"linux_{MACHINE}"), f"linux_{MACHINE} is not manylinux"),
    ("tag", "sm90", lambda case: case.retag("manylinux_2_28_ppc64le"), "is not manylinux on x86_64 or aarch64"),
    (
        "RECORD",
        "cpu",
        lambda case: setattr(case, "record", b"mla_kernels/gone.py,sha256=x,1"),
        "gone.py, which the wheel",
    ),
    ("RECORD", "sm90", lambda case: setattr(case, "record", b""), "RECORD lacks mla_kernels_sm90/__init__.py"),
    (
        "RECORD",
        "sm90",
        lambda case: setattr(case, "record", b"mla_kernels_sm90/__init__.py,sha256=x,0"),
        "another hash",
    ),
    ("files", "cpu", add("mla_kernels/__pycache__/a.cpython-311.pyc"), "is byte code"),
    ("files", "cpu", add("tests/test_all.py"), "lies outside mla_kernels"),
    ("files", "sm90", add("mla_kernels_sm90.libs/libx.so"), "lies outside mla_kernels_sm90"),
    ("files", "cpu", add("mla_kernels/decode.cpp"), "is source"),
    ("files", "sm90", add("mla_kernels_sm90/CMakeLists.txt"), "is source"),
    ("files", "cpu", add("mla_kernels/_x.cpython-310-x86_64-linux-gnu.so"), "for one Python only"),
    ("files", "sm90", add("mla_kernels_sm90/_x.abi3.so"), "is a Python extension"),
    ("files", "cpu", drop("mla_kernels/py.typed"), "py.typed is missing"),
    ("files", "sm100", drop("{folder}/registry.json"), "registry.json is missing"),
    ("files", "sm90", drop("{folder}/libmla_sm90.so"), "libmla_sm90.so is missing"),
    ("licences", "sm90", drop("{info}/licenses/LICENSE"), "named in METADATA but missing"),
    ("licences", "sm90", lambda case: case.files.update({f"{case.info}/licenses/EULA": b"x"}), "not named in METADATA"),
    ("licences", "cpu", said("METADATA", "License-File: LICENSE\n", ""), "names no License-File"),
    ("licences", "cpu", said("METADATA", "License-Expression: Apache-2.0\n", ""), "no License-Expression"),
    ("licences", "cpu", lambda case: case.files.update({f"{case.info}/licenses/LICENSE": b" \n"}), "is empty"),
    ("requirements", "sm90", said("METADATA", "mla-kernels==", "mla-kernels>="), "does not require mla-kernels==0.1.0"),
    ("requirements", "sm90", said("METADATA", "==0.1.0", "==0.1.1"), "does not require mla-kernels==0.1.0"),
    ("requirements", "sm90", said("METADATA", "mla-kernels==0.1.0", 'mla-kernels==0.1.0; extra == "a"'), "not require"),
    ("requirements", "cpu", said("METADATA", "sm90==0.1.0", "sm90==0.2.0"), "no extra sm90"),
    ("requirements", "cpu", said("METADATA", "Requires-Python: >=3.10\n", ""), "no Requires-Python"),
    ("size", "cpu", add("mla_kernels/big.bin", os.urandom(3_100_000)), "MB, more than the 3 MB"),
    ("size", "sm90", add("mla_kernels_sm90/big.bin", os.urandom(4_100_000)), "MB, more than the 4 MB"),
    ("manifest", "sm90", drop("{folder}/manifest.json"), "manifest.json is missing"),
    ("manifest", "sm90", add("mla_kernels_sm90/manifest.json", b"{"), "cannot be checked: JSONDecodeError"),
    ("manifest", "sm90", document("manifest.json", lambda said: said.update(version="0.2.0")), "says version 0.2.0"),
    (
        "manifest",
        "sm90",
        document("manifest.json", lambda said: said.update(abi_hash="0")),
        "says abi_hash 0, it is 01",
    ),
    ("manifest", "sm90", document("manifest.json", lambda said: said.update(payload="cpu")), "says payload cpu"),
    ("manifest", "cpu", document("manifest.json", lambda said: said["files"].popitem()), "does not list registry.json"),
    ("manifest", "cpu", document("manifest.json", lambda said: said["variants"].clear()), "decode is only in registry"),
    (
        "manifest",
        "cpu",
        document("manifest.json", lambda said: said["variants"].update(more={})),
        "more is only in manifest",
    ),
    (
        "manifest",
        "sm90",
        document("manifest.json", lambda said: said["files"]["libmla_sm90.so"].update(sha256="0" * 64)),
        "another size or hash for libmla_sm90.so",
    ),
    (
        "manifest",
        "sm90",
        document("manifest.json", lambda said: said["files"].update({"gone.so": {"bytes": 1, "sha256": ""}})),
        "gone.so, which the wheel lacks",
    ),
    ("manifest", "sm90", document("registry.json", lambda said: said.update(payload="sm100")), "of payload sm100, not"),
    ("SBOM", "sm90", lambda case: case.files.pop(case.sbom), "is missing"),
    ("SBOM", "sm90", in_sbom(lambda said: said.update(version="one")), "is not of type 'integer'"),
    ("SBOM", "sm90", in_sbom(lambda said: said.update(mine=1)), "mine"),
    ("SBOM", "sm90", in_sbom(lambda said: said.pop("specVersion")), "no CycloneDX document"),
    ("SBOM", "sm90", in_sbom(lambda said: said["components"].pop(0)), "does not list CUTLASS"),
    ("SBOM", "sm90", in_sbom(lambda said: said["components"].pop(1)), "does not list the static CUDA runtime"),
    ("SBOM", "sm90", in_sbom(lambda said: said["components"][0].pop("licenses")), "no licence for nvidia-cutlass"),
    ("SBOM", "cpu", in_sbom(lambda said: said["metadata"]["component"].update(version="3")), "describes mla-kernels 3"),
    (
        "SBOM",
        "sm90",
        said("METADATA", "Expression: Apache-2.0", "Expression: MIT"),
        "says licence Apache-2.0, METADATA MIT",
    ),
    ("SBOM", "cpu", in_sbom(lambda said: said["metadata"]["component"].pop("licenses")), "says licence nothing"),
    ("arch", "sm100", document("manifest.json", lambda said: said["flags"].update(cuda="sm_100a")), "do not name 100f"),
    (
        "kernels",
        "sm90",
        document("manifest.json", lambda said: said["variants"]["decode"]["kernels"].clear()),
        "no kernel",
    ),
    ("kernels", "sm90", document("manifest.json", lambda said: said["variants"].clear()), "is no variant's"),
    (
        "kernels",
        "sm90",
        document("manifest.json", lambda said: said["variants"]["decode"]["kernels"][0].update(symbol="_Z4gone")),
        "no cubin holds _Z4gone",
    ),
    (
        "kernels",
        "sm90",
        document("manifest.json", lambda said: said["variants"]["decode"]["kernels"][0].update(cubin_sha256="00")),
        f"no cubin that holds {KERNEL} has hash 00",
    ),
]


@pytest.mark.parametrize(
    ("check", "payload", "damage", "words"), FAULTS, ids=[f"{row[0]}-{row[3][:24]}" for row in FAULTS]
)
def test_a_fault_is_caught(case, check, payload, damage, words):
    damaged = case(payload)
    damage(damaged)
    found = damaged.own_faults()
    assert any(words in problem for problem in found.get(check, [])), found


def test_every_own_check_is_shown_to_catch_something():
    elsewhere = {"GLIBC", "NEEDED", "instructions"}  # in test_wheel_binaries.py
    assert {row[0] for row in FAULTS} | elsewhere == set(OWN)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        entry = max(archive.infolist(), key=lambda entry: entry.compress_size)
    data[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 0xFF
    path.write_bytes(data)


def empty(path: Path) -> None:
    zipfile.ZipFile(path, "w").close()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-200]), "the archive cannot be read"),
        (lambda path: path.write_bytes(b"<html>not found</html>"), "the archive cannot be read"),
        (flip, "the archive cannot be read"),
        (empty, "lacks METADATA"),
    ],
    ids=["truncated", "a page", "a flipped byte", "empty"],
)
def test_an_unreadable_wheel_is_an_error_in_words(case, damage, words):
    path = case("sm90").pack()
    damage(path)
    with pytest.raises(WheelError, match=words):
        Wheel.read(path)
    wheel, found = check_wheels.faults(path)
    assert wheel is None
    assert path.name in found["archive"][0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "mla_kernels_sm100-0.1.0-py3-none-any.whl",
            "METADATA names mla-kernels-sm90, the file name mla-kernels-sm100",
        ),
        ("mla_kernels_sm90-0.1.1-py3-none-any.whl", "METADATA says version 0.1.0, the file name 0.1.1"),
        ("mla_kernels_sm90.whl", "no wheel's file name"),
    ],
)
def test_a_file_name_that_contradicts_the_metadata_is_an_error(case, name, words):
    path = case("sm90").pack().rename(case("sm90").folder / name)
    with pytest.raises(WheelError, match=words):
        Wheel.read(path)


def test_wheels_that_do_not_belong_together_are_caught(tmp_path, binary):
    def read(payload: str, version: str, **registry: str) -> Wheel:
        row = ROWS[payload]
        files = files_of(row, binary, version)
        path = f"{row.folder}/registry.json"
        files[path] = json.dumps({**json.loads(files[path]), **registry}).encode()
        return Wheel.read(pack(tmp_path / f"{row.package}-{version}-{row.tag}-{PLATFORM}.whl", files))

    core, other = read("cpu", "0.1.0"), read("sm90", "0.2.0", abi_hash="ffff")
    assert check_wheels.disagreements([core, read("sm90", "0.1.0")]) == []
    assert check_wheels.disagreements([core, other]) == [
        "the wheels have versions 0.1.0, 0.2.0",
        "the wheels have ABI hashes 0123456789abcdef, ffff",
    ]


MEND = "build all of them from one commit without changes, or check them with --any-commit"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({}, None),
        ({"commit": "d" * 40}, f"{'c' * 40} and {'d' * 40}"),
        ({"dirty": True}, f"{'c' * 40} and {'c' * 40} with changes"),
        ({"commit": None}, f"{'c' * 40} and unknown"),
    ],
    ids=["one commit", "two", "changed", "no repository"],
)
def test_wheels_of_several_commits_or_of_changed_ones_are_caught_unless_they_may_be(case, monkeypatch, other, says):
    first, second = case("cpu"), case("sm90")
    second.change("manifest.json", lambda said: said.update(other))
    paths = [first.pack(), second.pack()]
    found = check_wheels.commits([Wheel.read(path) for path in paths])
    assert found == ([f"the wheels were built from commit {says}; {MEND}"] if says else [])
    monkeypatch.setattr(check_wheels, "CHECKS", {})
    monkeypatch.delenv("GITHUB_REF", raising=False)
    assert check_wheels.main([*map(str, paths)]) == (1 if says else 0)
    assert check_wheels.main(["--any-commit", *map(str, paths)]) == 0


@pytest.mark.parametrize("other", [{"dirty": True}, {"commit": None}])
def test_a_single_wheel_of_no_commit_is_caught(case, other):
    alone = case("cpu")
    alone.change("manifest.json", lambda said: said.update(other))
    (found,) = check_wheels.commits([Wheel.read(alone.pack())])
    assert MEND in found


@pytest.mark.parametrize(
    ("reference", "right"),
    [("refs/tags/v0.1.0", True), ("refs/tags/v0.2.0", False), ("refs/heads/v0.2.0", True)],
)
def test_a_tag_names_the_version_of_every_wheel(case, monkeypatch, capsys, reference, right):
    monkeypatch.setattr(check_wheels, "CHECKS", {})
    monkeypatch.setenv("GITHUB_REF", reference)
    wheel = case("cpu").pack()
    assert check_wheels.main([str(wheel)]) == (0 if right else 1)
    assert (f"{wheel.name} is not of tag v0.2.0" in capsys.readouterr().out) != right


def test_a_distribution_without_a_row_is_caught(tmp_path, binary):
    files = {
        f"other-1.dist-info/{name}": data for name, data in (("METADATA", b"Name: other\nVersion: 1"), ("WHEEL", b""))
    }
    _, found = check_wheels.faults(pack(tmp_path / "other-1-py3-none-any.whl", files))
    assert found == {"row": ["ci/wheels.toml has no row for other"]}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_missing_tool_is_a_fault(case, monkeypatch, tmp_path, tool):
    wheel = Wheel.read(case("cpu").pack())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_wheels.listed(check_wheels.CHECKS[tool], wheel, ROWS["cpu"]) == [
        f"{tool} is not installed; `nox -s check_wheels` installs it"
    ]


def test_the_command_prints_a_table_and_every_fault(case, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_REF", raising=False)
    monkeypatch.setattr(tools, "run", lambda *_, **__: subprocess.CompletedProcess((), 0, "{}", ""))
    monkeypatch.setattr(check_wheels, "CHECKS", {name: check_wheels.CHECKS[name] for name in OWN})
    good, bad = case("cpu"), case("sm90")
    bad.files["mla_kernels_sm90/a.pyc"] = b""
    sdist = tmp_path / "mla_kernels-0.1.0.tar.gz"
    assert check_wheels.main([str(good.pack()), str(sdist)]) == 0
    assert check_wheels.main([str(good.pack()), str(bad.pack())]) == 1
    printed = capsys.readouterr().out
    assert f"{bad.pack().name}: files: mla_kernels_sm90/a.pyc is byte code" in printed
    assert "1 wrong" in printed
    assert all(name in printed for name in OWN)


def test_a_row_names_files_that_its_project_builds():
    for row in rows():
        project = (ROOT / row.project / "pyproject.toml").read_text()
        assert f'name = "{row.distribution}"' in project
        assert f'py-api = "{row.tag.partition("-")[0]}"' in project
    assert {path.parent.name for path in ROOT.glob("generated/*/pyproject.toml")} == ROWS.keys() - {"cpu"}


def test_a_file_that_the_archive_has_twice_is_caught(tmp_path):
    """pip installs the last one, and whoever looks may see the first."""
    path = wheel(tmp_path, "cpu")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("mla_kernels/py.typed", b"")
    assert list(contents.record(Wheel.read(path), core())) == ["the archive holds mla_kernels/py.typed twice"]
