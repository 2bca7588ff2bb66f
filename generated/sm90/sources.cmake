# Generated from codegen/matrix.
set(MLA_PAYLOAD_DEVICE "cuda")
set(MLA_PAYLOAD_ARCH "90a")
set(MLA_PAYLOAD_FOLDER "mla_kernels_sm90")
set(MLA_PAYLOAD_UNITS
  sm90/decode_qbf16_gather_rows_m64.cu
  sm90/decode_qbf16_gather_rows_m64_d320_v256.cu
  sm90/decode_qbf16_gather_rows_m64_d512.cu
  sm90/decode_qbf16_tma_rows_m64.cu
  sm90/decode_qbf16_tma_rows_m64_d320_v256.cu
  sm90/decode_qbf16_tma_rows_m64_d512.cu
  sm90/decode_qbf16_tma_rows_m64_d512_mmae4m3.cu
  sm90/decode_qbf16_tma_rows_m64_mmae4m3.cu
  sm90/decode_qbf16_tma_swap_ab.cu
  sm90/decode_qfp16_gather_rows_m64.cu
  sm90/decode_qfp16_gather_rows_m64_d320_v256.cu
  sm90/decode_qfp16_gather_rows_m64_d512.cu
  sm90/decode_qfp16_tma_rows_m64.cu
  sm90/decode_qfp16_tma_rows_m64_d320_v256.cu
  sm90/decode_qfp16_tma_rows_m64_d512.cu
  sm90/decode_qfp16_tma_swap_ab.cu
  sm90/gather_kv.cu
  sm90/gather_kv_d320_v256.cu
  sm90/gather_kv_d512.cu
  sm90/merge_states_rows.cu
  sm90/registry.cpp
  sm90/sparse_decode_qbf16_gather_rows_m64.cu
  sm90/sparse_decode_qbf16_gather_rows_m64_d512.cu
  sm90/sparse_decode_qbf16_gather_rows_m64_d512_extrafp4_ds_v41.cu
  sm90/sparse_decode_qbf16_gather_swap_ab.cu
  sm90/sparse_decode_qbf16_gather_swap_ab_d512.cu
  sm90/sparse_decode_qfp16_gather_rows_m64.cu
  sm90/sparse_decode_qfp16_gather_rows_m64_d512.cu
  sm90/sparse_decode_qfp16_gather_swap_ab.cu
  sm90/sparse_decode_qfp16_gather_swap_ab_d512.cu
  sm90/sparse_prefill_qbf16_gather_rows_m64.cu
  sm90/sparse_prefill_qbf16_gather_rows_m64_d512.cu
  sm90/sparse_prefill_qbf16_gather_swap_ab.cu
  sm90/sparse_prefill_qbf16_gather_swap_ab_d512.cu
  sm90/sparse_prefill_qfp16_gather_rows_m64.cu
  sm90/sparse_prefill_qfp16_gather_rows_m64_d512.cu
  sm90/sparse_prefill_qfp16_gather_swap_ab.cu
  sm90/sparse_prefill_qfp16_gather_swap_ab_d512.cu
  sm90/store_kv.cu
  sm90/store_kv_d320_v256.cu
  sm90/store_kv_d512.cu
)
