// Generated from codegen/matrix.
#include "allowed.h"
#include "common/operation.h"
#include "cpu/decode/decode.h"
#include "cpu/gather_kv/gather_kv.h"
#include "cpu/merge_states/merge_states.h"
#include "cpu/sparse_decode/sparse_decode.h"
#include "cpu/sparse_prefill/sparse_prefill.h"
#include "cpu/store_kv/store_kv.h"
#include "cpu/to_global_indices/to_global_indices.h"

extern template struct mla::cpu::Decode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::Decode<mla::DType::fp32, mla::DType::fp8_ds_mla, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::fp8_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::Decode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::Decode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 576, 512, mla::ComputeDType::e4m3>;
extern template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 576, 512, mla::ComputeDType::e4m3>;
extern template struct mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ComputeDType::e4m3>;
extern template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ComputeDType::e4m3>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_mla, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::nvfp4_ds_mla, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::nvfp4_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::nvfp4_ds_mla, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_mla, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_v4, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_v41, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp4_ds_v41, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::mxfp4_ds_v4, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_v4, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_v41, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp4_ds_v41, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::mxfp4_ds_v4, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp4_ds_v41, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::mxfp4_ds_v4, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 320, 256>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_v41, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ExtraKv::fp4_ds_v41>;
extern template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_v41, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ExtraKv::fp4_ds_v41>;
extern template struct mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ExtraKv::fp4_ds_v41>;
extern template struct mla::cpu::SparsePrefill<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::rows>;
extern template struct mla::cpu::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::rows>;
extern template struct mla::cpu::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::rows>;
extern template struct mla::cpu::SparsePrefill<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::rows, 512>;
extern template struct mla::cpu::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::rows, 512>;
extern template struct mla::cpu::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::rows, 512>;
extern template struct mla::cpu::SparsePrefill<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::rows, 320, 256>;
extern template struct mla::cpu::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::rows, 320, 256>;
extern template struct mla::cpu::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::rows, 320, 256>;
extern template struct mla::cpu::MergeStates<mla::DType::fp32, mla::DType::fp32, mla::Schedule::rows>;
extern template struct mla::cpu::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::rows>;
extern template struct mla::cpu::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::rows>;
extern template struct mla::cpu::MergeStates<mla::DType::fp16, mla::DType::fp16, mla::Schedule::rows>;
extern template struct mla::cpu::MergeStates<mla::DType::bf16, mla::DType::bf16, mla::Schedule::rows>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp32>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::e4m3>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp8_ds_mla>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::nvfp4_ds_mla>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp16>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::e4m3>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::nvfp4_ds_mla>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::bf16>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::e4m3>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::nvfp4_ds_mla>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp32, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::e4m3, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp8_ds_mla, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp8_ds_v4, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp8_ds_v41, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp4_ds_v41, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp16, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::e4m3, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v4, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v41, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp4_ds_v41, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::bf16, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::e4m3, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v4, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v41, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp4_ds_v41, 512>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp32, 320, 256>;
extern template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::e4m3, 320, 256>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp16, 320, 256>;
extern template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::e4m3, 320, 256>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::bf16, 320, 256>;
extern template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::e4m3, 320, 256>;
extern template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp32>;
extern template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp16>;
extern template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::bf16>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16>;
extern template struct mla::cpu::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp32>;
extern template struct mla::cpu::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp16>;
extern template struct mla::cpu::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::bf16>;
extern template struct mla::cpu::GatherKv<mla::DType::fp32, mla::DType::fp32>;
extern template struct mla::cpu::GatherKv<mla::DType::fp16, mla::DType::fp16>;
extern template struct mla::cpu::GatherKv<mla::DType::bf16, mla::DType::bf16>;
extern template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp32, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::bf16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp32, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_v4, mla::DType::bf16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp32, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp8_ds_v41, mla::DType::bf16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp32, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp4_ds_v41, mla::DType::bf16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp32, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::bf16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp32, 320, 256>;
extern template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp16, 320, 256>;
extern template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::bf16, 320, 256>;
extern template struct mla::cpu::GatherKv<mla::DType::fp32, mla::DType::fp32, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp16, mla::DType::fp16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::bf16, mla::DType::bf16, 512>;
extern template struct mla::cpu::GatherKv<mla::DType::fp32, mla::DType::fp32, 320, 256>;
extern template struct mla::cpu::GatherKv<mla::DType::fp16, mla::DType::fp16, 320, 256>;
extern template struct mla::cpu::GatherKv<mla::DType::bf16, mla::DType::bf16, 320, 256>;

