// Generated from codegen/matrix.
#include "sm90/sparse_prefill/sparse_prefill.cuh"

extern template struct mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>;
template struct mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab>;
