// How the launcher fills each problem struct from arguments. Generated; see codegen/abi.py.
#pragma once

#include <cstddef>

#include "mla/abi.h"
#include "launcher/binding.h"

namespace mla::launcher {

inline constexpr const char* kStatuses[] = {"ok", "dtype", "device", "shape", "stride", "alignment", "range", "workspace", "unsupported", "internal", };

inline constexpr const char* kDecodeDims[] = {"batch", "q_len", "num_heads", "num_pages", "page_size", "num_requests", "table_width", "num_bounds", };

inline constexpr TensorBinding kDecodeTensors[] = {
    {"q", "q_dtype", 3, {0, 1, 2}, {true, true, true}, Row::packed, 0, 8, 40, false, false},
    {"kv_cache", "kv_dtype", 2, {3, 4, 0}, {true, true, false}, Row::packed, 0, 72, 96, false, false},
    {"block_table", "int32", 2, {5, 6, 0}, {true, false, false}, Row::none, 0, 120, -1, true, false},
    {"seq_lens", "int32", 1, {5, 0, 0}, {false, false, false}, Row::none, 0, 136, -1, false, false},
    {"out", "out_dtype", 3, {0, 1, 2}, {true, true, true}, Row::value, 0, 144, -1, false, true},
    {"lse", "float32", 3, {0, 2, 1}, {true, true, true}, Row::none, 0, 176, -1, true, true},
    {"cu_seqlens_q", "int32", 1, {7, 0, 0}, {false, false, false}, Row::none, 0, 208, -1, true, false},
    {"token_seq_lens", "int32", 2, {0, 1, 0}, {true, true, false}, Row::none, 0, 216, -1, true, false},
};

inline constexpr ScalarBinding kDecodeScalars[] = {
    {"softmax_scale", Kind::float32, Check::finite, 320, 0},
    {"q_scale", Kind::float32, Check::finite, 324, 1.0},
    {"kv_scale", Kind::float32, Check::finite, 328, 1.0},
    {"out_scale", Kind::float32, Check::finite, 332, 1.0},
    {"causal", Kind::int32, Check::flag, 336, 1},
    {"max_splits", Kind::int64, Check::count, 304, 0},
    {"batch_invariant", Kind::int32, Check::flag, 340, 0},
    {"max_q_len", Kind::int64, Check::count, 312, 0},
};

inline constexpr const char* kSparseDecodeDims[] = {"batch", "q_len", "num_heads", "num_pages", "page_size", "topk", "extra_num_pages", "extra_page_size", "extra_topk", };

inline constexpr TensorBinding kSparseDecodeTensors[] = {
    {"q", "q_dtype", 3, {0, 1, 2}, {true, true, true}, Row::packed, 0, 8, 40, false, false},
    {"kv_cache", "kv_dtype", 2, {3, 4, 0}, {true, true, false}, Row::packed, 0, 72, 96, false, false},
    {"indices", "int32", 3, {0, 1, 5}, {true, true, false}, Row::none, 0, 120, -1, false, false},
    {"out", "out_dtype", 3, {0, 1, 2}, {true, true, true}, Row::value, 0, 144, -1, false, true},
    {"lse", "float32", 3, {0, 2, 1}, {true, true, true}, Row::none, 0, 176, -1, true, true},
    {"max_logits", "float32", 3, {0, 2, 1}, {true, true, true}, Row::none, 0, 208, -1, true, true},
    {"topk_length", "int32", 2, {0, 1, 0}, {true, true, false}, Row::none, 0, 240, -1, true, false},
    {"attn_sink", "float32", 1, {2, 0, 0}, {false, false, false}, Row::none, 0, 264, -1, true, false},
    {"extra_kv_cache", "extra_kv_dtype", 2, {6, 7, 0}, {true, true, false}, Row::packed, 0, 272, 296, true, false},
    {"extra_indices", "int32", 3, {0, 1, 8}, {true, true, false}, Row::none, 0, 320, -1, true, false},
    {"extra_topk_length", "int32", 2, {0, 1, 0}, {true, true, false}, Row::none, 0, 344, -1, true, false},
};

inline constexpr ScalarBinding kSparseDecodeScalars[] = {
    {"softmax_scale", Kind::float32, Check::finite, 448, 0},
    {"q_scale", Kind::float32, Check::finite, 452, 1.0},
    {"kv_scale", Kind::float32, Check::finite, 456, 1.0},
    {"out_scale", Kind::float32, Check::finite, 460, 1.0},
    {"max_splits", Kind::int64, Check::count, 440, 0},
};

inline constexpr const char* kSparsePrefillDims[] = {"q_len", "num_heads", "kv_len", "topk", "extra_kv_len", "extra_topk", };

inline constexpr TensorBinding kSparsePrefillTensors[] = {
    {"q", "q_dtype", 2, {0, 1, 0}, {true, true, false}, Row::packed, 0, 8, 32, false, false},
    {"kv", "kv_dtype", 1, {2, 0, 0}, {true, false, false}, Row::packed, 0, 56, 72, false, false},
    {"indices", "int32", 2, {0, 3, 0}, {true, false, false}, Row::none, 0, 88, -1, false, false},
    {"out", "out_dtype", 2, {0, 1, 0}, {true, true, false}, Row::value, 0, 104, -1, false, true},
    {"max_logits", "float32", 2, {0, 1, 0}, {true, true, false}, Row::none, 0, 128, -1, true, true},
    {"lse", "float32", 2, {0, 1, 0}, {true, true, false}, Row::none, 0, 152, -1, true, true},
    {"topk_length", "int32", 1, {0, 0, 0}, {true, false, false}, Row::none, 0, 176, -1, true, false},
    {"attn_sink", "float32", 1, {1, 0, 0}, {false, false, false}, Row::none, 0, 192, -1, true, false},
    {"extra_kv", "kv_dtype", 1, {4, 0, 0}, {true, false, false}, Row::packed, 0, 200, 216, true, false},
    {"extra_indices", "int32", 2, {0, 5, 0}, {true, false, false}, Row::none, 0, 232, -1, true, false},
    {"extra_topk_length", "int32", 1, {0, 0, 0}, {true, false, false}, Row::none, 0, 248, -1, true, false},
};

inline constexpr ScalarBinding kSparsePrefillScalars[] = {
    {"softmax_scale", Kind::float32, Check::finite, 312, 0},
    {"q_scale", Kind::float32, Check::finite, 316, 1.0},
    {"kv_scale", Kind::float32, Check::finite, 320, 1.0},
    {"out_scale", Kind::float32, Check::finite, 324, 1.0},
};

inline constexpr const char* kMergeStatesDims[] = {"num_states", "num_tokens", "num_heads", "head_dim", };

inline constexpr TensorBinding kMergeStatesTensors[] = {
    {"o", "in_dtype", 3, {0, 1, 2}, {true, true, true}, Row::dim, 3, 8, -1, false, false},
    {"lse", "float32", 3, {0, 1, 2}, {true, true, true}, Row::none, 0, 40, -1, false, false},
    {"counts", "int32", 1, {1, 0, 0}, {true, false, false}, Row::none, 0, 72, -1, true, false},
    {"out", "out_dtype", 2, {1, 2, 0}, {true, true, false}, Row::dim, 3, 88, -1, false, true},
    {"out_lse", "float32", 2, {1, 2, 0}, {true, true, false}, Row::none, 0, 112, -1, true, true},
};


inline constexpr const char* kStoreKvDims[] = {"num_tokens", "num_pages", "page_size", };

inline constexpr TensorBinding kStoreKvTensors[] = {
    {"latent", "in_dtype", 1, {0, 0, 0}, {true, false, false}, Row::latent, 0, 8, -1, false, false},
    {"rope", "in_dtype", 1, {0, 0, 0}, {true, false, false}, Row::rope, 0, 24, -1, false, false},
    {"kv_cache", "kv_dtype", 2, {1, 2, 0}, {true, true, false}, Row::packed, 0, 40, 64, false, true},
    {"slot_mapping", "int64", 1, {0, 0, 0}, {false, false, false}, Row::none, 0, 88, -1, false, false},
    {"scale", "float32", 0, {0, 0, 0}, {false, false, false}, Row::fixed, 1, 96, -1, true, false},
};

inline constexpr ScalarBinding kStoreKvScalars[] = {
    {"power_of_two_scales", Kind::int32, Check::flag, 128, 0},
};

inline constexpr const char* kGatherKvDims[] = {"num_pages", "page_size", "num_rows", };

inline constexpr TensorBinding kGatherKvTensors[] = {
    {"kv_cache", "kv_dtype", 2, {0, 1, 0}, {true, true, false}, Row::packed, 0, 8, 32, false, false},
    {"indices", "int32", 1, {2, 0, 0}, {false, false, false}, Row::none, 0, 56, -1, false, false},
    {"out", "out_dtype", 1, {2, 0, 0}, {true, false, false}, Row::packed, 0, 64, 80, false, true},
};

inline constexpr ScalarBinding kGatherKvScalars[] = {
    {"kv_scale", Kind::float32, Check::finite, 120, 1.0},
};

inline constexpr const char* kToGlobalIndicesDims[] = {"num_tokens", "num_requests", "table_width", "topk", };

inline constexpr TensorBinding kToGlobalIndicesTensors[] = {
    {"req_id", "int32", 1, {0, 0, 0}, {false, false, false}, Row::none, 0, 8, -1, false, false},
    {"block_table", "int32", 2, {1, 2, 0}, {true, false, false}, Row::none, 0, 16, -1, false, false},
    {"token_indices", "int32", 2, {0, 3, 0}, {true, false, false}, Row::none, 0, 32, -1, false, false},
    {"out", "int32", 2, {0, 3, 0}, {true, false, false}, Row::none, 0, 48, -1, false, true},
};

inline constexpr ScalarBinding kToGlobalIndicesScalars[] = {
    {"page_size", Kind::int64, Check::positive, 96, 0},
};

inline constexpr OpBinding kOps[] = {
    {"decode", 344, 240, 8, kDecodeDims, 8, kDecodeTensors, 8, kDecodeScalars, 6, 5, 0},
    {"sparse_decode", 464, 368, 9, kSparseDecodeDims, 11, kSparseDecodeTensors, 5, kSparseDecodeScalars, -1, -1, -1},
    {"sparse_prefill", 328, 264, 6, kSparsePrefillDims, 11, kSparsePrefillTensors, 4, kSparsePrefillScalars, -1, -1, -1},
    {"merge_states", 168, 136, 4, kMergeStatesDims, 5, kMergeStatesTensors, 0, nullptr, -1, -1, -1},
    {"store_kv", 136, 104, 3, kStoreKvDims, 5, kStoreKvTensors, 1, kStoreKvScalars, -1, -1, -1},
    {"gather_kv", 128, 96, 3, kGatherKvDims, 3, kGatherKvTensors, 1, kGatherKvScalars, -1, -1, -1},
    {"to_global_indices", 104, 64, 4, kToGlobalIndicesDims, 4, kToGlobalIndicesTensors, 1, kToGlobalIndicesScalars, -1, -1, -1},
};

}  // namespace mla::launcher
