"""What the README, the FAQ and the pages of kernels say of other libraries is computed from what was measured."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from typing import Any

from benchmarks.pages import comparison, side_by_side
from tests.benchmarks.imagined import PAGES

ROOT = PAGES.parents[1]
DATA = PAGES / "data"
PRODUCTS = json.loads((DATA / "ratios_to_flash_mla_9241ae3.json").read_text())
Cells = list[dict[str, Any]]


def said(*path: str) -> str:
    """The text of a page, with single spaces."""
    return " ".join(ROOT.joinpath(*path).read_text().split())


def cells(name: str, *heads: int) -> Cells:
    """The cells of a page's data, of these numbers of heads, or of any."""
    measured: Cells = json.loads((DATA / f"{name}.json").read_text())["cells"]
    return [cell for cell in measured if not heads or cell["problem"]["heads"] in heads]


def with_first_kernel() -> Cells:
    joined: Cells = comparison.with_products(json.loads((DATA / "h200_dense.json").read_text()), PRODUCTS)["cells"]
    return joined


def of_batch(measured: Cells, *batches: int) -> Cells:
    return [cell for cell in measured if cell["problem"]["batch"] in batches]


def mean_of(measured: Cells, state: str = "graph") -> str:
    """The geometric mean of the ratios of cells."""
    return f"{statistics.geometric_mean(comparison.ratios(measured, state)):.2f}"


def losses_of(measured: Cells, state: str = "graph") -> tuple[int, str]:
    """How many of the ratios are below 1, and the least."""
    found = comparison.ratios(measured, state)
    return sum(ratio < 1 for ratio in found), f"{min(found):.2f}"


def range_of(figures: list[float]) -> tuple[str, str]:
    return f"{min(figures):.2f}", f"{max(figures):.2f}"


def joules_of(measured: Cells) -> tuple[str, str]:
    """The least and the most of our joules over FlashMLA's."""
    found = [comparison.compared(cell, "sustained", "mj") for cell in measured]
    return range_of([1 / each.ratio for each in found if each])


def summary(measured: Cells) -> str:
    """What the README's table says of cells: how many, their mean, the worst, and how many are below 1."""
    mean, (below, worst) = mean_of(measured), losses_of(measured)
    shown = f"**{mean}x**" if float(mean) >= 1 else f"{mean}x"
    return f"| {len(measured)} | {shown} | {worst}x | {below} |"


def test_the_tables_of_the_readme() -> None:
    """Each row of its table of means, in order; and its table of shapes is that of the page."""
    rows = [
        cells("h200_dense_upstream"),
        cells("h200_dense"),
        with_first_kernel(),
        *(cells("h200_few_heads", heads) for heads in (8, 16, 32)),
        *(cells("h200_sparse", heads) for heads in (64, 128)),
        *(cells("h200_few_heads_prefill", *heads) for heads in ((8, 16), (32,))),
        cells("h200_prefill"),
    ]
    readme = (ROOT / "README.md").read_text()
    part = readme[readme.index("## Speed") : readme.index("<picture>")].splitlines()
    found = [line for line in part if line.startswith("| ") and line.endswith(" |") and "x |" in line]
    assert len(found) == len(rows)
    for line, measured in zip(found, rows, strict=True):
        assert line.endswith(summary(measured))
    document = json.loads((DATA / "h200_side_by_side.json").read_text())
    assert " ".join(side_by_side.table(document).split()) in said("README.md")


def test_the_first_lines_of_the_readme() -> None:
    decode = [mean_of(cells(name, heads)) for name, heads in (("h200_few_heads", 8), ("h200_sparse", 128))]
    prefill = [mean_of(cells("h200_few_heads_prefill", *heads)) for heads in ((8, 16), (32,))]
    assert (
        f"beside FlashMLA 9241ae3: dense decode {mean_of(cells('h200_dense_upstream'))}x; sparse fp8 decode "
        f"{decode[0]}x with 8 heads to {decode[1]}x with 128; sparse prefill {prefill[0]}x with 8 and 16 heads, "
        f"{prefill[1]}x with 32, {mean_of(cells('h200_prefill'))}x with 64 and 128. An older build, beside FlashInfer, "
        f"FA3 and FlashMLA's first kernel too: dense decode {mean_of(with_first_kernel())}x."
    ) in said("README.md")


