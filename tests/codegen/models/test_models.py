"""Models: a mistake in a row is said, and what the page claims is what the registries of the payloads serve."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest
from mla_kernels.models import Model
from mla_kernels.models import models as packaged
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Registry, Value

from codegen import models
from codegen.load import load
from codegen.schema import MatrixError
from codegen.validate import checked

GENERATED = Path(__file__).parents[3] / "generated"
REGISTRIES = [Registry.parse(json.loads(path.read_text())) for path in sorted(GENERATED.glob("*/registry.json"))]
FORMAT = re.compile(r"`(\w+)`(?: \(TP ([\d, ]+)\))?")
ROW = '{ name = "A", organisation = "B", heads = 8, d_qk = 576, d_v = 512, formats = ["bf16"], source = "C"'


def claims() -> dict[tuple[str, str], dict[tuple[str, str], str]]:
    """What the page says of each model and arch: for each op and format the degrees, or nothing for all of them."""
    table = (GENERATED / "MODELS.md").read_text().partition("[end:served]")[0]
    header, _, *rows = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| "))
    said = {}
    for cells in rows:
        row = dict(zip(header, cells, strict=True))
        for registry in REGISTRIES:
            found = said[row["Model"].partition(" (also ")[0], registry.arch] = {}
            for part in row[registry.arch].split("; "):
                op = "prefill" if part.startswith("prefill ") else "decode"
                for name, degrees in FORMAT.findall(part):
                    found[op, name] = degrees
    return said


def serves(registry: Registry, config: dict[str, Value]) -> bool:
    """Whether a payload has a variant for what a rank looks up."""
    searched = {field: value for field, value in config.items() if field != "op"}
    return bool(Index(variant for variant in registry.variants if variant.op == config["op"]).matching(searched))


def served_at_all(registry: Registry, model: Model, degree: int) -> dict[tuple[str, str], bool]:
    """Of each op and format of a rank, whether a payload serves it at every ``q_len`` that the row states."""
    found: dict[tuple[str, str], bool] = {}
    for q_len in model.q_lens or (1,):
        for config in model.configs(arch=registry.arch, tensor_parallel=degree, q_len=q_len):
            key = str(config["op"]).removeprefix("sparse_"), str(config["kv_dtype"])
            found[key] = found.get(key, True) and serves(registry, config)
    return found


def test_the_page_claims_what_the_registries_serve():
    said = claims()
    assert {name for name, _ in said} == {model.name for model in packaged()}
    served = 0
    for model, registry, degree in product(packaged(), REGISTRIES, models.DEGREES):
        if model.heads % degree:
            continue
        for key, found in served_at_all(registry, model, degree).items():
            claim = said[model.name, registry.arch].get(key)
            claimed = claim is not None and (not claim or str(degree) in claim.split(", "))
            assert found == claimed, (model.name, registry.arch, degree, key)
            served += claimed
    assert served > 100


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.arch)
def test_a_model_is_served_at_every_degree_or_its_row_says_why_not(registry):
    unserved = set()
    for model in packaged():
        for degree in models.DEGREES:
            if model.heads % degree:
                continue
            configs = model.configs(arch=registry.arch, tensor_parallel=degree)
            if not any(serves(registry, config) for config in configs):
                unserved.add(model.name)
    assert {model.name for model in packaged() if model.reason(registry.arch)} == unserved
    named = {name for model in packaged() for name, _ in model.unserved}
    assert named <= {models.EVERY, *(each.arch for each in REGISTRIES)}
    assert registry.arch != "cpu" or unserved == {"MiniCPM3-4B", "A.X-K2", "dots3-NOTE window layers"}


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.arch)
def test_the_drafts_of_a_model_are_verified_wherever_it_is_decoded(registry):
    """A format that is decoded token by token is decoded with drafts too, at each degree; or the row says why not."""
    drafting = [model for model in packaged() if model.q_lens and max(model.q_lens) > 1]
    assert len(drafting) > 5
    for model, degree in product(drafting, models.DEGREES):
        if model.heads % degree or model.reason(registry.arch):
            continue
        for q_len in model.q_lens:
            plain = model.configs(arch=registry.arch, tensor_parallel=degree)
            drafts = model.configs(arch=registry.arch, tensor_parallel=degree, q_len=q_len)
            decodes = [both for both in zip(plain, drafts, strict=True) if both[1]["op"] != "sparse_prefill"]
            assert all(config["q_len"] == q_len for _, config in decodes)
            found = [serves(registry, config) for _, config in decodes]
            assert found == [serves(registry, config) for config, _ in decodes], (model.name, degree, q_len)
            assert any(found), (model.name, degree, q_len)


def test_the_package_has_the_rows_of_the_matrix():
    rows = load().models.rows
    assert [asdict(row) for row in rows] == [asdict(model) for model in packaged()]


def test_the_page_says_what_is_known_of_drafts_and_windows():
    header, _, *rows = (
        line.strip("| ").split(" | ")
        for line in (GENERATED / "MODELS.md").read_text().partition("[end:served]")[0].splitlines()
        if line.startswith("| ")
    )
    said = {cells[0].partition(" (also ")[0]: dict(zip(header, cells, strict=True)) for cells in rows}
    assert {(each["Window"], each["q_len"]) for name, each in said.items() if name.startswith("DeepSeek-V4-")} == {
        ("128", "2, 6"),
        ("128", "2"),
    }
    assert (said["Kimi-K2"]["Window"], said["Kimi-K2"]["q_len"]) == ("-", "1")
    assert {name for name, each in said.items() if each["q_len"] == "not stated"} == {
        model.name for model in packaged() if not model.q_lens
    }


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (ROW.replace("576", "500"), "models.toml:1: model: got "),
        (ROW.replace('"bf16"', '"bf61"'), "models.toml:1: A: format bf61; accepts "),
        (ROW.replace('["bf16"]', "[]"), "models.toml:1: model.formats: got []; accepts at least one name"),
        (ROW.replace("= 8", "= 0"), "models.toml:1: model.heads: got 0; accepts an integer from 1"),
        (ROW.replace("= 8", '= "8"'), "models.toml:1: model.heads: got '8'; accepts an integer from 1"),
        (ROW.replace('"C"', '""'), "models.toml:1: model.source: got ''; accepts words on one line"),
        (f"{ROW}, window = 0", "models.toml:1: model.window: got 0; accepts an integer from 1"),
        (f"{ROW}, topk = 8, window = 9", "models.toml:1: A: window 9 is more than topk 8, which counts"),
        (
            f"{ROW}, q_lens = []",
            "models.toml:1: model.q_lens: got []; accepts a list of different numbers of query tok",
        ),
        (f"{ROW}, q_lens = [2, 2]", "models.toml:1: model.q_lens: got [2, 2]; accepts a list of different numbers"),
        (f"{ROW}, q_lens = [0]", "models.toml:1: model.q_lens: got 0; accepts an integer from 1"),
        (f"{ROW}, q_lens = 2", "models.toml:1: model.q_lens: got 2; accepts a list of different numbers"),
        (
            f'{ROW}, sources = {{ q_lens = "D" }}',
            "models.toml:1: A: sources: got 'q_lens'; accepts fields of the row: ",
        ),
        (
            f'{ROW}, sources = {{ name = "D" }}',
            "models.toml:1: A: sources: got 'name'; accepts fields of the row: heads",
        ),
        (f"{ROW}, sources = {{}}", "models.toml:1: model.sources: got {}; accepts a table of fields"),
        (f"{ROW}, topk = -1", "models.toml:1: model.topk: got -1; accepts an integer from 0"),
        (f'{ROW}, also = ["a"]', "models.toml:1: A: a is a name of A"),
        (f"{ROW}, unserved = {{}}", "models.toml:1: model.unserved: got {}; accepts a table of archs"),
        (f"{ROW}, served = false", "models.toml:1: model: field: got 'served'; accepts name, also"),
        (ROW.replace(', source = "C"', ""), "models.toml:1: model: field 'source' is missing"),
    ],
)
def test_a_mistake_in_a_row(folder, row, problem):
    (folder / "models.toml").write_text(f"model = [{row} }}]\n[unread]\n")
    with pytest.raises(MatrixError) as error:
        checked(load(folder))
    assert problem in str(error.value)


def test_a_format_that_no_model_uses(folder):
    (folder / "models.toml").write_text(f'model = [{ROW} }}]\n[unread]\nfp3 = "x"\n')
    with pytest.raises(MatrixError, match=r"models\.toml:3: fp3: no model stores its cache so"):
        checked(load(folder))


def test_a_format_that_a_kernel_may_read_is_not_said_to_be_unread():
    matrix = load()
    assert not set(matrix.models.unread) & set(matrix.formats.types)
