// What the generated tables in mla/bindings.h say about each op's arguments.
#pragma once

#include <cstdint>

namespace mla::launcher {

inline constexpr int kMaxOuter = 3;     // outer dimensions of a tensor
inline constexpr int kMaxDims = 12;     // dimensions of an op
inline constexpr int kMaxTensors = 12;  // tensors of an op
inline constexpr int kMaxScalars = 8;   // scalars of an op

// How the innermost, contiguous extent of a tensor is given.
enum class Row : uint8_t {
  none,    // the last outer dimension is innermost
  fixed,   // `extent` elements
  dim,     // the op's dimension number `extent`
  packed,  // latent and rope in one row of the format, or a pair of tensors
  latent,  // the columns of the format's latent
  rope,    // those of its rope part
  value,   // those of its value
};

struct TensorBinding {
  const char* name;
  const char* dtype;        // a trait ("q_dtype") or a fixed type ("int32")
  int32_t outer;            // number of outer dimensions
  int32_t dims[kMaxOuter];  // each an index into the op's dimensions
  bool strided[kMaxOuter];  // whether a stride field exists; without one it is contiguous
  Row row;
  int32_t extent;
  int32_t offset;       // of the (latent) pointer; its stride fields follow it
  int32_t rope_offset;  // of rope's pointer, or -1
  bool optional;
  bool written;
};

enum class Check : uint8_t { finite, positive, flag, count };
enum class Kind : uint8_t { float32, int32, int64 };

struct ScalarBinding {
  const char* name;
  Kind kind;
  Check check;
  int32_t offset;
  double preset;  // the value where a problem given by name leaves the scalar out
};

struct OpBinding {
  const char* name;
  int32_t size;         // of the problem struct
  int32_t dims_offset;  // of the first dimension's int64 field; the others follow it
  int32_t num_dims;
  const char* const* dims;
  int32_t num_tensors;
  const TensorBinding* tensors;
  int32_t num_scalars;
  const ScalarBinding* scalars;
  // The tensor that says which query tokens a request has, or -1. Where it is absent, the
  // dimensions of requests and of the batch are one.
  int32_t bounds;
  int32_t requests;
  int32_t batch;
};

}  // namespace mla::launcher
