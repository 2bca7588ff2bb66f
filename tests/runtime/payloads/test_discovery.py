"""Payloads are found by entry point; one that cannot be used is kept with its reason, which errors repeat."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import mla_kernels as mla
import pytest
from mla_kernels.errors import VariantNotFoundError
from mla_kernels.payloads import discovery, distributions

from tests.runtime.site import CPU, Site, cpu_registry
from tests.support.native.build import build


def reasons(installed: discovery.Payloads) -> dict[str, str]:
    return {rejected.name: rejected.reason for rejected in installed.rejected}


def test_the_cpu_payload_is_in_use(rediscover):
    payload = rediscover().found["cpu"]
    assert payload.version == mla.__version__
    assert payload.library.abi_hash == payload.registry.abi_hash
    assert {variant.name for variant in payload.registry.variants} == set(payload.library.names)


def test_another_payload_is_found_and_used(site, rediscover):
    site.install("toy")
    assert set(rediscover().found) == {"cpu", "toy"}
    kernel = mla.lookup(op="decode", arch="toy", q_dtype="bf16")
    assert (kernel.variant.arch, kernel.variant.payload) == ("toy", "toy")
    assert mla.lookup(op="decode", q_dtype="bf16").variant.arch == "cpu"


def test_version_of_the_distribution_must_be_the_cores(site, rediscover):
    site.install("toy", version="99.1")
    reason = reasons(rediscover())["toy"]
    assert "mla-kernels-toy is version 99.1" in reason
    assert f"mla-kernels is {mla.__version__}; install the same version of both: in a clone, " in reason
    assert f"nox -s wheels -- cpu toy && {OPTIONS} dist/*.whl; where an index has it, " in reason


def test_version_of_the_library_must_be_the_cores(site, rediscover, tmp_path_factory):
    site.install("toy", library=build(tmp_path_factory.mktemp("noop")))
    assert "libmla_toy.so is version 0.0.0" in reasons(rediscover())["toy"]


def test_abi_of_the_library_must_be_the_cores(site, rediscover, tmp_path_factory):
    site.install("toy", library=build(tmp_path_factory.mktemp("noop"), "noop", "WRONG_HASH"))
    reason = reasons(rediscover())["toy"]
    for part in ("0000000000000000", cpu_registry()["abi_hash"], "version 0.0.0", f"version {mla.__version__}"):
        assert part in reason


def test_registry_must_list_what_the_library_exports(site, rediscover):
    registry = cpu_registry("toy")
    removed = registry["variants"].pop()["name"]
    site.install("toy", registry=registry)
    reason = reasons(rediscover())["toy"]
    assert "do not hold the same variants" in reason
    assert removed in reason


@pytest.mark.parametrize(
    ("registry", "part"),
    [
        ("{", "registry.json cannot be read: JSONDecodeError"),
        ("{}", "registry.json cannot be read: KeyError('payload')"),
        ("[]", "registry.json cannot be read: TypeError"),
        ("[" * 100_000, "registry.json cannot be read: RecursionError"),
    ],
)
def test_broken_registry(site, rediscover, registry, part):
    site.install("toy", registry=registry)
    assert part in reasons(rediscover())["toy"]


def test_registry_of_another_payload(site, rediscover):
    site.install("toy", registry=cpu_registry("other"))
    assert "describes payload other, not toy" in reasons(rediscover())["toy"]


@pytest.mark.parametrize("name", ["registry.json", "libmla_toy.so", "manifest.json"])
def test_missing_file_is_named(site, rediscover, name):
    (site.install("toy") / name).unlink()
    assert name in reasons(rediscover())["toy"]


def test_library_that_is_none(site, rediscover):
    (site.install("toy") / "libmla_toy.so").write_bytes(b"no library")
    site.manifest("toy")
    assert "cannot be loaded" in reasons(rediscover())["toy"]


def test_missing_module(site, rediscover):
    folder = site.install("toy")
    folder.rename(folder.with_name("elsewhere"))
    says = f"package mla_toy_payload of distribution mla-kernels-toy is not in {site.path}; reinstall it: {REINSTALL}"
    assert reasons(rediscover())["toy"] == says


def test_of_two_payloads_of_a_name_in_one_distribution_none_is_used(site, rediscover):
    folder = site.install("toy")
    shutil.copytree(folder, site.path / "second")
    (info,) = site.path.glob("*.dist-info")
    with (info / "entry_points.txt").open("a") as file:
        file.write("toy = second\n")
    installed = rediscover()
    assert set(installed.found) == {"cpu"}
    assert "entry_points.txt cannot be read: " in reasons(installed)["mla-kernels-toy"]


def test_a_rejected_payload_leaves_the_others_in_use_and_is_said_by_lookup_errors(site, rediscover):
    site.install("toy", version="99.1")
    rediscover()
    assert mla.lookup(op="decode", q_dtype="bf16").variant.arch == "cpu"
    with pytest.raises(VariantNotFoundError, match="payload toy was rejected: distribution mla-kernels-toy is version"):
        mla.lookup(op="decode", arch="toy")


def test_no_payload_at_all(rediscover, monkeypatch):
    monkeypatch.setattr(discovery, "installed", dict)
    rediscover()
    with pytest.raises(VariantNotFoundError, match="no payload for arch cpu is installed; installed: none"):
        mla.lookup(op="decode", q_dtype="bf16")
    monkeypatch.undo()


OPTIONS = "pip install --force-reinstall --no-deps"
REINSTALL = (
    f"in a clone, nox -s wheels -- toy && {OPTIONS} dist/*.whl; "
    f"where an index has it, {OPTIONS} mla-kernels-toy=={mla.__version__}"
)
SIZE = (CPU / "libmla_cpu.so").stat().st_size


def test_a_truncated_library_of_the_core_says_what_to_reinstall(site, rediscover, monkeypatch):
    folder = site.install("cpu")
    (folder / "libmla_cpu.so").write_bytes(b"")
    copies = [copy for copy in distributions.installed()["mla-kernels"] if copy.root == site.path]
    monkeypatch.setattr(discovery, "installed", lambda: {"mla-kernels": copies})
    monkeypatch.setattr(discovery, "_ROOT", site.path)
    rediscover()
    with pytest.raises(VariantNotFoundError) as caught:
        mla.lookup(op="decode", q_dtype="bf16")
    asked, rejected = str(caught.value).split("\n")
    assert asked == "no variant serves op=decode arch=cpu q_dtype=bf16"
    assert rejected.startswith("payload cpu was rejected: ")
    assert f"it is truncated; reinstall it: in a clone, nox -s wheels -- cpu && {OPTIONS} dist/*.whl; " in rejected
    assert f"where an index has it, {OPTIONS} mla-kernels=={mla.__version__}" in rejected
    monkeypatch.undo()


def test_truncated_libraries_are_refused_before_they_are_mapped(site):
    cuts = (0, 1, 64, 1000, 4096, 8192, SIZE // 4, SIZE // 2, SIZE - 8192, SIZE - 4096, SIZE - 1)
    for index, cut in enumerate(cuts):
        name = f"toy{index}"
        with (site.install(name) / f"libmla_{name}.so").open("r+b") as library:
            library.truncate(cut)
    code = """
