# Generated from codegen/matrix/cpu.toml.
set(MLA_CPU_GENERATED
  cpu/decode_qbf16.cpp
  cpu/decode_qfp16.cpp
  cpu/decode_qfp32.cpp
  cpu/gather_kv.cpp
  cpu/merge_states.cpp
  cpu/registry.cpp
  cpu/sparse_decode_qbf16.cpp
  cpu/sparse_decode_qfp16.cpp
  cpu/sparse_decode_qfp32.cpp
  cpu/sparse_prefill_qbf16.cpp
  cpu/sparse_prefill_qfp16.cpp
  cpu/sparse_prefill_qfp32.cpp
  cpu/store_kv.cpp
)
