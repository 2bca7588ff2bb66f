"""Decoding steps inside an engine, as ``benchmarks.engine_turns`` measured them, as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.pages.markdown import markdown

_ABOUT = (
    "Milliseconds of a decoding step of an engine, {layers} layers with all that is in them and around them: the "
    "median of {turns} turns, the least and the most; and how many times as fast the step is with our backend. Each "
    "request has {prompt:,} tokens. {kinds}.{few} There are no experts, and the other parts of a layer are small: a "
    "whole model spends less of a step in attention, and gains less."
)
_DENSE = "*Dense* is a model of DeepSeek V3's widths over a bf16 cache"
_FEW = " 16 heads are what one of eight GPUs has of 128."
_SPARSE = "*sparse* is one of V3.2's, which selects 2,048 tokens of such a cache{or_bytes}"
_METHOD = (
    "Every backend serves in an engine of its own, all on one GPU. {options} The engines of a model take turns: one "
    "serves a batch of requests, whose prompts are in its cache, while the others wait. {step} Where the GPU finishes "
    "before the CPU, a step takes as long as the CPU does, and the turns differ more: the least is then nearer to what "
    "the GPU needs."
)
_ENGINES = {
    "vllm": (
        "vLLM",
        "Decoding steps run in CUDA graphs, without `torch.compile`.",
        "A step is the time from the first to the last token of a batch over the {steps} steps between them.",
    ),
    "sglang": (
        "SGLang",
        "Decoding steps run in CUDA graphs, and FlashInfer prefills prompts of dense models with every backend.",
        "A step is the time of a batch of requests for {steps} more tokens than one, without that of a batch of "
        "requests for one, over the {steps} steps.",
    ),
}
"""Of each engine: its name, how it was started, and what a step is."""


def page(document: Mapping[str, Any], *, data: str) -> str:
    """Markdown of a measurement; ``data`` is where the page finds it as JSON."""
    rows, machine, payload = [_row(row) for row in document["rows"]], document["machine"], document["payload"]
    engine, left_out = document["engine"], document["left out"]
    name, options, step = _ENGINES[engine["name"]]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    sparse = {row["cache"] for row in document["rows"] if row["model"].startswith("sparse")}
    or_bytes = "".join(f" or of an `{cache}` one" for cache in sorted(sparse - {"auto"}))
    kinds = [_DENSE, *([_SPARSE.format(or_bytes=or_bytes)] if sparse else [])]
    turns = sorted({len(times) for row in document["rows"] for times in row["times"].values()})
    few = _FEW if any("16 heads" in row["model"] for row in document["rows"]) else ""
    counts = {"turns": " or ".join(map(str, turns))} | {key: document[key] for key in ("layers", "prompt", "steps")}
    asked = f", which asks for {engine['asks for'].replace('==', ' ')}" if engine["asks for"] else ""
    commit = f"commit `{payload['commit']}`" if payload["commit"] else "no commit"
    lines = [
        f"# Inside {name}: {machine['gpu']}",
        markdown([{column: row.get(column, "-") for column in columns} for row in rows], right=columns[1:]),
        *([note] if (note := document.get("note")) else []),
        _ABOUT.format(kinds=", ".join(kinds), few=few, **counts),
        _METHOD.format(options=options, step=step.format(**counts)),
        *([f"Not measured: {'; '.join(left_out)}."] if left_out else []),
        f"Measured on {machine['date']} by `{document['command']}`, each model in one run; all of it: "
        f"[{data.rpartition('/')[2]}]({data}). One {machine['gpu']}, driver {machine['driver']}, "
        f"torch {machine['torch']}, {name} {engine['version']}{asked}; payload `{payload['name']}` "
        f"{payload['version']}, {commit}, library sha256 `{payload['library_sha256'][:16]}`.",
    ]
    return "\n\n".join(lines) + "\n"


def _row(row: Mapping[str, Any]) -> dict[str, str]:
    ours, *theirs = row["ms"]
    columns = {"model": row["model"], "requests": str(row["batch"]), "ours": _times(row, ours)}
    for name in theirs:
        short = name.removesuffix("_SPARSE")
        columns |= {short: _times(row, name), f"{short} / ours": f"{row['ms'][name] / row['ms'][ours]:.3f}"}
    return columns


def _times(row: Mapping[str, Any], name: str) -> str:
    times = row["times"][name]
    return f"{row['ms'][name]:.2f} ({min(times):.2f} to {max(times):.2f})"
