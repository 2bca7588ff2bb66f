# Generated from codegen/matrix.
set(MLA_PAYLOAD_DEVICE "cpu")
set(MLA_PAYLOAD_ARCH "cpu")
set(MLA_PAYLOAD_FOLDER "mla_kernels/payloads/cpu")
set(MLA_PAYLOAD_UNITS
  cpu/decode_qbf16_direct_split.cpp
  cpu/decode_qbf16_direct_split_d320_v256.cpp
  cpu/decode_qbf16_direct_split_d512.cpp
  cpu/decode_qbf16_direct_split_d512_mmae4m3.cpp
  cpu/decode_qbf16_direct_split_mmae4m3.cpp
  cpu/decode_qfp16_direct_split.cpp
  cpu/decode_qfp16_direct_split_d320_v256.cpp
  cpu/decode_qfp16_direct_split_d512.cpp
  cpu/decode_qfp32_direct_split.cpp
  cpu/decode_qfp32_direct_split_d320_v256.cpp
  cpu/decode_qfp32_direct_split_d512.cpp
  cpu/decode_qfp32_direct_split_d512_mmae4m3.cpp
  cpu/decode_qfp32_direct_split_mmae4m3.cpp
  cpu/gather_kv.cpp
  cpu/gather_kv_d320_v256.cpp
  cpu/gather_kv_d512.cpp
  cpu/merge_states_rows.cpp
  cpu/registry.cpp
  cpu/sparse_decode_qbf16_direct_split.cpp
  cpu/sparse_decode_qbf16_direct_split_d320_v256.cpp
  cpu/sparse_decode_qbf16_direct_split_d512.cpp
  cpu/sparse_decode_qbf16_direct_split_d512_extrafp4_ds_v41.cpp
  cpu/sparse_decode_qfp16_direct_split.cpp
  cpu/sparse_decode_qfp16_direct_split_d320_v256.cpp
  cpu/sparse_decode_qfp16_direct_split_d512.cpp
  cpu/sparse_decode_qfp16_direct_split_d512_extrafp4_ds_v41.cpp
  cpu/sparse_decode_qfp32_direct_split.cpp
  cpu/sparse_decode_qfp32_direct_split_d320_v256.cpp
  cpu/sparse_decode_qfp32_direct_split_d512.cpp
  cpu/sparse_decode_qfp32_direct_split_d512_extrafp4_ds_v41.cpp
  cpu/sparse_prefill_qbf16_direct_rows.cpp
  cpu/sparse_prefill_qbf16_direct_rows_d320_v256.cpp
  cpu/sparse_prefill_qbf16_direct_rows_d512.cpp
  cpu/sparse_prefill_qfp16_direct_rows.cpp
  cpu/sparse_prefill_qfp16_direct_rows_d320_v256.cpp
  cpu/sparse_prefill_qfp16_direct_rows_d512.cpp
  cpu/sparse_prefill_qfp32_direct_rows.cpp
  cpu/sparse_prefill_qfp32_direct_rows_d320_v256.cpp
  cpu/sparse_prefill_qfp32_direct_rows_d512.cpp
  cpu/store_kv.cpp
  cpu/store_kv_d320_v256.cpp
  cpu/store_kv_d512.cpp
)
