"""Evidence is of the library that the sources build, or says itself why it is not."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from ci.release import evidence
from ci.rows import ROOT

TODAY, TESTED, BUILT = "5" * 64, "a" * 64, "b" * 64
COMPILERS = {"cxx": "GNU 12.2.0", "cuda": "13.4.92"}


def told(**changes: object) -> dict:
    document = {"state": "run", "gpu": "NVIDIA H200", "payload": "sm90", "commit": "c" * 40, "dirty": False}
    return document | {"compilers": COMPILERS, "library_sha256": TESTED, "variants": {}} | changes


def manifest(library: str = TESTED, **changes: object) -> dict:
    files = {"libmla_sm90.so": {"bytes": 1, "sha256": library}}
    return {"payload": "sm90", "sources_sha256": TODAY, "compilers": COMPILERS, "files": files} | changes


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Writes evidence and the manifest of a wheel, and returns the folders that the commands read."""
    monkeypatch.setattr(evidence, "_today", lambda _: TODAY)

    def write(document: dict, wheel: dict | None = None) -> dict[str, Path]:
        found = {"folder": tmp_path / "evidence", "dist": tmp_path / "dist"}
        for folder in found.values():
            folder.mkdir()
        (found["folder"] / "sm90.json").write_text(json.dumps(document))
        if wheel:
            with zipfile.ZipFile(found["dist"] / "mla_kernels_sm90-0.1.0-py3-none-any.whl", "w") as archive:
                archive.writestr("mla_kernels_sm90/manifest.json", json.dumps(wheel))
        return found

    return write


@pytest.mark.parametrize(
    ("document", "wheel", "fits"),
    [
        (told(sources_sha256=TODAY), None, True),
        (told(sources_sha256="0" * 64), None, False),
        (told(), None, False),
        (told(), manifest(), True),
        (told(sources_sha256="0" * 64), manifest(), True),
        (told(sources_sha256=TODAY), manifest(BUILT), False),
        (told(sources_sha256=TODAY), manifest(BUILT, sources_sha256="0" * 64), True),
        (told(sources_sha256=TODAY), manifest(BUILT, compilers={"cxx": "GNU 14.1.0", "cuda": "13.4.92"}), True),
    ],
    ids=[
        "the sources",
        "other sources",
        "sources unsaid",
        "the library",
        "the library of other sources",
        "another library",
        "an old wheel does not count",
        "nor does one of other compilers",
    ],
)
def test_the_gate_asks_for_the_library_or_else_for_its_sources(folders, capsys, document, wheel, fits):
    assert evidence.check(**folders(document, wheel)) == (0 if fits else 1)
    said = capsys.readouterr().out
    assert said.startswith("sm90.json: ")
    assert ("of the library that the sources build" if fits else f"it is of library {TESTED[:12]}") in said


def test_evidence_may_say_itself_that_it_is_stale(folders, capsys):
    assert evidence.check(**folders(told(stale="its kernels were renamed"), manifest(BUILT))) == 0
    assert "stale, as it says itself" in capsys.readouterr().out


def test_evidence_may_not_call_itself_stale_without_need(folders, capsys):
    assert evidence.check(**folders(told(stale="its kernels were renamed"), manifest())) == 1
    assert 'remove "stale"' in capsys.readouterr().out


def test_restating_lets_evidence_of_the_same_library_name_todays_sources(folders):
    found = folders(told(sources_sha256="0" * 64, stale="moved"), manifest())
    evidence.restate("sm90", **found)
    stated = json.loads((found["folder"] / "sm90.json").read_text())
    assert stated == told(sources_sha256=TODAY)
    assert list(stated)[:6] == ["state", "gpu", "payload", "commit", "dirty", "sources_sha256"]


@pytest.mark.parametrize(
    ("wheel", "words"),
    [
        (None, "dist/ holds no wheel of today's sources"),
        (manifest(sources_sha256="0" * 64), "dist/ holds no wheel of today's sources"),
        (manifest(BUILT), f"it is of library {TESTED[:12]}, the sources build {BUILT[:12]}"),
    ],
)
def test_nothing_else_is_restated(folders, wheel, words):
    with pytest.raises(SystemExit, match=words):
        evidence.restate("sm90", **folders(told(), wheel))


X86_64, AARCH64 = (f"mla_kernels_sm90-0.1.0-py3-none-manylinux_2_28_{name}.whl" for name in ("x86_64", "aarch64"))


@pytest.mark.parametrize(
    ("document", "wheel", "library", "fine", "says"),
    [
        (told(), X86_64, TESTED, True, "run on NVIDIA H200"),
        (
            told(),
            X86_64,
            BUILT,
            False,
            f"not run on a GPU, it has library {BUILT[:12]}, the evidence is of {TESTED[:12]}; ",
        ),
        (told(), AARCH64, BUILT, True, f"not run on a GPU, the evidence is of {X86_64}"),
        (told(stale="why"), X86_64, BUILT, True, f"{TESTED[:12]}, which is stale, as it says itself: why"),
        (told(state="marshalled"), X86_64, TESTED, True, "not run on a GPU of its own arch, marshalled on NVIDIA H200"),
        (told(payload="other"), X86_64, BUILT, True, "not run on a GPU, no evidence"),
    ],
    ids=["run", "another library", "another machine", "stale", "another arch", "none"],
)
def test_a_release_says_which_libraries_ran_and_stops_at_another_than_was_tested(
    tmp_path, capsys, document, wheel, library, fine, says
):
    (tmp_path / f"{document['payload']}.json").write_text(json.dumps(document | {"name": X86_64}))
    with zipfile.ZipFile(tmp_path / wheel, "w") as archive:
        archive.writestr("mla_kernels_sm90/manifest.json", json.dumps(manifest(library)))
    assert evidence.wheels(tmp_path, tmp_path) == (0 if fine else 1)
    said = capsys.readouterr().out
    assert said.startswith(f"{wheel}: ")
    assert says in said


def test_a_release_without_a_wheel_of_a_gpu_says_so(tmp_path):
    with pytest.raises(SystemExit, match="holds no wheel of a GPU payload"):
        evidence.wheels(tmp_path, tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "evidence").glob("*.json")), ids=lambda path: path.stem)
def test_evidence_of_the_repository_is_of_todays_sources_or_says_why_not(path):
    """Where a wheel was built, ``nox -s evidence`` compares its library, too."""
    document = json.loads(path.read_text())
    missed = evidence.difference(document, evidence._today(path.stem), None)
    fine, line = evidence.verdict(document, missed)
    assert fine, line
