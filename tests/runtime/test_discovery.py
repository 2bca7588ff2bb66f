"""Payloads are found by entry point; one that cannot be used is kept with its reason, and said wherever it matters."""

from __future__ import annotations

import mla_kernels as mla
import pytest
from mla_kernels import discovery
from mla_kernels.errors import VariantNotFoundError

from tests.payloads.build import build
from tests.runtime.conftest import cpu_registry


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
    assert f"mla-kernels is {mla.__version__}" in reason


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
    ],
)
def test_broken_registry(site, rediscover, registry, part):
    site.install("toy", registry=registry)
    assert part in reasons(rediscover())["toy"]


def test_registry_of_another_payload(site, rediscover):
    site.install("toy", registry=cpu_registry("other"))
    assert "describes payload other, not toy" in reasons(rediscover())["toy"]


@pytest.mark.parametrize("name", ["registry.json", "libmla_toy.so"])
def test_missing_file_is_named(site, rediscover, name):
    (site.install("toy") / name).unlink()
    assert name in reasons(rediscover())["toy"]


def test_library_that_is_none(site, rediscover):
    (site.install("toy") / "libmla_toy.so").write_bytes(b"no library")
    assert "cannot be loaded" in reasons(rediscover())["toy"]


def test_missing_module(site, rediscover):
    folder = site.install("toy")
    folder.rename(folder.with_name("elsewhere"))
    assert "mla_toy_payload is not an installed package" in reasons(rediscover())["toy"]


def test_second_payload_of_a_name(site, rediscover):
    site.install("cpu")
    installed = rediscover()
    assert set(installed.found) == {"cpu"}
    assert "is in use under the same name" in reasons(installed)["cpu"]


def test_a_rejected_payload_leaves_the_others_in_use_and_is_said_by_lookup_errors(site, rediscover):
    site.install("toy", version="99.1")
    rediscover()
    assert mla.lookup(op="decode", q_dtype="bf16").variant.arch == "cpu"
    with pytest.raises(VariantNotFoundError, match="payload toy was rejected: distribution mla-kernels-toy is version"):
        mla.lookup(op="decode", arch="toy")


def test_no_payload_at_all(rediscover, monkeypatch):
    monkeypatch.setattr(discovery, "entry_points", lambda group: [])
    rediscover()
    with pytest.raises(VariantNotFoundError, match="no payload for arch cpu is installed; installed: none"):
        mla.lookup(op="decode", q_dtype="bf16")
    monkeypatch.undo()
