"""The version is written once, and every distribution says the same of the project."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib

import pytest
import sbom
from cyclonedx.output.json import JsonV1Dot6
from packaging.tags import cpython_tags

from ci.release.checks.provenance import cyclonedx_faults
from ci.rows import ROOT, rows

CORE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAYLOADS = {
    row.payload: tomllib.loads((ROOT / row.project / "pyproject.toml").read_text(encoding="utf-8"))
    for row in rows()
    if not row.core
}
VERSION = CORE["project"]["version"]
WRITTEN = re.compile(rf'^\s*(version|__version__|.*mla-kernels[\w-]*)\s*==?\s*"?{re.escape(VERSION)}\b', re.MULTILINE)
GENERATED = ("generated/",)
FAKES = ("tests/", "docs/benchmarks/", "docs/evidence/", "CHANGELOG.md")
"""Fakes of wheels, and records of what was measured, have versions of their own."""


def test_the_version_is_written_once():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {}
    for name in listed.splitlines():
        path = ROOT / name
        if name.startswith((*GENERATED, *FAKES)) or not path.is_file() or path.suffix in (".png", ".svg"):
            continue
        lines = [match[0] for match in WRITTEN.finditer(path.read_text(encoding="utf-8"))]
        found |= {name: lines} if lines else {}
    assert found == {"pyproject.toml": [f'version = "{VERSION}']}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_has_the_version_and_the_addresses_of_the_core(payload):
    project = PAYLOADS[payload]["project"]
    assert project["version"] == VERSION
    assert project["dependencies"] == [f"mla-kernels=={VERSION}"]
    for field in ("urls", "keywords", "requires-python"):
        assert project[field] == CORE["project"][field]
    assert set(CORE["project"]["classifiers"]) - set(project["classifiers"]) == {"Typing :: Typed"}


def test_every_payload_has_an_extra_that_pins_the_version_of_the_core():
    tables = {table["field"]: table for table in CORE["tool"]["dynamic-metadata"]}
    assert set(tables) == set(CORE["project"]["dynamic"])
    extras = tables["optional-dependencies"]
    for payload in PAYLOADS:
        assert extras["result"][payload] == [f"mla-kernels-{payload}=={{project[version]}}"]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_cibuildwheel_is_configured_alike_for_every_wheel(payload):
    """Only the folder of the build differs."""

    def configured(project, name):
        tool = project["tool"]
        (override,) = (one for one in tool["scikit-build"]["overrides"] if "CIBUILDWHEEL" in one["if"].get("env", {}))
        assert override.pop("build-dir").endswith(f"/build/{name}")
        return {"cibuildwheel": tool["cibuildwheel"], "override": override}

    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    other = tomllib.loads((ROOT / "generated" / payload / "pyproject.toml").read_text(encoding="utf-8"))
    assert configured(other, payload) == configured(read, "cpu")


def test_cibuildwheel_compiles_as_nox_does():
    """The libraries are linked against that glibc, in the stage of container images."""
    from ci.build.__main__ import GLIBC
    from ci.build.stage import OF_IMAGES

    (override,) = CORE["tool"]["scikit-build"]["overrides"]
    assert override["build-dir"] == f"{OF_IMAGES}/build/cpu"
    assert override["cmake"]["source-dir"] == f"{OF_IMAGES}/source/package"
    assert override["cmake"]["define"] == {"MLA_GLIBC": GLIBC, "MLA_GLIBC_STUBS": f"{OF_IMAGES}/glibc"}
    assert override["inherit"]["cmake"]["define"] == "append", "a payload's own definitions would be lost"
    said = CORE["tool"]["cibuildwheel"]
    assert said["before-all"] == f"mkdir -p {OF_IMAGES} && cp -a {{project}} {OF_IMAGES}/source"
    assert f"manylinux_{GLIBC.replace('.', '_')}_" in said["repair-wheel-command"]


def test_a_free_threaded_python_takes_no_wheel_of_the_core():
    """The page about installing says so; pip would otherwise take the wheel of the stable ABI."""
    usual = {str(tag) for tag in cpython_tags((3, 14), abis=["cp314"], platforms=["linux_x86_64"])}
    free_threaded = {str(tag) for tag in cpython_tags((3, 14), abis=["cp314t"], platforms=["linux_x86_64"])}
    assert "cp310-abi3-linux_x86_64" in usual
    assert "cp310-abi3-linux_x86_64" not in free_threaded
    assert not [name for name in CORE["project"]["classifiers"] if "Free Threading" in name]


@pytest.mark.parametrize("project", [CORE, *PAYLOADS.values()], ids=lambda project: project["project"]["name"])
def test_the_bill_of_materials_says_the_licence_of_its_project(project):
    name, licence = (project["project"][field] for field in ("name", "license"))
    text = JsonV1Dot6(sbom.bom(name.replace("-", "_"), VERSION, ["libstdc++"], "12.2.0")).output_as_string()
    assert list(cyclonedx_faults(text.encode())) == []
    assert json.loads(text)["metadata"]["component"]["licenses"] == [{"expression": licence}]


def test_a_bill_of_materials_of_no_project_is_refused():
    with pytest.raises(SystemExit, match="states the licence of mla-kernels-gone"):
        sbom.licence("mla-kernels-gone")
