// Generated from codegen/matrix/cpu.toml.
#include "common/operation.h"
#include "cpu/decode/decode.h"
#include "cpu/gather_kv/gather_kv.h"
#include "cpu/merge_states/merge_states.h"
#include "cpu/sparse_decode/sparse_decode.h"
#include "cpu/sparse_prefill/sparse_prefill.h"
#include "cpu/store_kv/store_kv.h"
#include "cpu/to_global_indices/to_global_indices.h"

namespace mla::cpu {
extern template struct Decode<DType::fp32, DType::fp32, DType::fp32>;
extern template struct Decode<DType::fp32, DType::e4m3, DType::fp32>;
extern template struct Decode<DType::fp32, DType::fp8_ds_mla, DType::fp32>;
extern template struct Decode<DType::fp16, DType::fp16, DType::fp16>;
extern template struct Decode<DType::fp16, DType::e4m3, DType::fp16>;
extern template struct Decode<DType::fp16, DType::fp8_ds_mla, DType::fp16>;
extern template struct Decode<DType::bf16, DType::bf16, DType::bf16>;
extern template struct Decode<DType::bf16, DType::e4m3, DType::bf16>;
extern template struct Decode<DType::bf16, DType::fp8_ds_mla, DType::bf16>;
extern template struct SparseDecode<DType::fp32, DType::fp32, DType::fp32>;
extern template struct SparseDecode<DType::fp32, DType::e4m3, DType::fp32>;
extern template struct SparseDecode<DType::fp32, DType::fp8_ds_mla, DType::fp32>;
extern template struct SparseDecode<DType::fp16, DType::fp16, DType::fp16>;
extern template struct SparseDecode<DType::fp16, DType::e4m3, DType::fp16>;
extern template struct SparseDecode<DType::fp16, DType::fp8_ds_mla, DType::fp16>;
extern template struct SparseDecode<DType::bf16, DType::bf16, DType::bf16>;
extern template struct SparseDecode<DType::bf16, DType::e4m3, DType::bf16>;
extern template struct SparseDecode<DType::bf16, DType::fp8_ds_mla, DType::bf16>;
extern template struct SparsePrefill<DType::fp32, DType::fp32, DType::fp32>;
extern template struct SparsePrefill<DType::fp16, DType::fp16, DType::fp16>;
extern template struct SparsePrefill<DType::bf16, DType::bf16, DType::bf16>;
extern template struct MergeStates<DType::fp32, DType::fp32>;
extern template struct MergeStates<DType::fp32, DType::fp16>;
extern template struct MergeStates<DType::fp32, DType::bf16>;
extern template struct MergeStates<DType::fp16, DType::fp16>;
extern template struct MergeStates<DType::bf16, DType::bf16>;
extern template struct StoreKv<DType::fp32, DType::fp32>;
extern template struct StoreKv<DType::fp32, DType::e4m3>;
extern template struct StoreKv<DType::fp32, DType::fp8_ds_mla>;
extern template struct StoreKv<DType::fp16, DType::fp16>;
extern template struct StoreKv<DType::fp16, DType::e4m3>;
extern template struct StoreKv<DType::fp16, DType::fp8_ds_mla>;
extern template struct StoreKv<DType::bf16, DType::bf16>;
extern template struct StoreKv<DType::bf16, DType::e4m3>;
extern template struct StoreKv<DType::bf16, DType::fp8_ds_mla>;
extern template struct GatherKv<DType::e4m3, DType::fp32>;
extern template struct GatherKv<DType::e4m3, DType::fp16>;
extern template struct GatherKv<DType::e4m3, DType::bf16>;
extern template struct GatherKv<DType::fp8_ds_mla, DType::fp32>;
extern template struct GatherKv<DType::fp8_ds_mla, DType::fp16>;
extern template struct GatherKv<DType::fp8_ds_mla, DType::bf16>;
extern template struct GatherKv<DType::fp32, DType::fp32>;
extern template struct GatherKv<DType::fp16, DType::fp16>;
extern template struct GatherKv<DType::bf16, DType::bf16>;
}  // namespace mla::cpu

