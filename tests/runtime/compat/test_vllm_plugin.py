"""What vLLM calls at start-up, beside stand-ins of its registry."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest
from mla_kernels.compat import vllm as functions
from mla_kernels.compat import vllm_plugin as door
from mla_kernels.errors import UnsupportedError, ValueRangeError

from tests.runtime.compat.stand_ins import RELEASES, Overrides, check_asked, installed, ours


@pytest.fixture(params=list(RELEASES))
def vllm(monkeypatch, request) -> Iterator[Overrides]:
    """Install a package ``vllm`` of stand-ins of a release, and return what is registered with it."""
    monkeypatch.delenv(door.VARIABLE, raising=False)
    yield from installed(monkeypatch, request.param)


def members() -> dict[str, object]:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum  # type: ignore[import-not-found]

    return dict(AttentionBackendEnum.__members__)


def test_vllm_finds_the_plugin():
    (found,) = entry_points(group="vllm.general_plugins", name="mla_kernels")
    assert found.value == "mla_kernels.compat.vllm_plugin:plugin"
    assert found.load() is door.plugin


def test_the_module_of_the_entry_point_imports_neither_torch_nor_vllm():
    """And looks for no payload: what it imports of this package is the launcher and the errors."""
    script = (
        "import sys, mla_kernels.compat.vllm_plugin; print([name for name in sys.modules"
        " if name.split('.')[0] in ('torch', 'numpy', 'vllm') or name.startswith('mla_kernels.payloads')])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_functions_keep_their_paths():
    assert (functions.plugin, functions.register) == (door.plugin, door.register)


def test_the_releases_are_those_whose_signatures_are_kept():
    assert {release.rpartition(".")[0] for release in RELEASES} == set(door.TESTED)


def test_names_are_added_and_none_is_replaced(vllm):
    before = members()
    door.plugin()
    assert dict(vllm) == dict(door.NAMES)
    assert members().keys() - before.keys() == {"MLA_KERNELS", "MLA_KERNELS_SPARSE"}
    door.plugin()
    assert dict(vllm) == dict(door.NAMES)


def test_the_plugin_takes_nobody_elses_place(vllm):
    vllm["CUSTOM"] = "somebody.else"
    door.plugin()
    assert vllm["CUSTOM"] == "somebody.else"


def test_backends_are_replaced_on_request(vllm, monkeypatch):
    monkeypatch.setenv(door.VARIABLE, " cpu_mla, FLASHMLA ,")
    door.plugin()
    assert dict(vllm) == dict(door.NAMES) | {name: door.INSTEAD[name] for name in ("CPU_MLA", "FLASHMLA")}


@pytest.mark.parametrize("name", door.NAMES | door.INSTEAD)
def test_every_name_leads_to_a_class(vllm, name):
    door.register(name)
    backend = ours(vllm[name])
    assert backend.get_impl_cls().__module__ == backend.__module__ == backend.get_builder_cls().__module__
    check_asked(backend.get_impl_cls(), vllm.release)


def test_a_name_that_cannot_be_replaced(vllm, monkeypatch):
    monkeypatch.setenv(door.VARIABLE, "CPU_MLA,FLASH_ATTN")
    with pytest.raises(ValueRangeError, match=f"{door.VARIABLE}: got 'FLASH_ATTN'; accepts CPU_MLA, AMX_MLA, "):
        door.plugin()
    assert not vllm
    with pytest.raises(ValueRangeError, match="backend: got 'NO_SUCH'; accepts MLA_KERNELS, "):
        door.register("NO_SUCH")


@pytest.mark.parametrize("release", ["0.31.2", "0.34.0rc1", "1.0.0", "dev"])
def test_other_releases_get_a_message_and_no_backend(vllm, monkeypatch, caplog, release):
    monkeypatch.setattr("vllm.__version__", release)
    before = members()
    with caplog.at_level(logging.WARNING):
        door.plugin()
    text = f"vllm: got {release}; accepts 0.32.x and 0.33.x, which the backends of mla-kernels were tested with"
    assert caplog.messages == [f"mla-kernels registers no attention backend. {text}"]
    monkeypatch.setenv(door.VARIABLE, "CPU_MLA")
    with pytest.raises(UnsupportedError, match=r"vllm: got .*; accepts 0\.32\.x and 0\.33\.x"):
        door.plugin()
    assert (dict(vllm), members()) == ({}, before)


def test_a_name_is_known_where_a_process_unpickles_it(vllm):
    """Before that process calls any plug-in."""
    written = pickle.dumps(door.backend_named("MLA_KERNELS"))
    from vllm.v1.attention.backends.registry import AttentionBackendEnum  # type: ignore[import-not-found]

    del AttentionBackendEnum._member_map_["MLA_KERNELS"]
    assert pickle.loads(written) is AttentionBackendEnum["MLA_KERNELS"]


def test_without_vllm(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ImportError):
        door.register()
