// The part of DLPack 1.x that the launcher reads: https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <cstdint>

namespace mla::launcher::dlpack {

enum DeviceType : int32_t {
  kCpu = 1,
  kCuda = 2,
  kCudaHost = 3,
  kCudaManaged = 13,
};

struct Device {
  int32_t type;
  int32_t id;
};

enum TypeCode : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4m3fn = 10,
  kFloat8E5m2 = 12,
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

inline bool is_float(DataType dtype) {
  return dtype.code == kFloat || dtype.code == kBfloat || dtype.code >= kFloat8E4m3fn;
}

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; before DLPack 1.2, null says contiguous
  uint64_t byte_offset;
};

// A capsule named "dltensor" holds one of these.
struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

struct Version {
  uint32_t major;
  uint32_t minor;
};

inline constexpr uint32_t kMajor = 1;
inline constexpr uint64_t kReadOnly = 1;

// A capsule named "dltensor_versioned" holds one of these.
struct ManagedTensorVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedTensorVersioned*);
  uint64_t flags;
  Tensor tensor;
};

// A capsule named "dlpack_exchange_api" holds one of these; a type of tensors has it as its
// attribute
// __dlpack_c_exchange_api__. Functions return 0, or -1 with a Python exception set.
struct ExchangeApi {
  Version version;
  const ExchangeApi* previous;  // for an older major version
  void* allocate;
  void* export_managed;
  void* import_managed;
  int (*export_tensor)(void* object, Tensor* out);  // borrows from `object`; may be null
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void** stream);
};

}  // namespace mla::launcher::dlpack
