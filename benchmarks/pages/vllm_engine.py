"""What ``benchmarks.vllm_engine`` measured, as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.pages.markdown import markdown

_ABOUT = (
    "Milliseconds of a decoding step of an engine, {layers} layers with all that is in them and around them: the "
    "median of {repeats} turns, the least and the most; and how many times as fast the step is with our backend. Each "
    "request has {prompt:,} tokens. {kinds}. 16 heads are what one of eight GPUs has of 128. There are no experts, and "
    "the other parts of a layer are small: a whole model spends less of a step in attention, and gains less."
)
_KINDS = {
    "dense": "*Dense* is a model of DeepSeek V3's widths over a bf16 cache",
    "sparse": "*sparse* is one of V3.2's, which selects 2,048 tokens of an `fp8_ds_mla` cache",
}
_METHOD = (
    "Every backend serves in an engine of its own, with CUDA graphs and without `torch.compile`, all on one GPU. The "
    "engines of a model take turns: one serves a batch of requests, whose prompts are in its cache, while the others "
    "wait. A step is the time from the first to the last token of a batch over the {steps} steps between them. Where "
    "the GPU finishes before the CPU, a step takes as long as the CPU does, and the turns differ more."
)


def page(document: Mapping[str, Any], *, data: str) -> str:
    """Markdown of a measurement; ``data`` is where the page finds it as JSON."""
    rows, machine, payload = [_row(row) for row in document["rows"]], document["machine"], document["payload"]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    kinds = [text for kind, text in _KINDS.items() if any(row["model"].startswith(kind) for row in rows)]
    left_out = document["left out"]
    counts = {name: document[name] for name in ("layers", "prompt", "repeats", "steps")}
    asked = f", which asks for {document['asks for'].replace('==', ' ')}" if document["asks for"] else ""
    commit = f"commit `{payload['commit']}`" if payload["commit"] else "no commit"
    lines = [
        f"# Inside vLLM: {machine['gpu']}",
        markdown([{name: row.get(name, "-") for name in columns} for row in rows], right=columns[1:]),
        _ABOUT.format(kinds=", ".join(kinds), **counts),
        _METHOD.format(**counts),
        *(
            [f"Not measured, because an engine did not start or did not answer: {'; '.join(left_out)}."]
            if left_out
            else []
        ),
        f"Measured on {machine['date']} by `{document['command']}`; all of it: [{data.rpartition('/')[2]}]({data}). "
        f"One {machine['gpu']}, driver {machine['driver']}, torch {machine['torch']}, vLLM {document['vllm']}{asked}; "
        f"payload `{payload['name']}` {payload['version']}, {commit}, library sha256 "
        f"`{payload['library_sha256'][:16]}`.",
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
