"""What SGLang calls at start-up, beside stand-ins of its lists and tables."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest
from mla_kernels.compat import sglang_plugin as door

from tests.runtime.compat.sglang.read_wheel import FIELDS, LOOKED_FOR
from tests.runtime.compat.sglang.stand_ins import RELEASES, Engine
from tests.runtime.compat.stand_ins import gpus_installed, shape_of

GROUP = "sglang.srt.plugins"


def chosen(**arguments: object) -> SimpleNamespace:
    """The arguments of a server; none is given unless named."""
    return SimpleNamespace(
        **{"attention_backend": None, "decode_attention_backend": None, "page_size": None} | arguments
    )


def test_sglang_finds_the_plugin():
    (found,) = entry_points(group=GROUP, name="mla_kernels")
    assert found.value == "mla_kernels.compat.sglang_plugin:plugin"
    assert found.load() is door.plugin


def test_the_group_is_the_one_that_sglang_looks_in(sglang):
    assert sglang.names["plugins"]["GENERAL_PLUGINS_GROUP"] == GROUP
    assert sglang.names["functions"]["load_plugins"]["parameters"] == []


def test_the_module_of_the_entry_point_imports_neither_torch_nor_sglang():
    """And looks for no payload: what it imports of this package is the launcher and the errors."""
    script = (
        "import sys, mla_kernels.compat.sglang_plugin; print([name for name in sys.modules"
        " if name.split('.')[0] in ('torch', 'numpy', 'sglang') or name.startswith('mla_kernels.payloads')])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_the_releases_are_those_whose_signatures_are_kept():
    assert set(RELEASES) == set(door.TESTED)


def test_the_release_has_all_that_the_backend_reads(sglang):
    for (_, name), wanted in LOOKED_FOR.items():
        assert set(sglang.names["read"][name]["names"]) == set(wanted), name
    assert sglang.names["fields"].keys() == {name for names in FIELDS.values() for name in names}


def test_the_name_can_be_chosen(sglang):
    before = sglang.choices()
    door.plugin()
    after = sglang.choices()
    added = {name: [each for each in after[name] if each not in before[name]] for name in after}
    taken = (
        "ATTENTION_BACKEND_CHOICES", "CHUNKED_PREFIX_CACHE_SUPPORTED_ATTENTION_BACKENDS",
        "DETERMINISTIC_ATTENTION_BACKEND_CHOICES", "RADIX_SUPPORTED_DETERMINISTIC_ATTENTION_BACKEND",
    )  # fmt: skip
    assert added == {name: [door.NAME] if name in taken else [] for name in before}
    assert all(after[name][: len(before[name])] == before[name] for name in before)
    for argument in ("attention_backend", "decode_attention_backend"):
        assert sglang.names["fields"][argument]["choices"] == "ATTENTION_BACKEND_CHOICES"


def test_the_table_has_our_backend(sglang):
    sglang.table["flashmla"] = theirs = object()
    door.plugin()
    assert sglang.table == {"flashmla": theirs, door.NAME: door.create}


def test_the_plugin_may_be_called_again(sglang):
    door.plugin()
    once = (sglang.choices(), dict(sglang.table), list(sglang.hooks))
    door.plugin()
    assert (sglang.choices(), sglang.table, sglang.hooks) == once


def made_for(sglang: Engine, monkeypatch: pytest.MonkeyPatch, **config: object) -> object:
    """What SGLang's table makes for a model whose text has this config, as one has that sees pictures, too."""
    backend = SimpleNamespace(MlaKernelsBackend=lambda runner: runner)
    monkeypatch.setitem(sys.modules, "mla_kernels.compat._sglang.backend", backend)
    configs = {"hf_config": SimpleNamespace(), "hf_text_config": SimpleNamespace(**config)}
    runner = SimpleNamespace(model_config=SimpleNamespace(**configs))
    assert sglang.table[door.NAME](runner) is runner
    return runner


def test_models_prefill_as_with_flashmla(sglang, monkeypatch):
    """Which way a DeepSeek model attends in a prefill hangs on the name of the backend."""
    door.plugin()
    before = dict(sglang.handlers)
    made_for(sglang, monkeypatch)
    assert sglang.handlers == before | {door.NAME: before["flashmla"]}


def test_models_hand_over_queries_and_latents_as_they_lie(sglang, monkeypatch):
    """Also where a second model runner, such as that of drafts, is made in the same process."""
    monkeypatch.setattr(door, "_joined", [])
    door.plugin()
    before = sglang.apart()
    for _ in range(2):
        made_for(sglang, monkeypatch, llama_4_scaling=None)
        assert sglang.apart() == [*before, door.NAME]