def test_what_the_readme_says_of_losses_and_of_other_kernels() -> None:
    readme = said("README.md")
    dense, few, many = cells("h200_dense_upstream"), cells("h200_few_heads"), cells("h200_sparse")
    few_prefill, prefill = cells("h200_few_heads_prefill"), cells("h200_prefill")
    fastest = Counter(each.peer for cell in cells("h200_dense") if (each := comparison.compared(cell, "graph")))
    others = sum(count for name, count in fastest.items() if not name.startswith("FlashMLA"))
    assert f"FlashInfer or FA3 was the fastest of the four in {others} of 96 shapes there" in readme
    lost = [
        losses_of(cells(f"h200_{name}prefill", heads))[0] for name, heads in (("few_heads_", 32), ("", 64), ("", 128))
    ]
    assert (
        "with 32 heads in {} of 8 shapes, with 64 heads in {} of 8, and with 128 heads in {} of 8".format(*lost)
        in readme
    )
    slower = [cell for cell in dense if comparison.ratios([cell], "graph")[0] < 1]
    assert {tuple(cell["problem"][key] for key in ("heads", "q_len", "seq")) for cell in slower} == {(128, 2, 32768)}
    worst = [losses_of(of_batch(slower, batch)) for batch in (16, 64, 128)]
    assert worst[0] == worst[1]
    assert f"it has {worst[0][1]}x with 16 and with 64 requests, and {worst[2][1]}x with 128." in readme
    means = [mean_of(measured, "between") for measured in (dense, few, many, few_prefill, prefill)]
    below, worst_between = losses_of(dense, "between")
    few_below, prefill_below = (losses_of(measured, "between")[0] for measured in (few_prefill, prefill))
    assert (
        f"the means are {means[0]}x in dense decode ({below} of 96 are below 1, the worst is {worst_between}x), "
        f"{means[1]}x in sparse decode with 8 to 32 heads and {means[2]}x with 64 and 128 (none is below 1), "
        f"{means[3]}x in sparse prefill with 8 to 32 heads ({few_below} of 24 are below 1), and {means[4]}x with 64 "
        f"and 128 ({prefill_below} of 16)."
    ) in readme
    assert losses_of(few + many, "between")[0] == 0


def test_what_is_said_of_load() -> None:
    readme, faq, page = said("README.md"), said("docs", "faq.md"), said("docs", "kernels", "sm90", "sparse.md")
    dense, sparse = cells("h200_sustained_upstream"), cells("h200_sparse_sustained")
    (graph, loaded), (dense_graph, dense_loaded) = (
        [range_of(comparison.ratios(measured, state)) for state in ("graph", "sustained")]
        for measured in (sparse, dense)
    )
    pairs = [comparison.ratios([cell], "graph") + comparison.ratios([cell], "sustained") for cell in dense + sparse]
    fallen = [after < before for before, after in pairs]
    assert all(fallen[len(dense) :])
    assert f"from {graph[0]}x to {graph[1]}x in a graph to {loaded[0]}x to {loaded[1]}x" in readme
    assert "ours takes {} to {} times FlashMLA's joules".format(*joules_of(sparse)) in readme
    ranges = "it is {}x to {}x, where it was {}x to {}x in a graph".format(*dense_loaded, *dense_graph)
    assert f"{ranges}: it falls in {sum(fallen[: len(dense)])} of them" in readme
    (slower,) = (cell for cell in dense if comparison.ratios([cell], "sustained")[0] < 1)
    assert (slower["problem"]["heads"], slower["problem"]["batch"]) == (64, 128)
    assert comparison.ratios([slower], "graph")[0] > 1
    assert "Ours takes {} to {} times the joules.".format(*joules_of(dense)) in readme
    assert "ours is {} to {} times as fast, where it was {} to {} times in a graph".format(*loaded, *graph) in faq
    assert "times in a graph, and takes {} to {} times the joules".format(*joules_of(sparse)) in faq
    assert "it is {} to {} times as fast, where it was {} to {} times, and".format(*dense_loaded, *dense_graph) in faq
    assert "times, and takes {} to {} times the joules.".format(*joules_of(dense)) in faq
    assert "four shapes of decode have {} to {} times.".format(*loaded) in page


