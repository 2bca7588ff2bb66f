// Generated from codegen/matrix.
#include "allowed.h"
#include "common/operation.h"
#include "cuda/gather_kv/gather_kv.h"
#include "cuda/merge_states/merge_states.h"
#include "cuda/store_kv/store_kv.h"
#include "cuda/to_global_indices/to_global_indices.h"
#include "sm100/decode/decode.h"
#include "sm100/merge_states/merge_states.h"
#include "sm100/sparse_decode/sparse_decode.h"

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
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual, 512>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual, 512>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual, 512>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual, 512>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual, 320, 256>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual, 320, 256>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent, 512>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent, 512>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent, 512>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent, 512>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 512>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 512>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 320, 256>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 320, 256>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent, 512>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent, 512>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent, 512>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual>;
extern template struct mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual>;
extern template struct mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::nvfp4_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual>;
extern template struct mla::sm100::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp4_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::mxfp4_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
extern template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512, mla::ExtraKv::fp4_ds_v41>;
extern template struct mla::sm100::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::reduction>;
extern template struct mla::sm100::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::reduction>;

namespace mla {
namespace {

const Operation kOperations[] = {
    mla::operation<mla::cuda::MergeStates<mla::DType::fp32, mla::DType::fp32, mla::Schedule::rows>>(
        "sm100f_merge_states_ifp32_ofp32_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::rows>>(
        "sm100f_merge_states_ifp32_ofp16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::rows>>(
        "sm100f_merge_states_ifp32_obf16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::MergeStates<mla::DType::fp16, mla::DType::fp16, mla::Schedule::rows>>(
        "sm100f_merge_states_ifp16_ofp16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::MergeStates<mla::DType::bf16, mla::DType::bf16, mla::Schedule::rows>>(
        "sm100f_merge_states_ibf16_obf16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16>>(
        "sm100f_store_kv_ifp16_kvfp16", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3>>(
        "sm100f_store_kv_ifp16_kve4m3", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla>>(
        "sm100f_store_kv_ifp16_kvfp8_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::nvfp4_ds_mla>>(
        "sm100f_store_kv_ifp16_kvnvfp4_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16>>(
        "sm100f_store_kv_ibf16_kvbf16", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3>>(
        "sm100f_store_kv_ibf16_kve4m3", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla>>(
        "sm100f_store_kv_ibf16_kvfp8_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::nvfp4_ds_mla>>(
        "sm100f_store_kv_ibf16_kvnvfp4_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16, 512>>(
        "sm100f_store_kv_ifp16_kvfp16_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3, 512>>(
        "sm100f_store_kv_ifp16_kve4m3_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla, 512>>(
        "sm100f_store_kv_ifp16_kvfp8_ds_mla_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v4, 512>>(
        "sm100f_store_kv_ifp16_kvfp8_ds_v4_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v41, 512>>(
        "sm100f_store_kv_ifp16_kvfp8_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp4_ds_v41, 512>>(
        "sm100f_store_kv_ifp16_kvfp4_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16, 512>>(
        "sm100f_store_kv_ibf16_kvbf16_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3, 512>>(
        "sm100f_store_kv_ibf16_kve4m3_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla, 512>>(
        "sm100f_store_kv_ibf16_kvfp8_ds_mla_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v4, 512>>(
        "sm100f_store_kv_ibf16_kvfp8_ds_v4_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v41, 512>>(
        "sm100f_store_kv_ibf16_kvfp8_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp4_ds_v41, 512>>(
        "sm100f_store_kv_ibf16_kvfp4_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16, 320, 256>>(
        "sm100f_store_kv_ifp16_kvfp16_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3, 320, 256>>(
        "sm100f_store_kv_ifp16_kve4m3_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16, 320, 256>>(
        "sm100f_store_kv_ibf16_kvbf16_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3, 320, 256>>(
        "sm100f_store_kv_ibf16_kve4m3_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32>>(
        "sm100f_gather_kv_kve4m3_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16>>(
        "sm100f_gather_kv_kve4m3_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16>>(
        "sm100f_gather_kv_kve4m3_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32>>(
        "sm100f_gather_kv_kvfp8_ds_mla_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16>>(
        "sm100f_gather_kv_kvfp8_ds_mla_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16>>(
        "sm100f_gather_kv_kvfp8_ds_mla_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp32>>(
        "sm100f_gather_kv_kvnvfp4_ds_mla_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp16>>(
        "sm100f_gather_kv_kvnvfp4_ds_mla_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::bf16>>(
        "sm100f_gather_kv_kvnvfp4_ds_mla_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16>>(
        "sm100f_gather_kv_kvfp16_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16>>(
        "sm100f_gather_kv_kvbf16_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32, 512>>(
        "sm100f_gather_kv_kve4m3_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16, 512>>(
        "sm100f_gather_kv_kve4m3_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16, 512>>(
        "sm100f_gather_kv_kve4m3_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32, 512>>(
        "sm100f_gather_kv_kvfp8_ds_mla_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16, 512>>(
        "sm100f_gather_kv_kvfp8_ds_mla_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16, 512>>(
        "sm100f_gather_kv_kvfp8_ds_mla_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp32, 512>>(
        "sm100f_gather_kv_kvfp8_ds_v4_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp16, 512>>(
        "sm100f_gather_kv_kvfp8_ds_v4_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::bf16, 512>>(
        "sm100f_gather_kv_kvfp8_ds_v4_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp32, 512>>(
        "sm100f_gather_kv_kvfp8_ds_v41_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp16, 512>>(
        "sm100f_gather_kv_kvfp8_ds_v41_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::bf16, 512>>(
        "sm100f_gather_kv_kvfp8_ds_v41_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp32, 512>>(
        "sm100f_gather_kv_kvfp4_ds_v41_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp16, 512>>(
        "sm100f_gather_kv_kvfp4_ds_v41_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::bf16, 512>>(
        "sm100f_gather_kv_kvfp4_ds_v41_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp32, 512>>(
        "sm100f_gather_kv_kvmxfp4_ds_v4_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp16, 512>>(
        "sm100f_gather_kv_kvmxfp4_ds_v4_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::bf16, 512>>(
        "sm100f_gather_kv_kvmxfp4_ds_v4_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16, 512>>(
        "sm100f_gather_kv_kvfp16_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16, 512>>(
        "sm100f_gather_kv_kvbf16_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32, 320, 256>>(
        "sm100f_gather_kv_kve4m3_ofp32_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16, 320, 256>>(
        "sm100f_gather_kv_kve4m3_ofp16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16, 320, 256>>(
        "sm100f_gather_kv_kve4m3_obf16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16, 320, 256>>(
        "sm100f_gather_kv_kvfp16_ofp16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16, 320, 256>>(
        "sm100f_gather_kv_kvbf16_obf16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cuda::ToGlobalIndices>(
        "sm100f_to_global_indices", MLA_OP_TO_GLOBAL_INDICES),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_tma_individual", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual>>(
        "sm100f_decode_qbf16_kvbf16_obf16_tma_individual", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual>>(
        "sm100f_decode_qe4m3_kve4m3_ofp16_tma_individual", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual>>(
        "sm100f_decode_qe4m3_kve4m3_obf16_tma_individual", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual, 512>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_tma_individual_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual, 512>>(
        "sm100f_decode_qbf16_kvbf16_obf16_tma_individual_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual, 512>>(
        "sm100f_decode_qe4m3_kve4m3_ofp16_tma_individual_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual, 512>>(
        "sm100f_decode_qe4m3_kve4m3_obf16_tma_individual_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual, 320, 256>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_tma_individual_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual, 320, 256>>(
        "sm100f_decode_qbf16_kvbf16_obf16_tma_individual_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_tma_persistent", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent>>(
        "sm100f_decode_qbf16_kvbf16_obf16_tma_persistent", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent>>(
        "sm100f_decode_qe4m3_kve4m3_ofp16_tma_persistent", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent>>(
        "sm100f_decode_qe4m3_kve4m3_obf16_tma_persistent", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent, 512>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_tma_persistent_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent, 512>>(
        "sm100f_decode_qbf16_kvbf16_obf16_tma_persistent_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent, 512>>(
        "sm100f_decode_qe4m3_kve4m3_ofp16_tma_persistent_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent, 512>>(
        "sm100f_decode_qe4m3_kve4m3_obf16_tma_persistent_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_cpasync_individual", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual>>(
        "sm100f_decode_qbf16_kvbf16_obf16_cpasync_individual", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual>>(
        "sm100f_decode_qe4m3_kve4m3_ofp16_cpasync_individual", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual>>(
        "sm100f_decode_qe4m3_kve4m3_obf16_cpasync_individual", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_cpasync_individual_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 512>>(
        "sm100f_decode_qbf16_kvbf16_obf16_cpasync_individual_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>>(
        "sm100f_decode_qe4m3_kve4m3_ofp16_cpasync_individual_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 512>>(
        "sm100f_decode_qe4m3_kve4m3_obf16_cpasync_individual_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 320, 256>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_cpasync_individual_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 320, 256>>(
        "sm100f_decode_qbf16_kvbf16_obf16_cpasync_individual_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_cpasync_persistent", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent>>(
        "sm100f_decode_qbf16_kvbf16_obf16_cpasync_persistent", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent>>(
        "sm100f_decode_qe4m3_kve4m3_ofp16_cpasync_persistent", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent>>(
        "sm100f_decode_qe4m3_kve4m3_obf16_cpasync_persistent", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent, 512>>(
        "sm100f_decode_qfp16_kvfp16_ofp16_cpasync_persistent_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent, 512>>(
        "sm100f_decode_qbf16_kvbf16_obf16_cpasync_persistent_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent, 512>>(
        "sm100f_decode_qe4m3_kve4m3_ofp16_cpasync_persistent_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent, 512>>(
        "sm100f_decode_qe4m3_kve4m3_obf16_cpasync_persistent_d512", MLA_OP_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual>>(
        "sm100f_sparse_decode_qfp16_kvfp16_ofp16_cpasync_individual", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual>>(
        "sm100f_sparse_decode_qbf16_kvbf16_obf16_cpasync_individual", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual>>(
        "sm100f_sparse_decode_qe4m3_kve4m3_ofp16_cpasync_individual", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual>>(
        "sm100f_sparse_decode_qe4m3_kve4m3_obf16_cpasync_individual", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual>>(
        "sm100f_sparse_decode_qbf16_kvfp8_ds_mla_obf16_gather_individual", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::nvfp4_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual>>(
        "sm100f_sparse_decode_qbf16_kvnvfp4_ds_mla_obf16_gather_individual", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>>(
        "sm100f_sparse_decode_qfp16_kvfp16_ofp16_cpasync_individual_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 512>>(
        "sm100f_sparse_decode_qbf16_kvbf16_obf16_cpasync_individual_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>>(
        "sm100f_sparse_decode_qe4m3_kve4m3_ofp16_cpasync_individual_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 512>>(
        "sm100f_sparse_decode_qe4m3_kve4m3_obf16_cpasync_individual_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>>(
        "sm100f_sparse_decode_qbf16_kvfp8_ds_mla_obf16_gather_individual_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>>(
        "sm100f_sparse_decode_qbf16_kvfp8_ds_v4_obf16_gather_individual_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>>(
        "sm100f_sparse_decode_qbf16_kvfp8_ds_v41_obf16_gather_individual_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp4_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>>(
        "sm100f_sparse_decode_qbf16_kvfp4_ds_v41_obf16_gather_individual_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::mxfp4_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>>(
        "sm100f_sparse_decode_qbf16_kvmxfp4_ds_v4_obf16_gather_individual_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512, mla::ExtraKv::fp4_ds_v41>>(
        "sm100f_sparse_decode_qbf16_kvfp8_ds_v41_obf16_gather_individual_d512_extrafp4_ds_v41", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::sm100::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::reduction>>(
        "sm100f_merge_states_ifp32_ofp16_reduction", MLA_OP_MERGE_STATES),
    mla::operation<mla::sm100::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::reduction>>(
        "sm100f_merge_states_ifp32_obf16_reduction", MLA_OP_MERGE_STATES),
};

}  // namespace

const Operation* operations(int64_t* count) {
  *count = 120;
  return kOperations;
}

}  // namespace mla
