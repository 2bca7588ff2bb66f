#include "launcher/tensors/dtype.h"

namespace mla::launcher {
namespace {

using dlpack::DataType;

constexpr DataType kFloat32{dlpack::kFloat, 32, 1};
constexpr DataType kFloat16{dlpack::kFloat, 16, 1};
constexpr DataType kBfloat16{dlpack::kBfloat, 16, 1};
constexpr DataType kE4m3{dlpack::kFloat8E4m3fn, 8, 1};
constexpr DataType kUInt8{dlpack::kUInt, 8, 1};
constexpr DataType kInt32{dlpack::kInt, 32, 1};
constexpr DataType kInt64{dlpack::kInt, 64, 1};

constexpr ElementType kElementTypes[] = {
    {"fp32", "float32", {kFloat32, kFloat32}, 4},
    {"fp16", "float16", {kFloat16, kFloat16}, 2},
    {"bf16", "bfloat16", {kBfloat16, kBfloat16}, 2},
    {"e4m3", "float8_e4m3fn or uint8", {kE4m3, kUInt8}, 1},
    {"float32", "float32", {kFloat32, kFloat32}, 4},
    {"int32", "int32", {kInt32, kInt32}, 4},
    {"int64", "int64", {kInt64, kInt64}, 8},
};

constexpr ElementType kByteRows = {"bytes", "uint8", {kUInt8, kUInt8}, 1, true};

}  // namespace

const ElementType* element_type(const char* name) {
  for (const ElementType& type : kElementTypes) {
    if (strcmp(type.name, name) == 0) return &type;
  }
  return nullptr;
}

const ElementType* cache_type(const CacheFormat& format) {
  return format.is_bytes ? &kByteRows : element_type(format.name);
}

PyObject* dtype_text(DataType dtype) {
  const char* lanes = dtype.lanes == 1 ? "" : " vectors";
  switch (dtype.code) {
    case dlpack::kInt:
      return PyUnicode_FromFormat("int%d%s", dtype.bits, lanes);
    case dlpack::kUInt:
      return PyUnicode_FromFormat("uint%d%s", dtype.bits, lanes);
    case dlpack::kFloat:
      return PyUnicode_FromFormat("float%d%s", dtype.bits, lanes);
    case dlpack::kBfloat:
      return PyUnicode_FromFormat("bfloat%d%s", dtype.bits, lanes);
    case dlpack::kComplex:
      return PyUnicode_FromFormat("complex%d%s", dtype.bits, lanes);
    case dlpack::kBool:
      return PyUnicode_FromFormat("bool%s", lanes);
    case dlpack::kFloat8E4m3fn:
      return PyUnicode_FromFormat("float8_e4m3fn%s", lanes);
    case dlpack::kFloat8E5m2:
      return PyUnicode_FromFormat("float8_e5m2%s", lanes);
  }
  return PyUnicode_FromFormat("DLPack type %d of %d bits%s", dtype.code, dtype.bits, lanes);
}

}  // namespace mla::launcher
