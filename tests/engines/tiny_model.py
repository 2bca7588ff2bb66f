"""Writes random models of DeepSeek's shape: no experts, 16 heads, a latent of 512 columns and rope of 64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch

VOCABULARY = 512
HIDDEN, INNER, LAYERS, HEADS = 256, 512, 2, 16
LATENT, NOPE, ROPE, VALUE = 512, 128, 64, 128
"""Widths of DeepSeek V2, V3 and V3.2: on GPUs, vLLM's prefill takes no others of this latent."""
DEVIATION = 0.25
"""Of every weight. With the 0.02 of most models, logits of attention are so small that any attention will do."""
SHAPE = {
    "torch_dtype": "float32",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "moe_intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "n_routed_experts": 2,
    "n_shared_experts": 1,
    "num_experts_per_tok": 1,
    "first_k_dense_replace": LAYERS,
    "moe_layer_freq": 1,
    "kv_lora_rank": LATENT,
    "q_lora_rank": None,
    "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROPE,
    "v_head_dim": VALUE,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
    },
    "initializer_range": DEVIATION,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
V2 = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "num_hidden_layers": LAYERS}
V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 1,
    "num_nextn_predict_layers": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
}
"""Of V3, with one layer, and one more that predicts the token after the next."""
Q_RANK, INDEX_HEADS, INDEX_COLUMNS = 256, 64, 128
TOPK = 512
V32 = V3 | {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "num_hidden_layers": LAYERS,
    "num_nextn_predict_layers": 0,
    "q_lora_rank": Q_RANK,
    "index_n_heads": INDEX_HEADS,
    "index_head_dim": INDEX_COLUMNS,
    "index_topk": TOPK,
}
"""Of V3.2, whose layers attend to the tokens that an indexer selects."""
V32_2048 = V32 | {"index_topk": 2048, "max_position_embeddings": 8192}
"""The same with as many tokens as V3.2 selects, which is the only number that SGLang's kernels take in every step."""
Kind = Literal["dense", "predicting", "sparse", "sparse, 2048"]


def random_weights(layers: int) -> dict[str, torch.Tensor]:
    """Every weight of a model by its name in a checkpoint, the same at every call."""
    source = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source) * DEVIATION

    found = {"model.embed_tokens.weight": random(VOCABULARY, HIDDEN)}
    for number in range(layers):
        layer = f"model.layers.{number}"
        found |= {
            f"{layer}.input_layernorm.weight": torch.ones(HIDDEN),
            f"{layer}.self_attn.q_proj.weight": random(HEADS * (NOPE + ROPE), HIDDEN),
            f"{layer}.self_attn.kv_a_proj_with_mqa.weight": random(LATENT + ROPE, HIDDEN),
            f"{layer}.self_attn.kv_a_layernorm.weight": torch.ones(LATENT),
            f"{layer}.self_attn.kv_b_proj.weight": random(HEADS * (NOPE + VALUE), LATENT),
            f"{layer}.self_attn.o_proj.weight": random(HIDDEN, HEADS * VALUE),
            f"{layer}.post_attention_layernorm.weight": torch.ones(HIDDEN),
            f"{layer}.mlp.gate_proj.weight": random(INNER, HIDDEN),
            f"{layer}.mlp.up_proj.weight": random(INNER, HIDDEN),
            f"{layer}.mlp.down_proj.weight": random(HIDDEN, INNER),
        }
    return found | {"model.norm.weight": torch.ones(HIDDEN), "lm_head.weight": random(VOCABULARY, HIDDEN)}


def sparse_weights() -> dict[str, torch.Tensor]:
    """Weights of V3.2: queries by way of a latent, and an indexer in each layer."""
    source = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source) * DEVIATION

    found = random_weights(LAYERS)
    for number in range(LAYERS):
        layer = f"model.layers.{number}.self_attn"
        del found[f"{layer}.q_proj.weight"]
        found |= {
            f"{layer}.q_a_proj.weight": random(Q_RANK, HIDDEN),
            f"{layer}.q_a_layernorm.weight": torch.ones(Q_RANK),
            f"{layer}.q_b_proj.weight": random(HEADS * (NOPE + ROPE), Q_RANK),
            f"{layer}.indexer.wq_b.weight": random(INDEX_HEADS * INDEX_COLUMNS, Q_RANK),
            f"{layer}.indexer.wk.weight": random(INDEX_COLUMNS, HIDDEN),
            f"{layer}.indexer.k_norm.weight": torch.ones(INDEX_COLUMNS),
            f"{layer}.indexer.k_norm.bias": torch.zeros(INDEX_COLUMNS),
            f"{layer}.indexer.weights_proj.weight": random(INDEX_HEADS, HIDDEN),
        }
    return found


def predicting_weights() -> dict[str, torch.Tensor]:
    """Weights of one layer, and of one that predicts what it does: a copy of it that sees embeddings only.

    An embedding of mean square 1 passes the norm before the copy as it is, so that nearly every prediction is right.
    """
    found = random_weights(1)
    rows = found["model.embed_tokens.weight"]
    rows /= rows.square().mean(1, keepdim=True).sqrt()
    found |= {name.replace(".0.", ".1."): each.clone() for name, each in found.items() if ".layers.0." in name}
    layer = "model.layers.1"
    return found | {
        f"{layer}.embed_tokens.weight": rows.clone(),
        f"{layer}.enorm.weight": torch.ones(HIDDEN),
        f"{layer}.hnorm.weight": torch.ones(HIDDEN),
        f"{layer}.eh_proj.weight": torch.cat([torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)], 1),
        f"{layer}.shared_head.norm.weight": torch.ones(HIDDEN),
        f"{layer}.shared_head.head.weight": found["lm_head.weight"].clone(),
    }


def write(folder: Path, kind: Kind = "dense") -> Path:
    """Write a model of V2's shape, of V3's that predicts a token more, or of V3.2's, and return its folder."""
    from safetensors.torch import save_file  # which vLLM brings; the shapes above are of use without it

    folder.mkdir(parents=True, exist_ok=True)
    shape: dict[str, Any] = {"dense": V2, "predicting": V3, "sparse": V32, "sparse, 2048": V32_2048}[kind]
    (folder / "config.json").write_text(json.dumps(SHAPE | shape, indent=1), encoding="utf-8")
    if shape["architectures"] == V32["architectures"]:
        weights = sparse_weights()
    else:
        weights = predicting_weights() if kind == "predicting" else random_weights(LAYERS)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder
