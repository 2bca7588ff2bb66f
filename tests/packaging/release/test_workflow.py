"""The hosted workflow is what the table says and holds no logic; cibuildwheel builds what the table lists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ci.release import workflow
from ci.rows import ROOT, rows

TOOLS = Path(sys.executable).parent
NOX = re.compile(r"python3\.12 -m nox -s ([a-z_ ]+?)(?: --.*)?")
INSTALL = re.compile(r"python3\.12 -m pip install nox==[\d.]+")


def loaded(text: str) -> dict:
    return YAML(typ="safe").load(text)


@pytest.fixture(scope="module")
def text():
    return workflow.PATH.read_text()


@pytest.fixture(scope="module")
def jobs(text):
    return loaded(text)["jobs"]


@pytest.fixture(scope="module")
def steps(jobs):
    return [step for job in jobs.values() for step in job["steps"]]


def tool(name: str, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [TOOLS / name, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **options)


def test_the_workflow_is_what_the_table_says(text):
    assert text == workflow.render(), "run: nox -s workflow"


def test_githubs_schema_accepts_the_workflow_and_would_notice_a_slip(text, tmp_path):
    schema = "--builtin-schema=vendor.github-workflows"
    assert tool("check-jsonschema", schema, str(workflow.PATH)).returncode == 0
    (tmp_path / "bad.yml").write_text(text.replace("runs-on:", "run-on:", 1))
    assert tool("check-jsonschema", schema, str(tmp_path / "bad.yml")).returncode != 0


def test_zizmor_finds_no_unsafe_habit_and_would_notice_one(text, tmp_path):
    done = tool("zizmor", "--offline", "--no-progress", str(workflow.PATH))
    assert done.returncode == 0, done.stdout
    (tmp_path / "bad.yml").write_text(re.sub(r"@\w{40} # (v\d)", r"@\1", text))
    assert tool("zizmor", "--offline", "--no-progress", str(tmp_path / "bad.yml")).returncode != 0


def test_every_command_is_an_existing_session_of_nox(steps):
    commands = [step["run"] for step in steps if "run" in step]
    ran = [NOX.fullmatch(command) for command in commands if not INSTALL.fullmatch(command)]
    assert None not in ran, commands
    used = {name for found in ran for name in found[1].split()}
    listed = [sys.executable, "-m", "nox", "--list-sessions", "--session", *sorted(used)]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"wheels", "merge_shards", "check_wheels", "index", "test_wheel"} <= used


def test_every_action_is_pinned_by_the_commit_of_the_table(text, steps):
    pinned = {f"{action['uses']}@{action['commit']}" for action in workflow.hosted()["actions"].values()}
    assert {step["uses"] for step in steps if "uses" in step} == pinned
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", value) for value in re.findall(r"uses: (.*)", text))


def test_no_secret_and_no_permission_beyond_need(text, jobs):
    assert "secrets" not in text
    assert loaded(text)["permissions"] == {}
    for name, job in jobs.items():
        writes = {scope for scope, access in job["permissions"].items() if access == "write"}
        assert writes == {"attest": {"id-token", "attestations"}, "publish": {"id-token"}}.get(name, set())
        if writes:
            assert job["if"] == "startsWith(github.ref, 'refs/tags/v')"
            assert not [step for step in job["steps"] if "run" in step], f"{name} runs code with a right to write"


def test_nothing_is_published_before_all_is_checked(jobs):
    def before(name: str) -> set[str]:
        needs = set(jobs[name].get("needs", []))
        return needs.union(*(before(other) for other in needs))

    assert before("publish") == jobs.keys() - {"publish"}


def test_a_release_compares_its_wheels_with_the_evidence_before_anything_is_attested(jobs):
    *_, taken, ran = jobs["evidence"]["steps"]
    assert taken["with"]["pattern"] == "dist-*"
    assert ran["run"].endswith("nox -s evidence -- wheels")
    assert jobs["evidence"]["if"] == workflow.RELEASE
    assert "evidence" in jobs["attest"]["needs"]


def test_each_distribution_is_published_alone_and_may_be_published_again(jobs, steps):
    """The index takes one pending publisher for an environment, and refuses a file that it has."""
    publish = jobs["publish"]
    assert publish["strategy"]["matrix"]["include"] == [{"payload": row.payload} for row in rows()]
    assert publish["environment"] == "pypi-${{ matrix.payload }}"
    taken, published = publish["steps"]
    assert taken["with"]["pattern"] == "dist-${{ matrix.payload }}-*"
    assert published["with"] == {"skip-existing": True}
    kept = {step["with"]["name"] for step in steps if step.get("with", {}).get("name", "").startswith("dist-")}
    assert kept == {"dist-cpu-sdist", "dist-${{ matrix.payload }}-${{ matrix.machine }}"}


def test_compilations_are_kept_between_runs_but_not_for_a_release(jobs):
    for name in ("shard", "build"):
        steps = jobs[name]["steps"]
        (at,) = (number for number, step in enumerate(steps) if step.get("uses", "").startswith("actions/cache@"))
        assert steps[at]["with"]["lookup-only"] == "${{ startsWith(github.ref, 'refs/tags/') }}"
        stage = jobs[name]["env"]["MLA_KERNELS_STAGE"]
        assert steps[at]["with"]["path"] == f"{stage}/cache", "nox keeps sccache's store elsewhere"
        assert steps[at]["with"]["key"].startswith(steps[at]["with"]["restore-keys"])
        assert "-s wheels" in steps[at + 1]["run"]
    keys = {jobs[name]["steps"][2]["with"]["restore-keys"] for name in ("shard", "build")}
    assert len(keys) == 2, "two jobs write to one store"


def test_the_documentation_is_built_and_kept(jobs):
    ran, kept = jobs["docs"]["steps"][-2:]
    assert ran["run"].endswith("nox -s docs")
    assert kept["with"]["path"] == "build/site"
    assert "docs" in jobs["attest"]["needs"]


def test_every_wheel_is_built_on_every_machine_and_every_shard_once(jobs):
    def points(name: str, *fields: str) -> list[tuple[str, ...]]:
        return [tuple(point[field] for field in fields) for point in jobs[name]["strategy"]["matrix"]["include"]]

    built = points("build", "payload", "machine") + points("merge", "payload", "machine")
    assert sorted(built) == sorted((row.payload, machine) for row in rows() for machine in row.machines)
    parts = [
        (row.payload, machine, str(index), str(row.shards))
        for row in rows()
        if row.shards > 1
        for machine in row.machines
        for index in range(1, row.shards + 1)
    ]
    assert points("shard", "payload", "machine", "shard", "of") == parts


def test_wheels_are_built_in_the_images_that_cibuildwheel_pins(jobs, tmp_path, monkeypatch):
    for name in ("shard", "merge", "build"):
        assert "images" in jobs[name]["needs"]
        assert jobs[name]["container"] == "${{ needs.images.outputs[matrix.machine] }}"
    (asks,) = (step for step in jobs["images"]["steps"] if step.get("id") == "images")
    assert asks["run"].endswith("nox -s images")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    monkeypatch.setattr("sys.argv", ["workflow", "--images"])
    workflow.main()
    told = dict(line.split("=", 1) for line in (tmp_path / "outputs").read_text().splitlines())
    assert told.keys() == jobs["images"]["outputs"].keys() == {"x86_64", "aarch64"}
    for machine, image in told.items():
        assert jobs["images"]["outputs"][machine] == f"${{{{ steps.images.outputs.{machine} }}}}"
        assert re.fullmatch(rf"\S+/manylinux_2_28_{machine}@sha256:[0-9a-f]{{64}}", image)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.payload)
def test_cibuildwheel_builds_the_identifiers_of_the_row(row):
    arguments = ("--platform=linux", "--print-build-identifiers", row.project)
    for machine in row.machines:
        done = tool("cibuildwheel", f"--archs={machine}", *arguments)
        listed = [identifier for identifier in row.identifiers if identifier.endswith(machine)]
        assert done.stdout.split() == listed, done.stderr
    assert tool("cibuildwheel", f"--archs={','.join(row.machines)}", *arguments).stdout.split() == [*row.identifiers]


def test_cibuildwheel_tests_what_the_rows_say():
    for row in rows():
        config = tomllib.loads((ROOT / row.project / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
        assert config["test-command"] == row.smoke
    assert all(shlex.split(row.smoke)[:3] == ["python", "-m", "mla_kernels"] for row in rows())
