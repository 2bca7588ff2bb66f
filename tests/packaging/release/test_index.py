"""The simple index: what it holds, that pip reads it both ways, and that nothing broken is half-installed."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from html.parser import HTMLParser
from http import HTTPStatus
from pathlib import Path

import pytest

from ci.release import index
from ci.release.index_server import HTML, JSON, Answer, Environment, serving
from tests.packaging.release.fake_wheels import PLATFORM, ROWS, wheel


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def wheels(tmp_path):
    """Every wheel of one version."""
    for payload in ROWS:
        wheel(tmp_path / "wheels", payload)
    return tmp_path / "wheels"


@pytest.fixture
def simple(wheels, tmp_path):
    assert index.main([str(wheels), str(tmp_path / "simple")]) == 0
    return tmp_path / "simple"


class Links(HTMLParser):
    """The attributes of every link."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_both_roots_list_every_distribution_by_its_normalised_name(simple):
    names = sorted(row.distribution for row in ROWS.values())
    root = json.loads((simple / "index.json").read_text())
    assert root == {"meta": {"api-version": "1.1"}, "projects": [{"name": name} for name in names]}
    assert [link["href"] for link in Links((simple / "index.html").read_text()).found] == [f"{name}/" for name in names]


@pytest.mark.parametrize("payload", ROWS)
def test_both_pages_of_a_project_agree_with_the_wheel(simple, wheels, payload):
    row = ROWS[payload]
    (path,) = wheels.glob(f"{row.package}-*.whl")
    with zipfile.ZipFile(path) as archive:
        metadata = archive.read(f"{row.package}-0.1.0.dist-info/METADATA")
    folder = simple / row.distribution
    project = json.loads((folder / "index.json").read_text())
    (listed,) = project["files"]
    (link,) = Links((folder / "index.html").read_text()).found
    assert (project["name"], project["versions"]) == (row.distribution, ["0.1.0"])
    assert listed == {
        "filename": path.name,
        "url": path.name,
        "hashes": {"sha256": sha256(path.read_bytes())},
        "size": path.stat().st_size,
        "requires-python": ">=3.10",
        "core-metadata": {"sha256": sha256(metadata)},
        "dist-info-metadata": {"sha256": sha256(metadata)},
    }
    assert link == {
        "href": f"{path.name}#sha256={listed['hashes']['sha256']}",
        "data-requires-python": ">=3.10",
        "data-core-metadata": f"sha256={sha256(metadata)}",
        "data-dist-info-metadata": f"sha256={sha256(metadata)}",
    }
    assert (folder / path.name).read_bytes() == path.read_bytes()
    assert (folder / f"{path.name}.metadata").read_bytes() == metadata


def test_several_folders_and_versions_are_one_index(wheels, tmp_path):
    for payload in ROWS:
        wheel(tmp_path / "newer", payload, version="0.10.0")
    wheel(tmp_path / "newer", "sm90")
    assert index.main([str(wheels), str(tmp_path / "newer"), str(tmp_path / "out")]) == 0
    project = json.loads((tmp_path / "out" / "mla-kernels-sm90" / "index.json").read_text())
    assert project["versions"] == ["0.1.0", "0.10.0"]
    assert len(project["files"]) == 2


def truncated(folder: Path) -> None:
    path = next(folder.glob("mla_kernels-*.whl"))
    path.write_bytes(path.read_bytes()[:300])


def renamed(folder: Path, old: str, new: str) -> None:
    path = next(folder.glob("mla_kernels-*.whl"))
    path.rename(path.with_name(path.name.replace(old, new)))


