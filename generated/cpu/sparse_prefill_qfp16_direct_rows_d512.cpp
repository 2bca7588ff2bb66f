// Generated from codegen/matrix.
#include "cpu/sparse_prefill/sparse_prefill.h"

template struct mla::cpu::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::rows, 512>;
