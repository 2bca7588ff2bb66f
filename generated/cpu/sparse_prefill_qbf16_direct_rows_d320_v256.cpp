// Generated from codegen/matrix.
#include "cpu/sparse_prefill/sparse_prefill.h"

template struct mla::cpu::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::rows, 320, 256>;