namespace mla {
namespace {

const Operation kOperations[] = {
    mla::operation<mla::cpu::Decode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>>(
        "cpu_decode_qfp32_kvfp32_ofp32_direct_split", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>>(
        "cpu_decode_qfp32_kve4m3_ofp32_direct_split", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp32, mla::DType::fp8_ds_mla, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>>(
        "cpu_decode_qfp32_kvfp8_ds_mla_ofp32_direct_split", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_decode_qfp16_kvfp16_ofp16_direct_split", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_decode_qfp16_kve4m3_ofp16_direct_split", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp16, mla::DType::fp8_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_decode_qfp16_kvfp8_ds_mla_ofp16_direct_split", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_decode_qbf16_kvbf16_obf16_direct_split", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_decode_qbf16_kve4m3_obf16_direct_split", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_decode_qbf16_kvfp8_ds_mla_obf16_direct_split", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_decode_qfp32_kvfp32_ofp32_direct_split_d512", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_decode_qfp32_kve4m3_ofp32_direct_split_d512", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_decode_qfp16_kvfp16_ofp16_direct_split_d512", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_decode_qfp16_kve4m3_ofp16_direct_split_d512", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_decode_qbf16_kvbf16_obf16_direct_split_d512", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_decode_qbf16_kve4m3_obf16_direct_split_d512", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_decode_qfp32_kvfp32_ofp32_direct_split_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_decode_qfp32_kve4m3_ofp32_direct_split_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_decode_qfp16_kvfp16_ofp16_direct_split_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_decode_qfp16_kve4m3_ofp16_direct_split_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_decode_qbf16_kvbf16_obf16_direct_split_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_decode_qbf16_kve4m3_obf16_direct_split_d320_v256", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 576, 512, mla::ComputeDType::e4m3>>(
        "cpu_decode_qfp32_kve4m3_ofp32_direct_split_mmae4m3", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 576, 512, mla::ComputeDType::e4m3>>(
        "cpu_decode_qbf16_kve4m3_obf16_direct_split_mmae4m3", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ComputeDType::e4m3>>(
        "cpu_decode_qfp32_kve4m3_ofp32_direct_split_d512_mmae4m3", MLA_OP_DECODE),
    mla::operation<mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ComputeDType::e4m3>>(
        "cpu_decode_qbf16_kve4m3_obf16_direct_split_d512_mmae4m3", MLA_OP_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qfp32_kvfp32_ofp32_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qfp32_kve4m3_ofp32_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_mla, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qfp32_kvfp8_ds_mla_ofp32_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::nvfp4_ds_mla, mla::DType::fp32, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qfp32_kvnvfp4_ds_mla_ofp32_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qfp16_kvfp16_ofp16_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qfp16_kve4m3_ofp16_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qfp16_kvfp8_ds_mla_ofp16_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::nvfp4_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qfp16_kvnvfp4_ds_mla_ofp16_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qbf16_kvbf16_obf16_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qbf16_kve4m3_obf16_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qbf16_kvfp8_ds_mla_obf16_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::nvfp4_ds_mla, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>>(
        "cpu_sparse_decode_qbf16_kvnvfp4_ds_mla_obf16_direct_split", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp32_kvfp32_ofp32_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp32_kve4m3_ofp32_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_mla, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp32_kvfp8_ds_mla_ofp32_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_v4, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp32_kvfp8_ds_v4_ofp32_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_v41, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp32_kvfp8_ds_v41_ofp32_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp4_ds_v41, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp32_kvfp4_ds_v41_ofp32_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::mxfp4_ds_v4, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp32_kvmxfp4_ds_v4_ofp32_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp16_kvfp16_ofp16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp16_kve4m3_ofp16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp16_kvfp8_ds_mla_ofp16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_v4, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp16_kvfp8_ds_v4_ofp16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_v41, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp16_kvfp8_ds_v41_ofp16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp4_ds_v41, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp16_kvfp4_ds_v41_ofp16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::mxfp4_ds_v4, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qfp16_kvmxfp4_ds_v4_ofp16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qbf16_kvbf16_obf16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qbf16_kve4m3_obf16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qbf16_kvfp8_ds_mla_obf16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qbf16_kvfp8_ds_v4_obf16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qbf16_kvfp8_ds_v41_obf16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp4_ds_v41, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qbf16_kvfp4_ds_v41_obf16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::mxfp4_ds_v4, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512>>(
        "cpu_sparse_decode_qbf16_kvmxfp4_ds_v4_obf16_direct_split_d512", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_sparse_decode_qfp32_kvfp32_ofp32_direct_split_d320_v256", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_sparse_decode_qfp32_kve4m3_ofp32_direct_split_d320_v256", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_sparse_decode_qfp16_kvfp16_ofp16_direct_split_d320_v256", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_sparse_decode_qfp16_kve4m3_ofp16_direct_split_d320_v256", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_sparse_decode_qbf16_kvbf16_obf16_direct_split_d320_v256", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 320, 256>>(
        "cpu_sparse_decode_qbf16_kve4m3_obf16_direct_split_d320_v256", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_v41, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ExtraKv::fp4_ds_v41>>(
        "cpu_sparse_decode_qfp32_kvfp8_ds_v41_ofp32_direct_split_d512_extrafp4_ds_v41", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_v41, mla::DType::fp16, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ExtraKv::fp4_ds_v41>>(
        "cpu_sparse_decode_qfp16_kvfp8_ds_v41_ofp16_direct_split_d512_extrafp4_ds_v41", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ExtraKv::fp4_ds_v41>>(
        "cpu_sparse_decode_qbf16_kvfp8_ds_v41_obf16_direct_split_d512_extrafp4_ds_v41", MLA_OP_SPARSE_DECODE),
    mla::operation<mla::cpu::SparsePrefill<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::rows>>(
        "cpu_sparse_prefill_qfp32_kvfp32_ofp32_direct_rows", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::cpu::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::rows>>(
        "cpu_sparse_prefill_qfp16_kvfp16_ofp16_direct_rows", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::cpu::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::rows>>(
        "cpu_sparse_prefill_qbf16_kvbf16_obf16_direct_rows", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::cpu::SparsePrefill<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::rows, 512>>(
        "cpu_sparse_prefill_qfp32_kvfp32_ofp32_direct_rows_d512", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::cpu::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::rows, 512>>(
        "cpu_sparse_prefill_qfp16_kvfp16_ofp16_direct_rows_d512", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::cpu::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::rows, 512>>(
        "cpu_sparse_prefill_qbf16_kvbf16_obf16_direct_rows_d512", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::cpu::SparsePrefill<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::rows, 320, 256>>(
        "cpu_sparse_prefill_qfp32_kvfp32_ofp32_direct_rows_d320_v256", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::cpu::SparsePrefill<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::rows, 320, 256>>(
        "cpu_sparse_prefill_qfp16_kvfp16_ofp16_direct_rows_d320_v256", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::cpu::SparsePrefill<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::rows, 320, 256>>(
        "cpu_sparse_prefill_qbf16_kvbf16_obf16_direct_rows_d320_v256", MLA_OP_SPARSE_PREFILL),
    mla::operation<mla::cpu::MergeStates<mla::DType::fp32, mla::DType::fp32, mla::Schedule::rows>>(
        "cpu_merge_states_ifp32_ofp32_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cpu::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::rows>>(
        "cpu_merge_states_ifp32_ofp16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cpu::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::rows>>(
        "cpu_merge_states_ifp32_obf16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cpu::MergeStates<mla::DType::fp16, mla::DType::fp16, mla::Schedule::rows>>(
        "cpu_merge_states_ifp16_ofp16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cpu::MergeStates<mla::DType::bf16, mla::DType::bf16, mla::Schedule::rows>>(
        "cpu_merge_states_ibf16_obf16_rows", MLA_OP_MERGE_STATES),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp32>>(
        "cpu_store_kv_ifp32_kvfp32", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::e4m3>>(
        "cpu_store_kv_ifp32_kve4m3", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp8_ds_mla>>(
        "cpu_store_kv_ifp32_kvfp8_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::nvfp4_ds_mla>>(
        "cpu_store_kv_ifp32_kvnvfp4_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp16>>(
        "cpu_store_kv_ifp16_kvfp16", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::e4m3>>(
        "cpu_store_kv_ifp16_kve4m3", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla>>(
        "cpu_store_kv_ifp16_kvfp8_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::nvfp4_ds_mla>>(
        "cpu_store_kv_ifp16_kvnvfp4_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::bf16>>(
        "cpu_store_kv_ibf16_kvbf16", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::e4m3>>(
        "cpu_store_kv_ibf16_kve4m3", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla>>(
        "cpu_store_kv_ibf16_kvfp8_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::nvfp4_ds_mla>>(
        "cpu_store_kv_ibf16_kvnvfp4_ds_mla", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp32, 512>>(
        "cpu_store_kv_ifp32_kvfp32_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::e4m3, 512>>(
        "cpu_store_kv_ifp32_kve4m3_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp8_ds_mla, 512>>(
        "cpu_store_kv_ifp32_kvfp8_ds_mla_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp8_ds_v4, 512>>(
        "cpu_store_kv_ifp32_kvfp8_ds_v4_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp8_ds_v41, 512>>(
        "cpu_store_kv_ifp32_kvfp8_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp4_ds_v41, 512>>(
        "cpu_store_kv_ifp32_kvfp4_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp16, 512>>(
        "cpu_store_kv_ifp16_kvfp16_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::e4m3, 512>>(
        "cpu_store_kv_ifp16_kve4m3_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla, 512>>(
        "cpu_store_kv_ifp16_kvfp8_ds_mla_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v4, 512>>(
        "cpu_store_kv_ifp16_kvfp8_ds_v4_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v41, 512>>(
        "cpu_store_kv_ifp16_kvfp8_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp4_ds_v41, 512>>(
        "cpu_store_kv_ifp16_kvfp4_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::bf16, 512>>(
        "cpu_store_kv_ibf16_kvbf16_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::e4m3, 512>>(
        "cpu_store_kv_ibf16_kve4m3_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla, 512>>(
        "cpu_store_kv_ibf16_kvfp8_ds_mla_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v4, 512>>(
        "cpu_store_kv_ibf16_kvfp8_ds_v4_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v41, 512>>(
        "cpu_store_kv_ibf16_kvfp8_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp4_ds_v41, 512>>(
        "cpu_store_kv_ibf16_kvfp4_ds_v41_d512", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp32, 320, 256>>(
        "cpu_store_kv_ifp32_kvfp32_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp32, mla::DType::e4m3, 320, 256>>(
        "cpu_store_kv_ifp32_kve4m3_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp16, 320, 256>>(
        "cpu_store_kv_ifp16_kvfp16_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::fp16, mla::DType::e4m3, 320, 256>>(
        "cpu_store_kv_ifp16_kve4m3_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::bf16, 320, 256>>(
        "cpu_store_kv_ibf16_kvbf16_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::StoreKv<mla::DType::bf16, mla::DType::e4m3, 320, 256>>(
        "cpu_store_kv_ibf16_kve4m3_d320_v256", MLA_OP_STORE_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp32>>(
        "cpu_gather_kv_kve4m3_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp16>>(
        "cpu_gather_kv_kve4m3_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::bf16>>(
        "cpu_gather_kv_kve4m3_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32>>(
        "cpu_gather_kv_kvfp8_ds_mla_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16>>(
        "cpu_gather_kv_kvfp8_ds_mla_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16>>(
        "cpu_gather_kv_kvfp8_ds_mla_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp32>>(
        "cpu_gather_kv_kvnvfp4_ds_mla_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp16>>(
        "cpu_gather_kv_kvnvfp4_ds_mla_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::bf16>>(
        "cpu_gather_kv_kvnvfp4_ds_mla_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp32, mla::DType::fp32>>(
        "cpu_gather_kv_kvfp32_ofp32", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp16, mla::DType::fp16>>(
        "cpu_gather_kv_kvfp16_ofp16", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::bf16, mla::DType::bf16>>(
        "cpu_gather_kv_kvbf16_obf16", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp32, 512>>(
        "cpu_gather_kv_kve4m3_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp16, 512>>(
        "cpu_gather_kv_kve4m3_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::bf16, 512>>(
        "cpu_gather_kv_kve4m3_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32, 512>>(
        "cpu_gather_kv_kvfp8_ds_mla_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16, 512>>(
        "cpu_gather_kv_kvfp8_ds_mla_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16, 512>>(
        "cpu_gather_kv_kvfp8_ds_mla_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp32, 512>>(
        "cpu_gather_kv_kvfp8_ds_v4_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp16, 512>>(
        "cpu_gather_kv_kvfp8_ds_v4_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_v4, mla::DType::bf16, 512>>(
        "cpu_gather_kv_kvfp8_ds_v4_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp32, 512>>(
        "cpu_gather_kv_kvfp8_ds_v41_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp16, 512>>(
        "cpu_gather_kv_kvfp8_ds_v41_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp8_ds_v41, mla::DType::bf16, 512>>(
        "cpu_gather_kv_kvfp8_ds_v41_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp32, 512>>(
        "cpu_gather_kv_kvfp4_ds_v41_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp16, 512>>(
        "cpu_gather_kv_kvfp4_ds_v41_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp4_ds_v41, mla::DType::bf16, 512>>(
        "cpu_gather_kv_kvfp4_ds_v41_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp32, 512>>(
        "cpu_gather_kv_kvmxfp4_ds_v4_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp16, 512>>(
        "cpu_gather_kv_kvmxfp4_ds_v4_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::bf16, 512>>(
        "cpu_gather_kv_kvmxfp4_ds_v4_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp32, 320, 256>>(
        "cpu_gather_kv_kve4m3_ofp32_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp16, 320, 256>>(
        "cpu_gather_kv_kve4m3_ofp16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::bf16, 320, 256>>(
        "cpu_gather_kv_kve4m3_obf16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp32, mla::DType::fp32, 512>>(
        "cpu_gather_kv_kvfp32_ofp32_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp16, mla::DType::fp16, 512>>(
        "cpu_gather_kv_kvfp16_ofp16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::bf16, mla::DType::bf16, 512>>(
        "cpu_gather_kv_kvbf16_obf16_d512", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp32, mla::DType::fp32, 320, 256>>(
        "cpu_gather_kv_kvfp32_ofp32_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::fp16, mla::DType::fp16, 320, 256>>(
        "cpu_gather_kv_kvfp16_ofp16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::GatherKv<mla::DType::bf16, mla::DType::bf16, 320, 256>>(
        "cpu_gather_kv_kvbf16_obf16_d320_v256", MLA_OP_GATHER_KV),
    mla::operation<mla::cpu::ToGlobalIndices>(
        "cpu_to_global_indices", MLA_OP_TO_GLOBAL_INDICES),
};

}  // namespace

const Operation* operations(int64_t* count) {
  *count = 157;
  return kOperations;
}

}  // namespace mla
