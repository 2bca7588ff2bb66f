"""Importing the package is silent, imports no framework, opens no socket and finds no payload."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.site import cpu_registry, sm90_registry

UNWANTED = (
    "torch",
    "numpy",
    "rich",
    "matplotlib",
    "json",
    "hashlib",
    "mla_kernels.payloads.discovery",
    "mla_kernels.resolve.explanation",
    "mla_kernels.kernels.device_checks",
)
EAGER = ("InvalidArgumentError", "MlaError", "PayloadError", "VariantNotFoundError", "errors")
REPORT = f"import sys; print(*(name for name in {UNWANTED} if name in sys.modules))"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_import_is_silent_and_light():
    done = run(f"import mla_kernels; {REPORT}")
    assert done.stdout.split() == []
    assert done.stderr == ""


def test_lookup_imports_no_framework():
    done = run(f"import mla_kernels; mla_kernels.lookup(op='decode', q_dtype='bf16'); {REPORT}")
    assert done.stdout.split() == ["json", "hashlib", "mla_kernels.payloads.discovery"]
    assert done.stderr == ""


def test_no_network_and_no_subprocess():
    code = """
import sys
def refuse(event, arguments):
    if event.split(".")[0] in ("socket", "subprocess") or event in ("os.system", "os.exec", "os.fork"):
        raise AssertionError(event)
sys.addaudithook(refuse)
import mla_kernels
mla_kernels.lookup(op="decode", q_dtype="bf16")
"""
    assert run(code).stdout == ""


def test_import_opens_no_payload_and_no_driver(site):
    for name, registry in (("sm90", sm90_registry()), ("toy", cpu_registry("toy"))):
        site.install(name, registry=registry)
    code = f"""
import json, sys
opened = []
def note(event, arguments):
    if event in ("open", "ctypes.dlopen"):
        opened.append(str(arguments[0]))
sys.path.insert(0, {str(site.path)!r})
sys.addaudithook(note)
def told():
    with open("/proc/self/maps") as maps:
        mapped = [line.split()[-1] for line in maps]
    seen = {{path for path in (*opened, *mapped) if "libmla_" in path or "libcuda" in path or "mla_toy" in path
             or "mla_sm90" in path or "payloads" in path}}
    opened.clear()
    return sorted(seen)
import mla_kernels
first = told()
mla_kernels.lookup(op="decode", q_dtype="bf16", arch="toy")
print(json.dumps([first, told()]))
"""
    at_import, at_lookup = json.loads(run(code).stdout)
    assert at_import == []
    for name in ("sm90", "toy"):
        for file in ("manifest.json", "registry.json", f"libmla_{name}.so"):
            assert str(site.path / f"mla_{name}_payload" / file) in at_lookup
    assert not any("libcuda" in path for path in at_lookup)


@pytest.mark.parametrize("order", ["lookup decode", "decode lookup", "Kernel lookup", "variants explain lookup"])
def test_names_do_not_depend_on_the_order_of_use(order):
    code = f"""
import mla_kernels
for name in {order.split()}:
    assert callable(getattr(mla_kernels, name)), name
print(mla_kernels.lookup(op="decode", q_dtype="bf16").variant.name)
"""
    assert run(code).stdout.strip() == "cpu_decode_qbf16_kvbf16_obf16_direct_split"


def test_every_public_name_exists():
    import mla_kernels

    assert {"lookup", "variants", "explain", "Kernel", "Plan", "Variant", "decode", "store_kv"} < {*mla_kernels.__all__}
    assert {*mla_kernels._HOME_OF} == {*mla_kernels.__all__, "__version__"} - {*EAGER}
    for name in mla_kernels.__all__:
        assert getattr(mla_kernels, name) is not None
    assert {*mla_kernels.__all__, "__version__", "__doc__"} <= {*dir(mla_kernels)}
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = mla_kernels.no_such_name


@pytest.mark.parametrize("name", ["devices", "formats", "models", "reference"])
def test_modules_are_found_without_an_import_of_their_own(name):
    assert run(f"import mla_kernels; print(mla_kernels.{name}.__name__)").stdout.strip() == f"mla_kernels.{name}"


def test_type_checkers_see_the_same_names():
    import mla_kernels

    tree = ast.parse(Path(mla_kernels.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in imports for alias in node.names if alias.asname}
    assert {*homes} == {*mla_kernels.__all__, *mla_kernels._SUBMODULES, "__version__"}
    for name, home in mla_kernels._HOME_OF.items():
        assert homes[name] == f"mla_kernels.{home}"


def test_a_star_import_brings_every_name_and_no_framework():
    done = run(f"from mla_kernels import *; print(lookup.__name__, decode.__name__, errors.__name__); {REPORT}")
    names, imported = done.stdout.splitlines()
    assert names == "lookup decode mla_kernels.errors"
    assert not {"torch", "numpy", "rich", "matplotlib"} & {*imported.split()}


def test_completion_lists_names_without_loading_them():
    done = run(
        "import rlcompleter, sys, mla_kernels; before = set(sys.modules); names = dir(mla_kernels); "
        "assert 'sparse_decode' in names, names; print(*sorted(set(sys.modules) - before))"
    )
    assert done.stdout.split() == []