def rebuilt(folder: Path) -> None:
    path = wheel(folder / "again", "sm90", b"other bytes")
    path.rename(folder / path.name.replace("mla_kernels_sm90", "MLA_kernels.sm90"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncated, "the archive cannot be read"),
        (lambda folder: renamed(folder, "0.1.0", "0.1.1"), "METADATA says version 0.1.0, the file name 0.1.1"),
        (lambda folder: renamed(folder, "mla_kernels", "other"), "METADATA names mla-kernels, the file name other"),
        (lambda folder: renamed(folder, "-cp310-abi3", ""), "no wheel's file name"),
        (rebuilt, "are the same wheel with different bytes"),
        (lambda folder: [path.unlink() for path in folder.glob("*.whl")], "there is no wheel in"),
    ],
    ids=["truncated", "other version", "other name", "no wheel", "two of one name", "none"],
)
def test_a_bad_wheel_is_named_and_the_old_index_stays(wheels, simple, capsys, damage, words):
    before = snapshot(simple)
    damage(wheels)
    assert index.main([str(wheels), str(simple)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("no index was written: ")
    assert words in error
    assert snapshot(simple) == before
    assert sorted(path.name for path in simple.parent.iterdir()) == ["simple", "wheels"]


@pytest.mark.parametrize("failing", ["write_bytes", "rename"])
def test_a_disk_that_fails_leaves_the_old_index_whole(wheels, simple, monkeypatch, capsys, failing):
    before, right, calls = snapshot(simple), getattr(Path, failing), []

    def fail(self: Path, *arguments: object) -> object:
        calls.append(self)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return right(self, *arguments)

    wheel(wheels, "sm90", version="0.2.0")
    monkeypatch.setattr(Path, failing, fail)
    assert index.main([str(wheels), str(simple)]) == 1
    monkeypatch.undo()
    assert "No space left on device" in capsys.readouterr().err
    assert snapshot(simple) == before
    assert sorted(path.name for path in simple.parent.iterdir()) == ["simple", "wheels"]


def test_a_folder_that_is_no_index_is_not_replaced(wheels, tmp_path, capsys):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years")
    assert index.main([str(wheels), str(tmp_path / "precious")]) == 1
    assert "is no index, so it is not replaced" in capsys.readouterr().err
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "years"


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "environment")


VERSIONS = "from importlib.metadata import version; print(version('mla-kernels'), version('mla-kernels-sm90'))"


@pytest.mark.parametrize("speaks_json", [True, False], ids=["json", "html"])
def test_pip_installs_a_payload_with_its_core(simple, environment, speaks_json):
    with serving(simple, speaks_json=speaks_json) as server:
        done = environment.pip(server.url, "install", "mla-kernels[sm90]")
    assert done.returncode == 0, done.stderr
    assert environment.run("-c", VERSIONS).stdout.split() == ["0.1.0", "0.1.0"]
    kinds = {kind for path, kind in server.asked if path.endswith("/")}
    assert kinds == {JSON if speaks_json else HTML}
    asked = [path.rpartition("/")[2] for path, _ in server.asked if not path.endswith("/")]
    assert [name.endswith(".metadata") for name in asked] == [True, True, False, False], "metadata first, then wheels"


def body(change):
    return lambda answer: (answer[0], answer[1], change(answer[2]))


def failing(_: Answer) -> Answer:
    return HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", b"out of order"


def other_hash(page: bytes) -> bytes:
    """The page with another hash for the wheel, and none for its metadata."""
    page = re.sub(rb'"(core|dist-info)-metadata": {[^}]*},?\s*', b"", page)
    return re.sub(rb'("hashes": {\s*"sha256": ")\w{64}', rb"\g<1>" + b"0" * 64, page)


PAYLOAD = f"mla_kernels_sm90-0.2.0-py3-none-{PLATFORM}.whl"
BROKEN = {
    "garbage instead of JSON": ("/mla-kernels-sm90/", body(lambda _: b"{]"), "JSONDecodeError"),
    "garbage instead of HTML": (
        "/mla-kernels-sm90/",
        lambda _: (200, HTML, b"<a href=<<"),
        "No matching distribution found",
    ),
    "status 500": ("/mla-kernels-sm90/", failing, "No matching distribution found for mla-kernels-sm90==0.2.0"),
    "status 500 for the wheel": (".whl", failing, "500"),
    "another hash": ("/mla-kernels-sm90/", body(other_hash), "DO NOT MATCH THE HASHES"),
    "other metadata": (".metadata", body(lambda data: data + b"!"), "hash"),
    "a truncated wheel": (PAYLOAD, body(lambda data: data[: len(data) // 2]), "DO NOT MATCH THE HASHES"),
    "another wheel": (PAYLOAD, body(lambda data: data[:-1] + b"!"), "DO NOT MATCH THE HASHES"),
}


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """An index of version 0.2.0."""
    folder = tmp_path_factory.mktemp("newer")
    for payload in ROWS:
        wheel(folder / "wheels", payload, version="0.2.0")
    assert index.main([str(folder / "wheels"), str(folder / "simple")]) == 0
    return folder / "simple"


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    """An empty environment, and one in which version 0.1.0 is installed; what is broken changes neither."""
    folder = tmp_path_factory.mktemp("environments")
    for payload in ROWS:
        wheel(folder / "wheels", payload)
    assert index.main([str(folder / "wheels"), str(folder / "simple")]) == 0
    found = {"fresh": Environment(folder / "fresh"), "upgrade": Environment(folder / "upgrade")}
    with serving(folder / "simple") as server:
        assert found["upgrade"].pip(server.url, "install", "mla-kernels[sm90]").returncode == 0
    return found


@pytest.mark.parametrize("state", ["fresh", "upgrade"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_index_changes_nothing(newer, environments, name, state):
    end, fault, words = BROKEN[name]
    environment = environments[state]
    before = environment.files()
    with serving(newer) as server:
        server.faults[end] = fault
        done = environment.pip(server.url, "install", "mla-kernels[sm90]==0.2.0")
    assert done.returncode != 0
    assert words in done.stderr, done.stderr
    assert environment.files() == before
    imported = environment.run("-c", VERSIONS)
    assert imported.stdout.split() == (["0.1.0", "0.1.0"] if state == "upgrade" else []), imported.stderr


def test_what_a_broken_index_did_not_change_can_still_be_upgraded(newer, environments):
    with serving(newer) as server:
        done = environments["upgrade"].pip(server.url, "install", "--upgrade", "mla-kernels[sm90]")
    assert done.returncode == 0, done.stderr
    assert environments["upgrade"].run("-c", VERSIONS).stdout.split() == ["0.2.0", "0.2.0"]


def test_an_index_that_is_not_there_changes_nothing(simple, environment):
    with serving(simple) as server:
        gone = server.url
    before = environment.files()
    done = environment.pip(gone, "install", "mla-kernels[sm90]")
    assert done.returncode != 0
    assert "No matching distribution found for mla-kernels[sm90]" in done.stderr
    assert environment.files() == before