def test_what_is_said_of_an_h100() -> None:
    few = [mean_of(cells("h100_few_heads", heads)) for heads in (8, 16, 32)]
    many = [mean_of(cells("h100_sparse_upstream", heads)) for heads in (64, 128)]
    prefill = [mean_of(cells("h100_few_heads_prefill", *heads)) for heads in ((8, 16), (8,), (16,), (32,))]
    readme, faq = said("README.md"), said("docs", "faq.md")
    assert f"the same build of ours has {mean_of(cells('h100_dense'))}x in [dense decode]" in readme
    assert "in sparse decode it has {}x, {}x and {}x with [8, 16 and 32 heads]".format(*few) in readme
    assert "and {}x and {}x with [64 and 128]".format(*many) in readme
    assert f"an older build has {prefill[0]}x with 8 and 16 heads and {prefill[3]}x with 32;" in readme
    for cell in cells("h100_few_heads_prefill"):
        (upstream,), (vllm,) = (comparison.of(cell, name, "graph") for name in comparison.others_of([cell]))
        assert upstream < vllm
    assert f"the newest build has {mean_of(cells('h100_dense'))} times the speed of FlashMLA 9241ae3 in" in faq
    assert f"it has {mean_of(cells('h100_sparse_upstream'))} times the speed in [the 56 shapes]" in faq
    assert "and {}, {} and {} times with [8, 16 and 32 heads]".format(*few) in faq
    assert "an older build has {}, {} and {} times the speed with [8, 16 and 32 heads]".format(*prefill[1:]) in faq


def test_what_the_faq_says_of_dense_decode() -> None:
    faq, dense, older = said("docs", "faq.md"), cells("h200_dense_upstream"), cells("h200_dense")
    one, some, many = (mean_of(of_batch(dense, batch)) for batch in (1, 64, 128))
    assert f"It has {mean_of(dense)} times the speed of FlashMLA 9241ae3, the mean of [{len(dense)} shapes]" in faq
    assert f"and {mean_of(dense, 'between')} times where another kernel runs between two launches" in faq
    assert (
        f"It has {one} times the speed with one request, but {some} and {many} times with 64 and 128 requests." in faq
    )
    assert "{} of 96 shapes are slower, at worst {} times as fast: those of".format(*losses_of(dense)) in faq
    assert f"it has {mean_of(older)} times the speed of the fastest of them" in faq
    assert "and {} of 96 shapes are slower, at worst {} times as fast. FlashMLA's".format(*losses_of(older)) in faq
    assert f"the mean is {mean_of(with_first_kernel())}." in faq


def test_what_the_faq_says_of_sparse_attention() -> None:
    faq, many = said("docs", "faq.md"), cells("h200_sparse")
    by_heads = [mean_of(cells("h200_sparse", heads)) for heads in (64, 128)]
    few = [mean_of(cells("h200_few_heads", heads)) for heads in (8, 16, 32)]
    prefill = [mean_of(cells("h200_prefill", heads)) for heads in (64, 128)]
    few_prefill = [mean_of(cells("h200_few_heads_prefill", heads)) for heads in (8, 16, 32)]
    assert f"It has {mean_of(many)} times the speed of FlashMLA 9241ae3 in [{len(many)} shapes]" in faq
    assert "{} times with 64 heads and {} times with 128. None is slower.".format(*by_heads) in faq
    assert losses_of(many + cells("h200_few_heads"))[0] == 0
    assert "it has {}, {} and {} times the speed in [14, 14 and 8 shapes]".format(*few) in faq
    assert f"at worst {losses_of(cells('h200_few_heads'))[1]} times: one request of V4" in faq
    assert "It has {} times the speed of FlashMLA 9241ae3 with 64 heads and {} times with 128".format(*prefill) in faq
    assert "it has {} and {} times the speed in [eight shapes each]".format(*few_prefill[:2]) in faq
    assert f"with 32 heads it has {few_prefill[2]} times." in faq


def test_where_hopper_stands() -> None:
    page = said("docs", "kernels", "sm90", "index.md")
    rows = [
        cells("h200_dense_upstream"), cells("h200_few_heads"), cells("h200_sparse"),
        cells("h200_few_heads_prefill", 8, 16), cells("h200_few_heads_prefill", 32), cells("h200_prefill"),
    ]  # fmt: skip
    for measured in rows:
        below, worst = losses_of(measured)
        row = f"| {len(measured)} | {mean_of(measured)} | {below}, {worst} | {mean_of(measured, 'between')} |"
        assert row in page, row
    assert f"has {mean_of(cells('h200_dense'))} times the speed of the fastest of FlashMLA, FlashInfer and FA3" in page
    assert f"of which {losses_of(cells('h200_dense'))[0]} are slower" in page
