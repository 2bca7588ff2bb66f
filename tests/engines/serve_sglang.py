"""One engine of SGLang in a process of its own: ``python -m tests.engines.serve_sglang ASKED.json TOLD.json``.

It is asked and tells as ``serve`` does for vLLM, whose names of arguments it takes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.engines.child import end_with_parent

NAMES = {"model": "model_path", "max_model_len": "context_length", "max_num_seqs": "max_running_requests"}
"""SGLang's names of arguments that both engines have."""


def main(asked: Path, told: Path) -> None:
    """Serve what a file asks for, greedily, and write what came of it."""
    from sglang import Engine

    request = json.loads(asked.read_text(encoding="utf-8"))
    options = {NAMES.get(name, name): value for name, value in request["engine"].items()}
    if options.get("speculative_algorithm") == "STANDALONE":  # the model drafts for itself
        options["speculative_draft_model_path"] = options["model_path"]
    engine = Engine(skip_tokenizer_init=True, random_seed=0, skip_server_warmup=True, **options)
    sampling = {"temperature": 0, "max_new_tokens": request["max_tokens"], "ignore_eos": True}
    for _ in range(request["times"]):
        outputs = engine.generate(
            input_ids=request["prompts"],
            sampling_params=sampling,
            return_logprob=True,
            top_logprobs_num=request["logprobs"],
        )
    found = {
        "requests": [answer(each) for each in outputs],
        "page_size": engine.server_args.resolved_dict()["page_size"],
    }
    told.write_text(json.dumps(found | counts(outputs)), encoding="utf-8")
    engine.shutdown()


def answer(output: dict[str, Any]) -> dict[str, Any]:
    """The tokens of one request, and at each the log-probabilities of the likeliest."""
    likeliest = output["meta_info"]["output_top_logprobs"]
    return {
        "tokens": list(output["output_ids"]),
        "likeliest": [{str(token): logprob for logprob, token, _ in step} for step in likeliest],
    }


def counts(outputs: list[dict[str, Any]]) -> dict[str, int]:
    """How many times requests were preempted, speculated tokens were right, and tokens of prompts were in the cache."""
    told = [each["meta_info"] for each in outputs]
    return {
        "preemptions": sum(each["num_retractions"] for each in told),
        "accepted": sum(each.get("spec_num_correct_drafts", 0) for each in told),
        "hits": sum(each["cached_tokens"] for each in told),
    }


if __name__ == "__main__":
    end_with_parent()
    main(Path(sys.argv[1]), Path(sys.argv[2]))
