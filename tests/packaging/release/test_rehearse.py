"""The rehearsal runs the checklist of ``docs/releasing.md``: what the page says is what runs."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile

import pytest

from ci.release import rehearse
from tests.packaging.release.fake_wheels import wheel

PAGE = rehearse.PAGE.read_text(encoding="utf-8")
COMMIT = "0" * 40
ROW = re.compile(r"^\| \[(\d\. [^\]]+)\]\(#[^)]+\) \|.*\| (yes|no)\b.*\|$", re.MULTILINE)


@pytest.fixture(scope="module")
def steps():
    return {step.name: step for step in rehearse.steps(PAGE)}


def test_every_step_of_the_page_is_rehearsed_or_left_out_for_a_reason(steps):
    rehearsed = (*rehearse.ONCE, *rehearse.WITH_EVERY_PYTHON)
    assert sorted(steps) == sorted((*rehearsed, *rehearse.NOT_REHEARSED))
    assert [name for name in steps if name in rehearsed] == list(rehearsed), "the page has them in another order"
    assert all(steps[name].commands for name in rehearsed)


def test_the_table_of_the_page_says_what_is_rehearsed(steps):
    said = dict(ROW.findall(PAGE))
    assert list(said) == [name for name in steps if name[0].isdigit()]
    assert {name for name, word in said.items() if word == "yes"} == {*rehearse.ONCE, *rehearse.WITH_EVERY_PYTHON}


@pytest.mark.parametrize(
    ("step", "command"),
    [
        ("3. Build", "nox -s wheels"),
        ("4. Check", "nox -s check_wheels"),
        ("4. Check", "twine check --strict"),
        ("5. Upload", "twine upload"),
        ("6. Install", "mla-kernels[sm90]"),
        ("7. Run doctor", "mla-kernels doctor"),
    ],
)
def test_a_release_builds_checks_uploads_installs_and_runs_doctor(steps, step, command):
    assert any(command in line for line in steps[step].commands)


def test_every_session_that_the_page_names_exists(steps):
    used = {found for step in steps.values() for line in step.commands for found in re.findall(r"nox -s (\w+)", line)}
    there = set(re.findall(r"^def (\w+)\(session: nox.Session\)", (rehearse.ROOT / "noxfile.py").read_text(), re.M))
    assert {"full", "gpu", "evidence", "wheels", "check_wheels"} <= used <= there


def test_nothing_is_pushed_or_tagged_by_a_rehearsal(steps):
    commands = [line for name in rehearse.ONCE + rehearse.WITH_EVERY_PYTHON for line in steps[name].commands]
    assert [line for line in commands if line.startswith("git")] == []
    assert "git push" in PAGE


def test_a_block_titled_rehearsed_replaces_the_others_of_its_step():
    first = '## A\n\n```sh\nfirst\n```\n\n```sh title="Rehearsed"\nsecond\nthird\n```\n\n'
    page = f"# Page\n\n{first}## B\n\n```sh\nlast\n```\n"
    assert rehearse.steps(page) == (rehearse.Step("A", ("second", "third")), rehearse.Step("B", ("last",)))


def stated(folder, payload, **fields):
    """A wheel whose manifest says so."""
    path = wheel(folder, payload)
    name = "mla_kernels/payloads/cpu/manifest.json" if payload == "cpu" else f"mla_kernels_{payload}/manifest.json"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, json.dumps(fields))


def test_only_clean_wheels_of_the_commit_are_reused(tmp_path):
    stated(tmp_path, "cpu", commit=COMMIT, dirty=False)
    (tmp_path / "mla_kernels-0.1.0.tar.gz").touch()
    assert not rehearse.fresh(tmp_path, COMMIT), "there is no payload"
    stated(tmp_path, "sm90", commit=COMMIT, dirty=False)
    assert rehearse.fresh(tmp_path, COMMIT)
    assert not rehearse.fresh(tmp_path, "1" * 40)
    stated(tmp_path, "sm90", commit=COMMIT, dirty=True)
    assert not rehearse.fresh(tmp_path, COMMIT)


def test_a_command_that_fails_ends_the_rehearsal(capfd):
    step = rehearse.Step("3. Build", ("echo first", "false", "echo never"))
    with pytest.raises(SystemExit, match=r"releasing\.md failed in step '3. Build': false"):
        rehearse.follow(step, rehearse.environment("http://127.0.0.1:9"))
    printed = capfd.readouterr().out
    assert "first" in printed
    assert "never" not in printed


def test_the_index_takes_a_wheel_once_and_gives_it_to_pip(tmp_path):
    path = wheel(tmp_path / "dist", "cpu")
    other = wheel(tmp_path / "other", "cpu", binary=b"\x7fELF of another build")
    (tmp_path / "index").mkdir()
    with rehearse.index(tmp_path / "index") as url:
        variables = rehearse.environment(url)
        rehearse.follow(rehearse.Step("upload", (f"twine upload --non-interactive {path}",)), variables)
        with pytest.raises(SystemExit):
            rehearse.follow(rehearse.Step("again", (f"twine upload --non-interactive {other}",)), variables)
        download = f"python -m pip download --no-deps --dest {tmp_path / 'got'} mla-kernels"
        rehearse.follow(rehearse.Step("download", (download,)), variables)
    (got,) = (tmp_path / "got").iterdir()
    assert hashlib.sha256(got.read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest()