def test_a_model_whose_queries_are_scaled_has_them_joined(sglang, monkeypatch):
    """SGLang scales them where it joins them; a model of drafts changes nothing of it."""
    monkeypatch.setattr(door, "_joined", [])
    door.plugin()
    before = sglang.apart()
    made_for(sglang, monkeypatch)
    made_for(sglang, monkeypatch, llama_4_scaling={"beta": 0.1})
    made_for(sglang, monkeypatch)
    assert sglang.apart() == before


def hooked(sglang: Engine, view: SimpleNamespace) -> dict[str, object]:
    """The page size that SGLang resolves, with the hooks that are registered."""
    resolved: dict[str, object] = sglang.module("sglang.srt.arg_groups.overrides")._page_size_default(view)
    target = f"{sglang.names['functions']['_page_size_default']['module']}._page_size_default"
    for hook in sglang.hooked(target, "AFTER"):
        changed = hook(resolved, view)
        resolved = resolved if changed is None else changed
    return resolved


@pytest.mark.parametrize("view", [{}, {"attention_backend": "flashmla"}, {"page_size": 32}])
def test_an_idle_plugin_changes_no_page_size(sglang, view):
    wanted = hooked(sglang, chosen(**view))
    door.plugin()
    assert hooked(sglang, chosen(**view)) == wanted


@pytest.mark.parametrize("argument", ["attention_backend", "decode_attention_backend"])
def test_a_page_size_that_nobody_names_is_that_of_the_preferred_kernel(sglang, monkeypatch, argument):
    """SGLang's own default is 1, which the CPU's kernels take; Hopper's preferred kernel has pages of 64."""
    door.plugin()
    assert hooked(sglang, chosen(**{argument: door.NAME})) == {"page_size": 1}
    gpus_installed(monkeypatch)
    assert hooked(sglang, chosen(**{argument: door.NAME, "page_size": 32})) == {}
    monkeypatch.setattr("mla_kernels.compat._capabilities.gpu_archs", lambda: ("sm90a",))
    assert hooked(sglang, chosen(**{argument: door.NAME})) == {"page_size": 64}


def test_backends_of_drafts_are_added_to_those_of_sglang(sglang):
    """Nothing is made before SGLang asks for our name, and what it gives is left as it is."""
    door.plugin()
    read = sglang.names["read"]["DraftBackendFactory"]
    (hook,) = sglang.hooked(f"{read['module']}.DraftBackendFactory._create_backend", "BEFORE")
    ours, theirs = shape_of(hook), read["names"]["_create_backend"]
    assert (ours[0], ours[1:]) == ("factory", theirs[1:])
    calls = [call for call in sglang.names["calls"] if call["name"] == "_create_backend"]
    assert sorted(call["keywords"] for call in calls) == [[], ["stamps_children"]]
    for call in calls:
        backends = {"flashmla": "theirs"}
        keywords = dict.fromkeys(call["keywords"], True)
        assert hook("a factory", *range(1), backends, "an error", **keywords) is None
        assert backends["flashmla"] == "theirs"
        assert backends.keys() == {"flashmla", door.NAME}
    assert door.NAME not in sglang.handlers


@pytest.mark.parametrize("release", ["0.5.22", "0.5.24", "0.5.230", "0.5.23rc1", "1.0.0", "dev"])
def test_other_releases_get_a_message_and_no_backend(sglang, monkeypatch, caplog, release):
    monkeypatch.setattr("sglang.version.__version__", release)
    before = sglang.choices()
    with caplog.at_level(logging.WARNING):
        door.plugin()
    text = f"sglang: got {release}; accepts 0.5.23, which the backend of mla-kernels was tested with"
    assert caplog.messages == [f"mla-kernels registers no attention backend, and replaces no kernel. {text}"]
    assert (sglang.choices(), sglang.table, sglang.hooks) == (before, {}, [])


@pytest.mark.parametrize("release", ["0.5.23", "0.5.23.post1", "0.5.23+cu129"])
def test_builds_of_a_tested_release_are_served(sglang, monkeypatch, release):
    monkeypatch.setattr("sglang.version.__version__", release)
    door.plugin()
    assert door.NAME in sglang.table


def test_without_sglang(monkeypatch):
    monkeypatch.setitem(sys.modules, "sglang", None)
    with pytest.raises(ImportError):
        door.plugin()