namespace mla {
namespace {

const Operation kOperations[] = {
    operation<cpu::Decode<DType::fp32, DType::fp32, DType::fp32>>(
        "cpu_decode_qfp32_kvfp32_ofp32_direct_split", MLA_OP_DECODE),
    operation<cpu::Decode<DType::fp32, DType::e4m3, DType::fp32>>(
        "cpu_decode_qfp32_kve4m3_ofp32_direct_split", MLA_OP_DECODE),
    operation<cpu::Decode<DType::fp32, DType::fp8_ds_mla, DType::fp32>>(
        "cpu_decode_qfp32_kvfp8_ds_mla_ofp32_direct_split", MLA_OP_DECODE),
    operation<cpu::Decode<DType::fp16, DType::fp16, DType::fp16>>(
        "cpu_decode_qfp16_kvfp16_ofp16_direct_split", MLA_OP_DECODE),
    operation<cpu::Decode<DType::fp16, DType::e4m3, DType::fp16>>(
        "cpu_decode_qfp16_kve4m3_ofp16_direct_split", MLA_OP_DECODE),
    operation<cpu::Decode<DType::fp16, DType::fp8_ds_mla, DType::fp16>>(
        "cpu_decode_qfp16_kvfp8_ds_mla_ofp16_direct_split", MLA_OP_DECODE),
    operation<cpu::Decode<DType::bf16, DType::bf16, DType::bf16>>(
        "cpu_decode_qbf16_kvbf16_obf16_direct_split", MLA_OP_DECODE),
    operation<cpu::Decode<DType::bf16, DType::e4m3, DType::bf16>>(
        "cpu_decode_qbf16_kve4m3_obf16_direct_split", MLA_OP_DECODE),
    operation<cpu::Decode<DType::bf16, DType::fp8_ds_mla, DType::bf16>>(
        "cpu_decode_qbf16_kvfp8_ds_mla_obf16_direct_split", MLA_OP_DECODE),
    operation<cpu::SparseDecode<DType::fp32, DType::fp32, DType::fp32>>(
        "cpu_sparse_decode_qfp32_kvfp32_ofp32_direct_split", MLA_OP_SPARSE_DECODE),
    operation<cpu::SparseDecode<DType::fp32, DType::e4m3, DType::fp32>>(
        "cpu_sparse_decode_qfp32_kve4m3_ofp32_direct_split", MLA_OP_SPARSE_DECODE),
    operation<cpu::SparseDecode<DType::fp32, DType::fp8_ds_mla, DType::fp32>>(
        "cpu_sparse_decode_qfp32_kvfp8_ds_mla_ofp32_direct_split", MLA_OP_SPARSE_DECODE),
    operation<cpu::SparseDecode<DType::fp16, DType::fp16, DType::fp16>>(
        "cpu_sparse_decode_qfp16_kvfp16_ofp16_direct_split", MLA_OP_SPARSE_DECODE),
    operation<cpu::SparseDecode<DType::fp16, DType::e4m3, DType::fp16>>(
        "cpu_sparse_decode_qfp16_kve4m3_ofp16_direct_split", MLA_OP_SPARSE_DECODE),
    operation<cpu::SparseDecode<DType::fp16, DType::fp8_ds_mla, DType::fp16>>(
        "cpu_sparse_decode_qfp16_kvfp8_ds_mla_ofp16_direct_split", MLA_OP_SPARSE_DECODE),
    operation<cpu::SparseDecode<DType::bf16, DType::bf16, DType::bf16>>(
        "cpu_sparse_decode_qbf16_kvbf16_obf16_direct_split", MLA_OP_SPARSE_DECODE),
    operation<cpu::SparseDecode<DType::bf16, DType::e4m3, DType::bf16>>(
        "cpu_sparse_decode_qbf16_kve4m3_obf16_direct_split", MLA_OP_SPARSE_DECODE),
    operation<cpu::SparseDecode<DType::bf16, DType::fp8_ds_mla, DType::bf16>>(
        "cpu_sparse_decode_qbf16_kvfp8_ds_mla_obf16_direct_split", MLA_OP_SPARSE_DECODE),
    operation<cpu::SparsePrefill<DType::fp32, DType::fp32, DType::fp32>>(
        "cpu_sparse_prefill_qfp32_kvfp32_ofp32_direct_rows", MLA_OP_SPARSE_PREFILL),
    operation<cpu::SparsePrefill<DType::fp16, DType::fp16, DType::fp16>>(
        "cpu_sparse_prefill_qfp16_kvfp16_ofp16_direct_rows", MLA_OP_SPARSE_PREFILL),
    operation<cpu::SparsePrefill<DType::bf16, DType::bf16, DType::bf16>>(
        "cpu_sparse_prefill_qbf16_kvbf16_obf16_direct_rows", MLA_OP_SPARSE_PREFILL),
    operation<cpu::MergeStates<DType::fp32, DType::fp32>>(
        "cpu_merge_states_ifp32_ofp32", MLA_OP_MERGE_STATES),
    operation<cpu::MergeStates<DType::fp32, DType::fp16>>(
        "cpu_merge_states_ifp32_ofp16", MLA_OP_MERGE_STATES),
    operation<cpu::MergeStates<DType::fp32, DType::bf16>>(
        "cpu_merge_states_ifp32_obf16", MLA_OP_MERGE_STATES),
    operation<cpu::MergeStates<DType::fp16, DType::fp16>>(
        "cpu_merge_states_ifp16_ofp16", MLA_OP_MERGE_STATES),
    operation<cpu::MergeStates<DType::bf16, DType::bf16>>(
        "cpu_merge_states_ibf16_obf16", MLA_OP_MERGE_STATES),
    operation<cpu::StoreKv<DType::fp32, DType::fp32>>(
        "cpu_store_kv_ifp32_kvfp32", MLA_OP_STORE_KV),
    operation<cpu::StoreKv<DType::fp32, DType::e4m3>>(
        "cpu_store_kv_ifp32_kve4m3", MLA_OP_STORE_KV),
    operation<cpu::StoreKv<DType::fp32, DType::fp8_ds_mla>>(
        "cpu_store_kv_ifp32_kvfp8_ds_mla", MLA_OP_STORE_KV),
    operation<cpu::StoreKv<DType::fp16, DType::fp16>>(
        "cpu_store_kv_ifp16_kvfp16", MLA_OP_STORE_KV),
    operation<cpu::StoreKv<DType::fp16, DType::e4m3>>(
        "cpu_store_kv_ifp16_kve4m3", MLA_OP_STORE_KV),
    operation<cpu::StoreKv<DType::fp16, DType::fp8_ds_mla>>(
        "cpu_store_kv_ifp16_kvfp8_ds_mla", MLA_OP_STORE_KV),
    operation<cpu::StoreKv<DType::bf16, DType::bf16>>(
        "cpu_store_kv_ibf16_kvbf16", MLA_OP_STORE_KV),
    operation<cpu::StoreKv<DType::bf16, DType::e4m3>>(
        "cpu_store_kv_ibf16_kve4m3", MLA_OP_STORE_KV),
    operation<cpu::StoreKv<DType::bf16, DType::fp8_ds_mla>>(
        "cpu_store_kv_ibf16_kvfp8_ds_mla", MLA_OP_STORE_KV),
    operation<cpu::GatherKv<DType::e4m3, DType::fp32>>(
        "cpu_gather_kv_kve4m3_ofp32", MLA_OP_GATHER_KV),
    operation<cpu::GatherKv<DType::e4m3, DType::fp16>>(
        "cpu_gather_kv_kve4m3_ofp16", MLA_OP_GATHER_KV),
    operation<cpu::GatherKv<DType::e4m3, DType::bf16>>(
        "cpu_gather_kv_kve4m3_obf16", MLA_OP_GATHER_KV),
    operation<cpu::GatherKv<DType::fp8_ds_mla, DType::fp32>>(
        "cpu_gather_kv_kvfp8_ds_mla_ofp32", MLA_OP_GATHER_KV),
    operation<cpu::GatherKv<DType::fp8_ds_mla, DType::fp16>>(
        "cpu_gather_kv_kvfp8_ds_mla_ofp16", MLA_OP_GATHER_KV),
    operation<cpu::GatherKv<DType::fp8_ds_mla, DType::bf16>>(
        "cpu_gather_kv_kvfp8_ds_mla_obf16", MLA_OP_GATHER_KV),
    operation<cpu::GatherKv<DType::fp32, DType::fp32>>(
        "cpu_gather_kv_kvfp32_ofp32", MLA_OP_GATHER_KV),
    operation<cpu::GatherKv<DType::fp16, DType::fp16>>(
        "cpu_gather_kv_kvfp16_ofp16", MLA_OP_GATHER_KV),
    operation<cpu::GatherKv<DType::bf16, DType::bf16>>(
        "cpu_gather_kv_kvbf16_obf16", MLA_OP_GATHER_KV),
    operation<cpu::ToGlobalIndices>(
        "cpu_to_global_indices", MLA_OP_TO_GLOBAL_INDICES),
};

}  // namespace

const Operation* operations(int64_t* count) {
  *count = 45;
  return kOperations;
}

}  // namespace mla
