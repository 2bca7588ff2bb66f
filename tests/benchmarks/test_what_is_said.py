"""What the README, the FAQ and the pages of kernels say of other libraries is computed from what was measured."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

from benchmarks import where_it_stands
from benchmarks.pages import comparison, side_by_side
from benchmarks.pages.markdown import with_block
from benchmarks.where_it_stands import cells
from tests.benchmarks.imagined import PAGES

ROOT = PAGES.parents[1]
DATA = PAGES / "data"
PRODUCTS = json.loads((DATA / "ratios_to_flash_mla_9241ae3.json").read_text())
Cells = list[dict[str, Any]]


def said(*path: str) -> str:
    """The text of a page, with single spaces."""
    return " ".join(ROOT.joinpath(*path).read_text().split())


def with_first_kernel() -> Cells:
    joined: Cells = comparison.with_products(json.loads((DATA / "h200_dense.json").read_text()), PRODUCTS)["cells"]
    return joined


def of_batch(measured: Cells, *batches: int) -> Cells:
    return [cell for cell in measured if cell["problem"]["batch"] in batches]


def mean_of(measured: Cells) -> str:
    """The geometric mean of the ratios of cells in a graph."""
    return f"{statistics.geometric_mean(comparison.ratios(measured, 'graph')):.2f}"


def losses_of(measured: Cells, state: str = "graph") -> tuple[int, str]:
    """How many of the ratios are below 1, and the least."""
    found = comparison.ratios(measured, state)
    return sum(ratio < 1 for ratio in found), f"{min(found):.2f}"


def range_of(figures: list[float]) -> tuple[str, str]:
    return f"{min(figures):.2f}", f"{max(figures):.2f}"


@pytest.mark.parametrize("page", where_it_stands.PAGES)
def test_tables_of_where_it_stands(page: str) -> None:
    assert where_it_stands.current(page) == where_it_stands.tables(where_it_stands.PAGES[page])


def test_a_block_is_replaced_and_nothing_else() -> None:
    page = "a\n<!-- x: begin -->\n<!-- x: end -->\n<!-- y: begin -->\nold\n<!-- y: end -->\nb\n"
    assert with_block(page, "x", "1\n") == page.replace("<!-- x: end", "1\n<!-- x: end")
    assert with_block(page, "y", "new\n") == page.replace("old", "new")
    with pytest.raises(ValueError, match="not enough values"):
        with_block(page, "z", "1\n")


def test_the_table_of_the_benchmarks_page() -> None:
    document = json.loads((DATA / "h200_side_by_side.json").read_text())
    assert " ".join(side_by_side.table(document).split()) in said("docs", "benchmarks.md")


def test_the_first_lines_of_the_readme() -> None:
    assert (
        f"dense decode **{mean_of(cells('h200_dense_upstream'))}x**, "
        f"sparse fp8 decode **{mean_of(cells('h200_sparse', (128,)))}x** with 128 heads to "
        f"**{mean_of(cells('h200_few_heads', (8,)))}x** with 8, "
        f"sparse prefill **{mean_of(cells('h200_prefill', (128,)))}x** with 128 heads to "
        f"**{mean_of(cells('h200_few_heads_prefill', (8, 16)))}x** with 8 and 16."
    ) in said("README.md")


def test_what_the_readme_says_of_losses_and_of_other_libraries() -> None:
    readme, older, joined = said("README.md"), cells("h200_dense"), with_first_kernel()
    slower = [cell["problem"] for cell in cells("h200_dense_upstream") if comparison.ratios([cell], "graph")[0] < 1]
    assert all(problem["heads"] * problem["q_len"] >= 128 for problem in slower)
    assert "All dense shapes below 1 have at least 128 query rows in a request" in readme
    assert f"that build has **{mean_of(older)}x** the speed of the fastest of the four;" in readme
    assert "{} shapes are below 1, the worst is {}x. With FlashMLA's first kernel".format(*losses_of(older)) in readme
    below, worst = losses_of(joined)
    assert f"it is {mean_of(joined)}x; {below} shapes are below 1, the worst is {worst}x (" in readme
    loaded = [cell for cell in cells("h200_sustained_upstream", (64,)) if cell["problem"]["batch"] == 128]
    fall = [comparison.ratios(loaded, state)[0] for state in ("graph", "sustained")]
    assert "64 heads with 128 requests fall from {:.2f}x to {:.2f}x.".format(*fall) in readme


def test_what_is_said_of_load_over_fp8_caches() -> None:
    loaded = range_of(comparison.ratios(cells("h200_sparse_sustained"), "sustained"))
    assert "four shapes of decode have {} to {} times.".format(*loaded) in said("docs", "kernels", "sm90", "sparse.md")


def test_what_is_said_of_an_h100() -> None:
    few = [mean_of(cells("h100_few_heads", (heads,))) for heads in (8, 16, 32)]
    many = [mean_of(cells("h100_sparse_upstream", (heads,))) for heads in (64, 128)]
    prefill = [mean_of(cells("h100_few_heads_prefill", heads)) for heads in ((8, 16), (32,))]
    readme = said("README.md")
    assert f"older builds have {mean_of(cells('h100_dense'))}x in [dense decode]" in readme
    assert "{}x, {}x and {}x in sparse decode with [8, 16 and 32 heads]".format(*few) in readme
    assert "{}x and {}x with [64 and 128]".format(*many) in readme
    assert f"{prefill[0]}x in [sparse prefill](docs/benchmarks/h100_few_heads_prefill.md) with 8 and 16" in readme
    assert f"with 8 and 16 heads, {prefill[1]}x with 32." in readme


def test_what_the_faq_says() -> None:
    faq, dense, older = said("docs", "faq.md"), cells("h200_dense_upstream"), cells("h200_dense")
    one, some, many = (mean_of(of_batch(dense, batch)) for batch in (1, 64, 128))
    assert (
        f"In dense decode it has {mean_of(dense)} times the speed, the geometric mean of [{len(dense)} shapes]" in faq
    )
    assert f"{one} times with one request, {some} and {many} times with 64 and 128;" in faq
    assert "{} shapes are slower, at worst {} times as fast.".format(*losses_of(dense)) in faq
    sparse = cells("h200_sparse") + cells("h200_few_heads")
    assert losses_of(sparse)[0] == 0
    assert f"it is faster in all {len(sparse)} shapes launched one after the other" in faq
    between = "{} shapes with 128 heads are slower, at worst {} times as fast".format(*losses_of(sparse, "between"))
    assert between in faq
    assert f"level in a graph (at worst {losses_of(cells('h200_prefill', (128,)))[1]} times as fast)" in faq
    assert f"it has {mean_of(older)} times the speed of the fastest of" in faq
    assert "and {} are slower, at worst {} times as fast.".format(*losses_of(older)) in faq
    assert f"it is {mean_of(with_first_kernel())} times, and {losses_of(with_first_kernel())[0]} are slower." in faq


def test_what_is_said_of_an_older_build_on_hopper() -> None:
    page, older = said("docs", "kernels", "sm90", "index.md"), cells("h200_dense")
    assert f"has {mean_of(older)} times the speed of the fastest of FlashMLA, FlashInfer and FA3" in page
    assert f"of which {losses_of(older)[0]} are slower" in page
