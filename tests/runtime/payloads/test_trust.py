"""What others install beside the core is read and never run, takes no name of ours, and is used as it was built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import mla_kernels as mla
import pytest
from mla_kernels.diagnostics import doctor
from mla_kernels.diagnostics.cli import main
from mla_kernels.payloads.distributions import owner

from tests.runtime.site import CPU, Site, cpu_registry

ENDS = ("raise RuntimeError", "raise SystemExit(3)", "raise BaseException", "import no_such_module", "def broken(:")


def reasons(installed):
    return {(rejected.name, rejected.distribution): rejected.reason for rejected in installed.rejected}


@pytest.mark.parametrize("code", ENDS)
def test_the_package_around_a_payload_is_not_imported(site, rediscover, code):
    folder = site.install("toy")
    parent = site.path / "toy_parent"
    parent.mkdir()
    (parent / "__init__.py").write_text(code)
    (folder / "__init__.py").write_text(code)
    folder.rename(parent / "payload")
    (info,) = site.path.glob("*.dist-info")
    (info / "entry_points.txt").write_text("[mla_kernels.payloads]\ntoy = toy_parent.payload\n")
    installed = rediscover()
    assert not installed.rejected
    assert installed.found["toy"].folder == parent / "payload"
    assert mla.lookup(op="decode", arch="toy", q_dtype="bf16").variant.payload == "toy"
    assert "toy_parent" not in sys.modules


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, BaseException])
def test_a_finder_of_another_package_is_not_asked(site, rediscover, monkeypatch, error):
    class Finder:
        def find_spec(self, *_):
            return None

        def find_distributions(self, *_):
            raise error("asked")

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    site.install("toy")
    assert set(rediscover().found) == {"cpu", "toy"}
    assert main(["info"]) == 0


def test_what_is_no_text_on_the_path_is_ignored(rediscover, monkeypatch):
    monkeypatch.setattr(sys, "path", [b"/bytes", None, "\0", *sys.path])
    assert set(rediscover().found) == {"cpu"}


GROUP = b"[mla_kernels.payloads]\n"


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("METADATA", b"\xff\xfe"),
        ("METADATA", b"Name: mla-kernels\nVersion: 99.1\n"),
        ("METADATA", b"Name: " + b"x" * (1 << 25)),
        ("entry_points.txt", GROUP + b"acme"),
        ("entry_points.txt", GROUP + b"[" * 1000),
        ("entry_points.txt", GROUP + b"= \n = = \n"),
        ("entry_points.txt", GROUP + b"cpu = mla_kernels.payloads.cpu\n"),
        ("entry_points.txt", GROUP + b"cpu = ../../x:y [z]\n../x = \0\n"),
        ("entry_points.txt", GROUP + b"\xff = \xff\n"),
        ("entry_points.txt", GROUP + b"a = b\n" * 10_000),
        ("entry_points.txt", GROUP + b"#" * (1 << 25)),
        ("RECORD", b"\0,\xff"),
    ],
)
def test_broken_metadata_of_a_stranger(site, rediscover, file, data):
    site.install("toy")
    info = site.describe("acme", "1.0", acme="acme")
    (info / file).write_bytes(data)
    installed = rediscover()
    assert set(installed.found) == {"cpu", "toy"}
    assert installed.found["cpu"].folder == CPU
    assert {rejected.distribution for rejected in installed.rejected} <= {"acme"}
    assert mla.lookup(op="decode", q_dtype="bf16").variant.arch == "cpu"


@pytest.mark.parametrize(
    "text", ["# mla_kernels.payloads\nacme", f"{GROUP.decode()}acme", f"{GROUP.decode()}acme = acme\n"]
)
def test_broken_metadata_of_a_stranger_is_a_note(site, rediscover, capsys, text):
    (site.describe("acme", "1.0", acme="acme") / "entry_points.txt").write_text(text)
    (site.describe("acme", "2.0", acme="acme") / "entry_points.txt").write_text(text)
    checks = {check.name: check for check in doctor.examine()}
    assert checks["distribution acme"].detail.endswith("pip uninstall -y acme, repeated until pip finds none")
    states = {name: check.state for name, check in checks.items()}
    assert (states["payload acme of acme"], states["distribution acme"]) == ("note", "note")
    assert "fault" not in states.values()
    rediscover()
    assert main(["doctor"]) == 0
    assert "note    payload acme of acme: rejected: " in capsys.readouterr().out


def test_what_a_stranger_writes_is_printed_in_ascii(site, rediscover, capsys):
    esc = "\x1b[31m"
    info = site.describe("acme", "1.0", **{f"{esc}é": "acme"})
    (info / "METADATA").write_text(f"Name: acme\nVersion: {esc}1\n")
    site.install("toy")
    (ours,) = site.path.glob("mla_kernels_toy-*.dist-info")
    (ours / "entry_points.txt").write_text(f"[mla_kernels.payloads]\ntoy = {esc}\n")
    (site.describe("broken", "1.0") / "entry_points.txt").write_text(f"[mla_kernels.payloads]\n{esc}é\n")
    rediscover()
    assert [main([command]) for command in ("info", "doctor")] == [0, 1]
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert "\x1b" not in printed
    assert r"payload \x1b[31m\xe9 of acme: rejected: " in printed
    assert r"version \x1b[31m1 in " in printed
    assert r"package \x1b[31m of distribution mla-kernels-toy is not in " in printed


@pytest.mark.parametrize(
    "command", [["info"], ["doctor"], ["explain", "op=decode", "arch=cpu"]], ids=lambda each: each[0]
)
def test_a_folder_whose_name_is_no_text_is_skipped(site, command):
    folder = site.describe("acme", "1.0", acme="acme")
    os.rename(os.fsencode(folder), os.fsencode(site.path) + b"/acme\xff-1.0.dist-info")
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict", "PYTHONPATH": str(site.path)}
    done = subprocess.run(
        [sys.executable, "-m", "mla_kernels", *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "acme" not in done.stdout


def test_metadata_that_is_a_folder(site, rediscover):
    info = site.describe("acme", "1.0", acme="acme")
    for name in ("METADATA", "entry_points.txt"):
        (info / name).unlink()
        (info / name).mkdir()
    assert set(rediscover().found) == {"cpu"}


@pytest.mark.parametrize("distribution", ["acme", "a", "zzz", "cpu", "toy", "mla-kernels-cpu", "mla_kernels.toys"])
@pytest.mark.parametrize("name", ["cpu", "toy"])
def test_a_stranger_takes_no_name_of_ours(site, rediscover, tmp_path_factory, monkeypatch, name, distribution):
    """It is whole and comes first on the path, so that nothing but its name keeps it out."""
    ours = Site(tmp_path_factory.mktemp("ours"))
    ours.install("toy")
    monkeypatch.setattr(sys, "path", [*sys.path, str(ours.path)])
    site.install(name, distribution=distribution)
    installed = rediscover()
    folders = {"cpu": CPU, "toy": ours.path / "mla_toy_payload"}
    assert {found: payload.folder for found, payload in installed.found.items()} == folders
    assert {found: payload.distribution for found, payload in installed.found.items()} == {
        "cpu": "mla-kernels",
        "toy": "mla-kernels-toy",
    }
    foreign = distribution.replace("_", "-").replace(".", "-")
    reason = f"distribution {foreign} may not bring it, because only {owner(name)} may bring a payload of this name; "
    assert reasons(installed) == {(name, foreign): f"{reason}remove it: pip uninstall {foreign}"}


@pytest.mark.parametrize(("arch", "holder"), [("cpu", "cpu"), ("sm90a", "sm90"), ("sm100f", "sm100"), ("toy", "toy")])
def test_a_payload_of_another_name_serves_no_arch_of_ours(site, rediscover, arch, holder):
    """Its variants would be preferred, and lists of archs in it change nothing of ours."""
    site.install("toy")
    registry = cpu_registry("zzz")
    registry["arch"]["name"] = arch
    for row in registry["archs"]:
        row |= {"payload": "zzz", "device": "cuda", "capabilities": ["9.9"]}
    for row in registry["variants"]:
        row |= {"arch": arch, "priority": 99}
    before = rediscover().archs
    site.install("zzz", registry=registry)
    installed = rediscover()
    assert set(installed.found) == {"cpu", "toy"}
    assert installed.archs == before
    says = f"its registry claims arch {arch}, which payload {holder} serves"
    assert reasons(installed) == {("zzz", "mla-kernels-zzz"): says}


def test_a_list_of_archs_changes_nothing_of_ours(site, rediscover):
    before = rediscover().archs
    registry = cpu_registry("aaa")
    for row in registry["archs"]:
        row |= {"payload": "aaa", "device": "cuda", "capabilities": ["9.9"]}
    site.install("aaa", registry=registry)
    installed = rediscover()
    assert set(installed.found) == {"cpu", "aaa"}
    assert installed.archs[: len(before)] == before


def test_variants_are_of_the_arch_of_their_registry(site, rediscover):
    registry = cpu_registry("zzz")
    registry["variants"][0]["arch"] = "cpu"
    site.install("zzz", registry=registry)
    assert "of arch zzz has variants of cpu; reinstall it" in reasons(rediscover())["zzz", "mla-kernels-zzz"]


def test_the_doctor_tells_of_a_stranger_and_of_whom_it_uses(site, rediscover):
    site.install("cpu", distribution="acme")
    checks = {check.name: check for check in doctor.examine()}
    assert [name for name, check in checks.items() if check.state == "fault"] == ["payload cpu of acme"]
    assert "only mla-kernels may bring a payload of this name" in checks["payload cpu of acme"].detail
    assert "of distribution mla-kernels, from " in checks["payload cpu"].detail


def test_a_stranger_may_bring_a_payload_of_its_own_name(site, rediscover):
    site.install("Acme_X")
    assert rediscover().found["Acme_X"].distribution == "mla-kernels-acme-x"


@pytest.mark.parametrize("name", ["libmla_toy.so", "registry.json"])
def test_a_file_that_was_edited_is_not_used(site, rediscover, name):
    """The sizes stay as they were, and a registry still parses."""
    path = site.install("toy") / name
    site.install("other")
    data = bytearray(path.read_bytes())
    at = data.index(b"bf16") if name == "registry.json" else len(data) // 2
    data[at] ^= 1
    path.write_bytes(data)
    if name == "registry.json":
        json.loads(path.read_text())
    installed = rediscover()
    assert set(installed.found) == {"cpu", "other"}
    (reason,) = reasons(installed).values()
    assert reason.startswith(f"{path} has sha256 ")
    assert "it is damaged or of another build; reinstall it: in a clone, nox -s wheels -- toy && " in reason
    assert str(path) not in Path("/proc/self/maps").read_text()
