// Generated from codegen/matrix.
#include "allowed.h"
#include "common/operation.h"
#include "cuda/gather_kv/gather_kv.h"
#include "cuda/merge_states/merge_states.h"
#include "cuda/store_kv/store_kv.h"
#include "cuda/to_global_indices/to_global_indices.h"
#include "sm90/decode/decode.h"
#include "sm90/sparse_decode/sparse_decode.h"
#include "sm90/sparse_prefill/sparse_prefill.h"

extern template struct mla::cuda::MergeStates<mla::DType::fp32, mla::DType::fp32, mla::Schedule::rows>;
extern template struct mla::cuda::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::rows>;
extern template struct mla::cuda::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::rows>;
extern template struct mla::cuda::MergeStates<mla::DType::fp16, mla::DType::fp16, mla::Schedule::rows>;
extern template struct mla::cuda::MergeStates<mla::DType::bf16, mla::DType::bf16, mla::Schedule::rows>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::nvfp4_ds_mla>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::nvfp4_ds_mla>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v4, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v41, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp4_ds_v41, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v4, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v41, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp4_ds_v41, 512>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16, 320, 256>;
extern template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3, 320, 256>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16, 320, 256>;
extern template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3, 320, 256>;
extern template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32>;
extern template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16>;
extern template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16>;
extern template struct mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp32>;
extern template struct mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp16>;
extern template struct mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::bf16>;
extern template struct mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16>;
extern template struct mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16>;
extern template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp32, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::bf16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp32, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::bf16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp32, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::bf16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp32, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::bf16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16, 512>;
extern template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32, 320, 256>;
extern template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16, 320, 256>;
extern template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16, 320, 256>;
extern template struct mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16, 320, 256>;
extern template struct mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16, 320, 256>;
extern template struct mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::rows_m64>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64>;
extern template struct mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::rows_m64, 320, 256>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 320, 256>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 320, 256>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 576, 512, mla::ComputeDType::e4m3>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 512, 512, mla::ComputeDType::e4m3>;
extern template struct mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::swap_ab>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::swap_ab>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::swap_ab>;
extern template struct mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>;
extern template struct mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64, 320, 256>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 320, 256>;
extern template struct mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::nvfp4_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>;
extern template struct mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp4_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::mxfp4_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512, mla::ExtraKv::fp4_ds_v41>;
extern template struct mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::swap_ab>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab>;
extern template struct mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::swap_ab, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>;
extern template struct mla::sm90::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64>;
extern template struct mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>;
extern template struct mla::sm90::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
extern template struct mla::sm90::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::swap_ab>;
extern template struct mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab>;
extern template struct mla::sm90::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::swap_ab, 512>;
extern template struct mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>;

