"""Renders the hosted workflow from ``ci/wheels.toml``: ``python -m ci.release.workflow`` writes it.

Every step runs a session of nox, or one of the actions that the table pins. Wheels are built in the image that
cibuildwheel pins for the name in ``[tool.cibuildwheel]``; the first job asks for it by ``--images``.
"""

from __future__ import annotations

import configparser
import json
import os
import sys
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ci.build.stage import OF_IMAGES
from ci.rows import ROOT, Row, rows, table

PATH = ROOT / ".github" / "workflows" / "wheels.yml"
RELEASE = "startsWith(github.ref, 'refs/tags/v')"
# Git refuses a work tree of another owner, and a container's user is not the one who checked out.
TRUST_WORK_TREE = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
IN_CONTAINER = {**TRUST_WORK_TREE, "MLA_KERNELS_STAGE": str(OF_IMAGES)}

COMMENTS = {"container": " # zizmor: ignore[unpinned-images] cibuildwheel pins the digest"}

Point = dict[str, str]
"""A job runs once for each point of its matrix, which is such a mapping."""


@dataclass(frozen=True)
class Step:
    """A step: a command to run, or an action to use with options."""

    key: str
    value: str
    options: dict[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Job:
    """A job of the workflow."""

    name: str
    title: str
    runner: str
    minutes: int
    steps: tuple[Step, ...]
    needs: tuple[str, ...] = ()
    matrix: tuple[Point, ...] = ()
    container: bool = False
    environment: str | None = None
    condition: str | None = None
    outputs: dict[str, str] = field(default_factory=dict)
    permissions: dict[str, str] = field(default_factory=lambda: {"contents": "read"})

    @property
    def settings(self) -> dict[str, str]:
        """What the job sets beside what every job has, in YAML."""
        found: dict[str, Any] = {"timeout-minutes": self.minutes}
        if self.container:
            found |= {"container": "${{ needs.images.outputs[matrix.machine] }}", "env": IN_CONTAINER}
        if self.outputs:
            found["outputs"] = self.outputs
        if self.environment:
            found["environment"] = self.environment
        return {name: json.dumps(value) + COMMENTS.get(name, "") for name, value in found.items()}


@cache
def hosted() -> dict[str, Any]:
    """Return the table of what is used to host the workflow."""
    found: dict[str, Any] = table()["hosted"]
    return found


def matrix(name: str) -> str:
    """Return the expression for a value of the matrix."""
    return f"${{{{ matrix.{name} }}}}"


def use(action: str, **options: Any) -> Step:
    """Use a pinned action; options are written with ``_`` for ``-``."""
    pinned = hosted()["actions"][action]
    value = f"{pinned['uses']}@{pinned['commit']} # {pinned['version']}"
    return Step("uses", value, {name.replace("_", "-"): value for name, value in options.items()})


def run(arguments: str) -> Step:
    """Run nox."""
    return Step("run", f"python{hosted()['python']} -m nox {arguments}")


def start(*pythons: str) -> tuple[Step, ...]:
    """Check out, provide ``pythons`` (none in a container, which has them), and install nox."""
    return (
        use("checkout", persist_credentials=False),
        *(use("setup_python", python_version=python) for python in pythons),
        Step("run", f"python{hosted()['python']} -m pip install nox=={hosted()['nox']}"),
    )


def upload(name: str, path: str) -> Step:
    """Keep files for later jobs."""
    return use("upload", name=name, path=path, if_no_files_found="error")


def download(pattern: str, path: str = "dist") -> Step:
    """Fetch files of earlier jobs into one folder."""
    return use("download", pattern=pattern, path=path, merge_multiple=True)


def compile_cache(key: str) -> Step:
    """Keep what sccache holds from one run to the next; a release takes nothing from it."""
    keys = {"key": f"sccache-{key}-${{{{ github.sha }}}}", "restore_keys": f"sccache-{key}-"}
    path = str(OF_IMAGES / "cache")
    return use("cache", path=path, lookup_only="${{ startsWith(github.ref, 'refs/tags/') }}", **keys)


def machine(name: str) -> Point:
    """Return a machine architecture with the runner that has it."""
    return {"machine": name, "runner": hosted()["runners"][name]}


def host() -> str:
    """Return the runner of jobs for which the machine does not matter."""
    return str(hosted()["runners"]["x86_64"])


def points(row: Row) -> list[Point]:
    """Return a wheel once for each machine."""
    return [{"payload": row.payload, **machine(name)} for name in row.machines]


def images() -> dict[str, str]:
    """Return for each machine the image that ``[tool.cibuildwheel]`` names, with the digest that cibuildwheel pins."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    pinned = configparser.ConfigParser(inline_comment_prefixes="#")
    pinned.read_string((resources.files("cibuildwheel") / "resources" / "pinned_docker_images.cfg").read_text())
    return {name: pinned[name][config[f"manylinux-{name}-image"]] for name in hosted()["runners"]}


def jobs() -> tuple[Job, ...]:
    """Return every job, in order."""
    return (*building(), *judging(), *releasing())


def building() -> tuple[Job, ...]:
    """Test the sources, and build the sdist and every wheel: in one go, or in shards that are merged."""
    python, runner = hosted()["python"], matrix("runner")
    payload, where, shard = matrix("payload"), matrix("machine"), f"{matrix('shard')}/{matrix('of')}"
    whole = tuple(point for row in rows() if row.shards == 1 for point in points(row))
    split = tuple(point for row in rows() if row.shards > 1 for point in points(row))
    shards = tuple(
        {**point, "shard": str(index), "of": str(row.shards)}
        for row in rows()
        if row.shards > 1
        for point in points(row)
        for index in range(1, row.shards + 1)
    )
    part = f"shard-{payload}-{where}"
    keep = upload(f"dist-{payload}-{where}", "dist/*.whl")
    compile_part = (
        compile_cache(f"{payload}-{where}-{matrix('shard')}"),
        run(f"-s wheels -- {payload} --shard {shard}"),
        upload(f"{part}-{matrix('shard')}", "dist/shards"),
    )
    whole_wheel = (compile_cache(f"{payload}-{where}"), run(f"-s wheels -- {payload}"), keep)
    link = (download(f"{part}-*", "dist/shards"), run(f"-s merge_shards -- {payload}"), keep)
    sdist = (run("-s wheels -- sdist"), upload("dist-cpu-sdist", "dist/*.tar.gz"))
    title = f"{payload} {where}"
    told = {name: f"${{{{ steps.images.outputs.{name} }}}}" for name in hosted()["runners"]}
    ask = Step("run", run("-s images").value, id="images")
    return (
        Job("images", "images", host(), 10, (*start(python), ask), outputs=told),
        Job("source", "sources", host(), 60, (*start(python), run("-s check lint tests"))),
        Job("docs", "documentation", host(), 20, (*start(python), run("-s docs"), upload("site", "build/site"))),
        Job("sdist", "sdist", host(), 20, (*start(python), *sdist)),
        Job(
            "shard", f"{title} {shard}", runner, 120, (*start(), *compile_part),
            needs=("images",), matrix=shards, container=True,
        ),
        Job("merge", title, runner, 60, (*start(), *link), needs=("images", "shard"), matrix=split, container=True),
        Job(
            "build", title, runner, 120, (*start(), *whole_wheel),
            needs=("images",), matrix=whole, container=True,
        ),
    )  # fmt: skip


def judging() -> tuple[Job, ...]:
    """On every machine, check the wheels, install them from an index, and test the core under several Pythons."""
    python, runner = hosted()["python"], matrix("runner")
    where, version = matrix("machine"), matrix("python")
    machines = tuple(map(machine, hosted()["runners"]))
    tested = tuple({**point, "python": tested} for point in machines for tested in hosted()["test_pythons"])
    check = (download(f"dist-*-{where}"), download("dist-cpu-sdist"), run("-s check_wheels index"))
    test = (download(f"dist-cpu-{where}"), run(f"-s test_wheel --force-python {version}"))
    built = ("build", "merge", "sdist")
    return (
        Job("check", f"check {where}", runner, 30, (*start(python), *check), needs=built, matrix=machines),
        Job(
            "test", f"test {where} Python {version}", runner, 60, (*start(version, python), *test),
            needs=("build",), matrix=tested,
        ),
    )  # fmt: skip


def releasing() -> tuple[Job, ...]:
    """For a tag, compare the libraries with the evidence, attest all files, and publish each distribution by itself.

    The index takes one pending publisher for an environment, so every distribution has one. What an earlier attempt
    published is skipped.
    """
    payload = matrix("payload")
    distributions = tuple({"payload": row.payload} for row in rows())
    evidence = (*start(hosted()["python"]), download("dist-*"), run("-s evidence -- wheels"))
    publish = (download(f"dist-{payload}-*"), use("publish", skip_existing=True))
    return (
        Job("evidence", "evidence", host(), 15, evidence, needs=("build", "merge"), condition=RELEASE),
        Job(
            "attest", "attest", host(), 15, (download("dist-*"), use("attest", subject_path="dist/*")),
            needs=("source", "docs", "check", "test", "evidence"), condition=RELEASE,
            permissions={"id-token": "write", "attestations": "write"},
        ),
        Job(
            "publish", f"publish {payload}", host(), 15, publish, needs=("attest",), matrix=distributions,
            condition=RELEASE, environment=f"pypi-{payload}", permissions={"id-token": "write"},
        ),
    )  # fmt: skip


def render() -> str:
    """Return the text of the workflow."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quoted"] = json.dumps
    expressions = {
        "reference": "${{ github.ref }}",
        "is_pull_request": "${{ github.event_name == 'pull_request' }}",
    }
    return environment.get_template("workflow.yml.j2").render(jobs=jobs(), **expressions)


def main() -> None:
    """Write the workflow; with ``--images`` tell the workflow's first job which images to build in."""
    if sys.argv[1:] == ["--images"]:
        with Path(os.environ.get("GITHUB_OUTPUT", os.devnull)).open("a") as outputs:
            for name, image in images().items():
                print(f"{name}={image}", file=outputs)
                print(f"{name}: {image}")
        return
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(render())


if __name__ == "__main__":
    main()
