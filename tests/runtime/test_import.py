"""Importing the package is silent, imports no framework, opens no socket and finds no payload."""

from __future__ import annotations

import subprocess
import sys

import pytest

UNWANTED = ("torch", "numpy", "rich", "matplotlib", "mla_kernels.discovery")
REPORT = f"import sys; print(*(name for name in {UNWANTED} if name in sys.modules))"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_import_is_silent_and_light():
    done = run(f"import mla_kernels; {REPORT}")
    assert done.stdout.split() == []
    assert done.stderr == ""


def test_lookup_imports_no_framework():
    done = run(f"import mla_kernels; mla_kernels.lookup(op='decode', q_dtype='bf16'); {REPORT}")
    assert done.stdout.split() == ["mla_kernels.discovery"]
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

    names = {name for names in mla_kernels._HOMES.values() for name in names}
    assert names > {"lookup", "variants", "explain", "Kernel", "Plan", "Variant", "decode", "store_kv", "__version__"}
    for name in names:
        assert getattr(mla_kernels, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = mla_kernels.no_such_name