namespace mla {
namespace {

const Operation kOperations[] = {
    mla::operation<mla::cuda::MergeStates<mla::DType::fp32, mla::DType::fp32, mla::Schedule::rows>>(
        "sm90a_merge_states_ifp32_ofp32_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::rows>>(
        "sm90a_merge_states_ifp32_ofp16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::rows>>(
        "sm90a_merge_states_ifp32_obf16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::MergeStates<mla::DType::fp16, mla::DType::fp16, mla::Schedule::rows>>(
        "sm90a_merge_states_ifp16_ofp16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::MergeStates<mla::DType::bf16, mla::DType::bf16, mla::Schedule::rows>>(
        "sm90a_merge_states_ibf16_obf16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16>>(
        "sm90a_store_kv_ifp16_kvfp16", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3>>(
        "sm90a_store_kv_ifp16_kve4m3", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla>>(
        "sm90a_store_kv_ifp16_kvfp8_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::nvfp4_ds_mla>>(
        "sm90a_store_kv_ifp16_kvnvfp4_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16>>(
        "sm90a_store_kv_ibf16_kvbf16", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3>>(
        "sm90a_store_kv_ibf16_kve4m3", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla>>(
        "sm90a_store_kv_ibf16_kvfp8_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::nvfp4_ds_mla>>(
        "sm90a_store_kv_ibf16_kvnvfp4_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16, 512>>(
        "sm90a_store_kv_ifp16_kvfp16_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3, 512>>(
        "sm90a_store_kv_ifp16_kve4m3_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla, 512>>(
        "sm90a_store_kv_ifp16_kvfp8_ds_mla_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v4, 512>>(
        "sm90a_store_kv_ifp16_kvfp8_ds_v4_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v41, 512>>(
        "sm90a_store_kv_ifp16_kvfp8_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp4_ds_v41, 512>>(
        "sm90a_store_kv_ifp16_kvfp4_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16, 512>>(
        "sm90a_store_kv_ibf16_kvbf16_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3, 512>>(
        "sm90a_store_kv_ibf16_kve4m3_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla, 512>>(
        "sm90a_store_kv_ibf16_kvfp8_ds_mla_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v4, 512>>(
        "sm90a_store_kv_ibf16_kvfp8_ds_v4_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v41, 512>>(
        "sm90a_store_kv_ibf16_kvfp8_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp4_ds_v41, 512>>(
        "sm90a_store_kv_ibf16_kvfp4_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16, 320, 256>>(
        "sm90a_store_kv_ifp16_kvfp16_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3, 320, 256>>(
        "sm90a_store_kv_ifp16_kve4m3_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16, 320, 256>>(
        "sm90a_store_kv_ibf16_kvbf16_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3, 320, 256>>(
        "sm90a_store_kv_ibf16_kve4m3_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32>>(
        "sm90a_gather_kv_kve4m3_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16>>(
        "sm90a_gather_kv_kve4m3_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16>>(
        "sm90a_gather_kv_kve4m3_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32>>(
        "sm90a_gather_kv_kvfp8_ds_mla_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16>>(
        "sm90a_gather_kv_kvfp8_ds_mla_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16>>(
        "sm90a_gather_kv_kvfp8_ds_mla_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp32>>(
        "sm90a_gather_kv_kvnvfp4_ds_mla_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp16>>(
        "sm90a_gather_kv_kvnvfp4_ds_mla_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::bf16>>(
        "sm90a_gather_kv_kvnvfp4_ds_mla_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16>>(
        "sm90a_gather_kv_kvfp16_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16>>(
        "sm90a_gather_kv_kvbf16_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32, 512>>(
        "sm90a_gather_kv_kve4m3_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16, 512>>(
        "sm90a_gather_kv_kve4m3_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16, 512>>(
        "sm90a_gather_kv_kve4m3_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32, 512>>(
        "sm90a_gather_kv_kvfp8_ds_mla_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16, 512>>(
        "sm90a_gather_kv_kvfp8_ds_mla_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16, 512>>(
        "sm90a_gather_kv_kvfp8_ds_mla_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp32, 512>>(
        "sm90a_gather_kv_kvfp8_ds_v4_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp16, 512>>(
        "sm90a_gather_kv_kvfp8_ds_v4_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::bf16, 512>>(
        "sm90a_gather_kv_kvfp8_ds_v4_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp32, 512>>(
        "sm90a_gather_kv_kvfp8_ds_v41_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp16, 512>>(
        "sm90a_gather_kv_kvfp8_ds_v41_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::bf16, 512>>(
        "sm90a_gather_kv_kvfp8_ds_v41_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp32, 512>>(
        "sm90a_gather_kv_kvfp4_ds_v41_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp16, 512>>(
        "sm90a_gather_kv_kvfp4_ds_v41_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::bf16, 512>>(
        "sm90a_gather_kv_kvfp4_ds_v41_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp32, 512>>(
        "sm90a_gather_kv_kvmxfp4_ds_v4_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp16, 512>>(
        "sm90a_gather_kv_kvmxfp4_ds_v4_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::bf16, 512>>(
        "sm90a_gather_kv_kvmxfp4_ds_v4_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16, 512>>(
        "sm90a_gather_kv_kvfp16_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16, 512>>(
        "sm90a_gather_kv_kvbf16_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32, 320, 256>>(
        "sm90a_gather_kv_kve4m3_ofp32_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16, 320, 256>>(
        "sm90a_gather_kv_kve4m3_ofp16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16, 320, 256>>(
        "sm90a_gather_kv_kve4m3_obf16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16, 320, 256>>(
        "sm90a_gather_kv_kvfp16_ofp16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16, 320, 256>>(
        "sm90a_gather_kv_kvbf16_obf16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::ToGlobalIndices>(
        "sm90a_to_global_indices", MLA_OP_TO_GLOBAL_INDICES),
    mla::operation<mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::rows_m64>>(
        "sm90a_decode_qfp16_kvfp16_ofp16_tma_rows_m64", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64>>(
        "sm90a_decode_qbf16_kvbf16_obf16_tma_rows_m64", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::rows_m64, 512>>(
        "sm90a_decode_qfp16_kvfp16_ofp16_tma_rows_m64_d512", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 512>>(
        "sm90a_decode_qbf16_kvbf16_obf16_tma_rows_m64_d512", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::rows_m64, 320, 256>>(
        "sm90a_decode_qfp16_kvfp16_ofp16_tma_rows_m64_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 320, 256>>(
        "sm90a_decode_qbf16_kvbf16_obf16_tma_rows_m64_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64>>(
        "sm90a_decode_qbf16_kve4m3_obf16_tma_rows_m64", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 512>>(
        "sm90a_decode_qbf16_kve4m3_obf16_tma_rows_m64_d512", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 320, 256>>(
        "sm90a_decode_qbf16_kve4m3_obf16_tma_rows_m64_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 576, 512, mla::ComputeDType::e4m3>>(
        "sm90a_decode_qbf16_kve4m3_obf16_tma_rows_m64_mmae4m3", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 512, 512, mla::ComputeDType::e4m3>>(
        "sm90a_decode_qbf16_kve4m3_obf16_tma_rows_m64_d512_mmae4m3", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::swap_ab>>(
        "sm90a_decode_qfp16_kvfp16_ofp16_tma_swap_ab", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::swap_ab>>(
        "sm90a_decode_qbf16_kvbf16_obf16_tma_swap_ab", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::swap_ab>>(
        "sm90a_decode_qbf16_kve4m3_obf16_tma_swap_ab", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64>>(
        "sm90a_decode_qfp16_kvfp16_ofp16_gather_rows_m64", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>>(
        "sm90a_decode_qbf16_kvbf16_obf16_gather_rows_m64", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_decode_qfp16_kvfp16_ofp16_gather_rows_m64_d512", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_decode_qbf16_kvbf16_obf16_gather_rows_m64_d512", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64, 320, 256>>(
        "sm90a_decode_qfp16_kvfp16_ofp16_gather_rows_m64_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 320, 256>>(
        "sm90a_decode_qbf16_kvbf16_obf16_gather_rows_m64_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64>>(
        "sm90a_sparse_decode_qfp16_kvfp16_ofp16_gather_rows_m64", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>>(
        "sm90a_sparse_decode_qbf16_kvbf16_obf16_gather_rows_m64", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>>(
        "sm90a_sparse_decode_qbf16_kvfp8_ds_mla_obf16_gather_rows_m64", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::nvfp4_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>>(
        "sm90a_sparse_decode_qbf16_kvnvfp4_ds_mla_obf16_gather_rows_m64", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_sparse_decode_qfp16_kvfp16_ofp16_gather_rows_m64_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_sparse_decode_qbf16_kvbf16_obf16_gather_rows_m64_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_sparse_decode_qbf16_kvfp8_ds_mla_obf16_gather_rows_m64_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_sparse_decode_qbf16_kvfp8_ds_v4_obf16_gather_rows_m64_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_sparse_decode_qbf16_kvfp8_ds_v41_obf16_gather_rows_m64_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp4_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_sparse_decode_qbf16_kvfp4_ds_v41_obf16_gather_rows_m64_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::mxfp4_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_sparse_decode_qbf16_kvmxfp4_ds_v4_obf16_gather_rows_m64_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512, mla::ExtraKv::fp4_ds_v41>>(
        "sm90a_sparse_decode_qbf16_kvfp8_ds_v41_obf16_gather_rows_m64_d512_extrafp4_ds_v41", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::swap_ab>>(
        "sm90a_sparse_decode_qfp16_kvfp16_ofp16_gather_swap_ab", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab>>(
        "sm90a_sparse_decode_qbf16_kvbf16_obf16_gather_swap_ab", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab>>(
        "sm90a_sparse_decode_qbf16_kvfp8_ds_mla_obf16_gather_swap_ab", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::swap_ab, 512>>(
        "sm90a_sparse_decode_qfp16_kvfp16_ofp16_gather_swap_ab_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>>(
        "sm90a_sparse_decode_qbf16_kvbf16_obf16_gather_swap_ab_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>>(
        "sm90a_sparse_decode_qbf16_kvfp8_ds_mla_obf16_gather_swap_ab_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>>(
        "sm90a_sparse_decode_qbf16_kvfp8_ds_v4_obf16_gather_swap_ab_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm90::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64>>(
        "sm90a_sparse_prefill_qfp16_kvfp16_ofp16_gather_rows_m64", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>>(
        "sm90a_sparse_prefill_qbf16_kvbf16_obf16_gather_rows_m64", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::sm90::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_sparse_prefill_qfp16_kvfp16_ofp16_gather_rows_m64_d512", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>>(
        "sm90a_sparse_prefill_qbf16_kvbf16_obf16_gather_rows_m64_d512", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::sm90::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::swap_ab>>(
        "sm90a_sparse_prefill_qfp16_kvfp16_ofp16_gather_swap_ab", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab>>(
        "sm90a_sparse_prefill_qbf16_kvbf16_obf16_gather_swap_ab", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::sm90::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::swap_ab, 512>>(
        "sm90a_sparse_prefill_qfp16_kvfp16_ofp16_gather_swap_ab_d512", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::sm90::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>>(
        "sm90a_sparse_prefill_qbf16_kvbf16_obf16_gather_swap_ab_d512", MLA_OP_SPARSE_PREFILL),
};

}  // namespace

const Operation* operations(int64_t* count) {
  *count = 113;
  return kOperations;
}

}  // namespace mla
