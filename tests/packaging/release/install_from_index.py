"""From the wheels of dist/ through an index on loopback into a fresh environment: ``nox -s index`` runs this file.

Its name keeps it out of ``nox -s tests``, which builds no payload.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ci.release import index
from ci.release.index_server import Environment, serving
from ci.rows import ROOT, rows

DIST = ROOT / "dist"
DECODE = """
import mla_kernels as mla
import numpy as np

rng = np.random.default_rng(0)
lengths, page_size, heads, scale = [37, 0, 16], 16, 4, 0.1
q = rng.standard_normal((3, 1, heads, 576), dtype=np.float32)
cache = rng.standard_normal((9, page_size, 576), dtype=np.float32)
table = rng.permutation(9).reshape(3, 3).astype(np.int32)
kernel = mla.lookup(op="decode", arch="cpu", q_dtype="fp32", kv_dtype="fp32", page_size=page_size, num_heads=heads)
out, lse = map(np.asarray, kernel(q, cache, table, np.array(lengths, np.int32), softmax_scale=scale))
for row, length in enumerate(lengths):
    keys = cache[table[row]].reshape(-1, 576)[:length]
    weights = np.exp(q[row, 0] @ keys.T * scale)
    want = weights @ keys[:, :512] / np.maximum(weights.sum(axis=1, keepdims=True), 1e-30)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(lse[row, :, 0], np.log(weights.sum(axis=1)), rtol=1e-5)
    np.testing.assert_allclose(out[row, 0], want, rtol=1e-4, atol=1e-5)
print(kernel.variant.name)
"""
REFUSED = """
import mla_kernels as mla
(variant, *_) = mla.variants(arch={arch!r})
try:
    mla.lookup(op=variant.op, arch={arch!r}, **variant.baked)
except mla.VariantNotFoundError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """An index of dist/, served as JSON and as HTML."""
    for package in ("mla_kernels", "mla_kernels_sm90"):
        if not list(DIST.glob(f"{package}-*.whl")):
            pytest.fail(f"dist/ holds no wheel of {package}: run `nox -s wheels` and `nox -s wheels -- sm90` first")
    out = tmp_path_factory.mktemp("index") / "simple"
    assert index.main([str(DIST), str(out)]) == 0
    with serving(out) as as_json, serving(out, speaks_json=False) as as_html:
        yield {"json": as_json.url, "html": as_html.url}


@pytest.fixture(scope="module")
def environments(served, tmp_path_factory):
    """By the index's form, a fresh environment in which ``mla-kernels[sm90]`` was just installed."""
    found = {}
    for form, url in served.items():
        folder = tmp_path_factory.mktemp(form)
        found[form] = Environment(folder)
        tools = [found[form].python, "-m", "pip", "install", "--quiet", "numpy"]
        subprocess.run([found[form].python, "-m", "ensurepip"], capture_output=True, check=True)
        subprocess.run(tools, check=True)
        done = found[form].pip(url, "install", "mla-kernels[sm90]")
        assert done.returncode == 0, done.stderr
    return found


@pytest.fixture(params=["json", "html"])
def environment(request, environments) -> Environment:
    return environments[request.param]


def test_the_cpu_gives_the_right_answer(environment):
    done = environment.run("-c", DECODE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cpu_decode_qfp32_kvfp32_ofp32_")


def test_without_a_gpu_sm90_is_refused_for_that_reason(environment, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = environment.run("-c", REFUSED.format(arch="sm90a"))
    assert done.returncode == 0, done.stderr
    assert "is served by sm90a_" in done.stdout
    assert "it cannot run here: arch sm90a needs a device of compute capability 9.0" in done.stdout


def test_what_was_not_installed_is_refused_with_the_command_that_installs_it(environment):
    config = "op='decode', arch='sm100f', q_dtype='bf16'"
    done = environment.run("-c", f"import mla_kernels as mla\nmla.lookup({config})")
    assert "no payload for arch sm100f is installed; installed: cpu, sm90a; in a clone, nox -s wheels" in done.stderr
    assert "where an index has it, pip install 'mla-kernels[sm100]'" in done.stderr


@pytest.mark.parametrize("smoke", sorted({row.smoke for row in rows()}))
def test_the_smoke_command_of_the_rows_succeeds(environment, smoke):
    python, *arguments = smoke.split()
    assert python == "python"
    done = environment.run(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_installation_is_whole(environment):
    done = environment.run("-m", "pip", "check")
    assert done.returncode == 0, done.stdout
    record = [path for path in environment.site.glob("mla_kernels*.dist-info/RECORD") if path.read_text()]
    assert len(record) == 2
    assert {Path(line.split(",")[0]) for path in record for line in path.read_text().splitlines()} >= {
        Path("mla_kernels/py.typed"),
        Path("mla_kernels_sm90/registry.json"),
    }