import json, sys
sys.path.insert(0, sys.argv[1])
import mla_kernels
from mla_kernels.payloads.discovery import payloads
variant = mla_kernels.lookup(op="decode", q_dtype="bf16", arch="cpu").variant.name
print(json.dumps([variant, list(payloads().found), {each.name: each.reason for each in payloads().rejected}]))
"""
    command = [sys.executable, "-c", code, str(site.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the process ended with {done.returncode}: {done.stderr}"
    variant, found, rejected = json.loads(done.stdout)
    assert (variant, found) == ("cpu_decode_qbf16_kvbf16_obf16_direct_split", ["cpu"])
    for index, cut in enumerate(cuts):
        says = f"libmla_toy{index}.so has {cut} bytes, manifest.json states {SIZE}: it is truncated; reinstall it: in a"
        assert says in rejected[f"toy{index}"]


@pytest.mark.parametrize("name", ["libmla_toy.so", "registry.json"])
def test_file_of_another_build(site, rediscover, name):
    path = site.install("toy") / name
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b" ")
    says = (
        f"{name} has {size + 1} bytes, manifest.json states {size}: it is of another build; reinstall it: {REINSTALL}"
    )
    assert says in reasons(rediscover())["toy"]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"payload": "sm90"}, "manifest.json cannot be read: KeyError('libmla_sm90.so')"),
        ({"version": "99.1"}, f"manifest.json is of version 99.1, its distribution of {mla.__version__}"),
        ({"files": {}}, "manifest.json cannot be read: KeyError('libmla_toy.so')"),
        ({"variants": None}, "manifest.json cannot be read: TypeError('None is no dict')"),
    ],
)
def test_tampered_manifest(site, rediscover, changes, part):
    site.install("toy")
    site.manifest("toy", **changes)
    reason = reasons(rediscover())["toy"]
    assert part in reason
    assert reason.endswith(REINSTALL)


def test_manifest_of_another_payload(site, rediscover):
    site.install("toy")
    other = site.install("other")
    shutil.copy(other / "manifest.json", site.path / "mla_toy_payload")
    assert "manifest.json describes payload other, not toy" in reasons(rediscover())["toy"]


def test_abi_of_the_manifest_must_be_the_cores(site, rediscover):
    site.install("toy")
    site.manifest("toy", abi_hash="0000000000000000")
    reason = reasons(rediscover())["toy"]
    assert "was built with ABI 0000000000000000, mla-kernels" in reason
    assert f"with ABI {cpu_registry()['abi_hash']}; install both from one source: in a clone, nox" in reason


def test_broken_entry_points(site, rediscover):
    site.install("toy")
    (info,) = site.path.glob("*.dist-info")
    (info / "entry_points.txt").write_text("[mla_kernels.payloads]\ntoy\n")
    installed = rediscover()
    assert "entry_points.txt cannot be read" in reasons(installed)["mla-kernels-toy"]
    assert set(installed.found) == {"cpu"}


def versions_clash(reason: str, name: str, *places: str) -> bool:
    """Whether ``reason`` names both versions with their folders, and what to do."""
    told = f"several versions of {name} are installed: {' and '.join(places)}"
    again = f"in a clone, nox -s wheels -- toy && pip install dist/*.whl; where an index has it, pip install {name}=="
    return told in reason and f"pip uninstall -y {name}, repeated until pip finds none; then, {again}" in reason


def test_two_versions_in_one_folder(site, rediscover):
    site.install("toy")
    site.describe("mla-kernels-toy", "0.0.9", toy="mla_toy_payload")
    (reason,) = reasons(rediscover()).values()
    places = {version: site.path / f"mla_kernels_toy-{version}.dist-info" for version in (mla.__version__, "0.0.9")}
    either = [f"{version} ({place})" for version, place in places.items()]
    assert versions_clash(reason, "mla-kernels-toy", *either) or versions_clash(
        reason, "mla-kernels-toy", *either[::-1]
    )


def test_two_versions_in_two_folders(site, rediscover, tmp_path_factory, monkeypatch):
    site.install("toy")
    other = Site(tmp_path_factory.mktemp("other"))
    monkeypatch.syspath_prepend(other.path)
    other.install("toy", version="0.0.9")
    installed = rediscover()
    first, second = (
        other.path / "mla_kernels_toy-0.0.9.dist-info",
        site.path / f"mla_kernels_toy-{mla.__version__}.dist-info",
    )
    places = (f"0.0.9 ({first})", f"{mla.__version__} ({second})")
    assert versions_clash(reasons(installed)["toy"], "mla-kernels-toy", *places)
    assert set(installed.found) == {"cpu"}
    assert mla.lookup(op="decode", q_dtype="bf16").variant.arch == "cpu"


def test_two_versions_of_the_core_stop_every_payload(site, rediscover):
    site.install("toy")
    site.describe("mla-kernels", "0.0.9", cpu="mla_kernels.payloads.cpu")
    installed = rediscover()
    assert not installed.found
    assert set(reasons(installed)) == {"cpu", "toy"}
    for reason in reasons(installed).values():
        assert f"several versions of mla-kernels are installed: 0.0.9 ({site.path}" in reason
        assert f" and {mla.__version__} ({CPU.parents[2]}" in reason
    with pytest.raises(VariantNotFoundError, match="payload cpu was rejected: several versions of mla-kernels"):
        mla.lookup(op="decode", q_dtype="bf16", arch="cpu")


def test_the_same_version_twice_is_used_once(site, rediscover, tmp_path_factory, monkeypatch):
    site.install("toy")
    first = Site(tmp_path_factory.mktemp("first"))
    first.install("toy")
    monkeypatch.syspath_prepend(first.path)
    installed = rediscover()
    assert not installed.rejected
    assert installed.found["toy"].folder == first.path / "mla_toy_payload"


def test_a_folder_that_is_on_the_path_twice_counts_once(site, rediscover, tmp_path_factory, monkeypatch):
    site.install("toy")
    link = tmp_path_factory.mktemp("link") / "site"
    link.symlink_to(site.path)
    monkeypatch.syspath_prepend(link)
    assert not rediscover().rejected


def test_what_pip_could_not_delete_is_ignored(site, rediscover):
    site.install("toy")
    info = site.describe("mla-kernels-toy", "0.0.9", toy="mla_toy_payload")
    info.rename(info.with_name("~la_kernels_toy-0.0.9.dist-info"))
    assert not rediscover().rejected


def test_a_leftover_without_metadata_counts_by_the_name_of_its_folder(site, rediscover):
    site.install("toy")
    (site.describe("mla-kernels-toy", "0.0.9", toy="mla_toy_payload") / "METADATA").unlink()
    assert "several versions of mla-kernels-toy" in reasons(rediscover())["toy"]
