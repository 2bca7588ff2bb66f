"""One engine in a process of its own: ``python -m tests.engines.serve ASKED.json TOLD.json``.

``asked`` has the arguments of ``vllm.LLM``, prompts of token ids, how many tokens to make of each, and how often.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.engines.child import end_with_parent


def main(asked: Path, told: Path) -> None:
    """Serve what a file asks for, greedily, and write what came of it."""
    from vllm import LLM, SamplingParams

    request = json.loads(asked.read_text(encoding="utf-8"))
    engine = LLM(skip_tokenizer_init=True, seed=0, disable_log_stats=False, **request["engine"])
    sampling = SamplingParams(
        temperature=0, max_tokens=request["max_tokens"], ignore_eos=True, logprobs=request["logprobs"], detokenize=False
    )
    prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
    for _ in range(request["times"]):
        outputs = engine.generate(prompts, sampling, use_tqdm=False)
    requests = [answer(each.outputs[0]) for each in outputs]
    told.write_text(json.dumps({"requests": requests, **counts(engine), **switches(engine)}), encoding="utf-8")


def answer(output: Any) -> dict[str, Any]:
    """The tokens of one request, and at each the log-probabilities of the likeliest."""
    likeliest = [{str(token): each.logprob for token, each in step.items()} for step in output.logprobs]
    return {"tokens": list(output.token_ids), "likeliest": likeliest}


def counts(engine: Any) -> dict[str, int]:
    """How many requests were preempted, speculated tokens were right, and tokens of prompts were in the cache."""
    counted = {metric.name: getattr(metric, "value", 0) for metric in engine.get_metrics()}
    return {
        "preemptions": int(counted["vllm:num_preemptions"]),
        "accepted": int(counted.get("vllm:spec_decode_num_accepted_tokens", 0)),
        "hits": int(counted.get("vllm:prefix_cache_hits", 0)),
    }


def switches(engine: Any) -> dict[str, bool]:
    """What the engine made of options that a platform may overrule."""
    config = engine.llm_engine.vllm_config
    return {
        "chunked_prefill": config.scheduler_config.enable_chunked_prefill,
        "prefix_caching": config.cache_config.enable_prefix_caching,
    }


if __name__ == "__main__":
    end_with_parent()
    main(Path(sys.argv[1]), Path(sys.argv[2]))
