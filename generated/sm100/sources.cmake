# Generated from codegen/matrix.
set(MLA_PAYLOAD_DEVICE "cuda")
set(MLA_PAYLOAD_ARCH "100f")
set(MLA_PAYLOAD_FOLDER "mla_kernels_sm100")
set(MLA_PAYLOAD_UNITS
  sm100/decode_qbf16_cpasync_individual.cu
  sm100/decode_qbf16_cpasync_individual_v256.cu
  sm100/decode_qbf16_cpasync_persistent.cu
  sm100/decode_qbf16_tma_individual.cu
  sm100/decode_qbf16_tma_individual_v256.cu
  sm100/decode_qbf16_tma_persistent.cu
  sm100/decode_qe4m3_cpasync_individual.cu
  sm100/decode_qe4m3_cpasync_persistent.cu
  sm100/decode_qe4m3_tma_individual.cu
  sm100/decode_qe4m3_tma_persistent.cu
  sm100/decode_qfp16_cpasync_individual.cu
  sm100/decode_qfp16_cpasync_individual_v256.cu
  sm100/decode_qfp16_cpasync_persistent.cu
  sm100/decode_qfp16_tma_individual.cu
  sm100/decode_qfp16_tma_individual_v256.cu
  sm100/decode_qfp16_tma_persistent.cu
  sm100/gather_kv.cu
  sm100/gather_kv_d320_v256.cu
  sm100/gather_kv_d512.cu
  sm100/merge_states_reduction.cu
  sm100/merge_states_rows.cu
  sm100/registry.cpp
  sm100/sparse_decode_qbf16_cpasync_individual.cu
  sm100/sparse_decode_qbf16_cpasync_individual_d512.cu
  sm100/sparse_decode_qbf16_gather_individual.cu
  sm100/sparse_decode_qbf16_gather_individual_d512.cu
  sm100/sparse_decode_qbf16_gather_individual_d512_extrafp4_ds_v41.cu
  sm100/sparse_decode_qe4m3_cpasync_individual.cu
  sm100/sparse_decode_qe4m3_cpasync_individual_d512.cu
  sm100/sparse_decode_qfp16_cpasync_individual.cu
  sm100/sparse_decode_qfp16_cpasync_individual_d512.cu
  sm100/store_kv.cu
  sm100/store_kv_d320_v256.cu
  sm100/store_kv_d512.cu
)
