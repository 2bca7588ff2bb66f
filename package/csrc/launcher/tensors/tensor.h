// Reads tensors of any framework through DLPack.
#pragma once

#include "launcher/binding.h"
#include "launcher/python/errors.h"
#include "launcher/tensors/dlpack.h"
#include "launcher/tensors/torch_tensor.h"

namespace mla::launcher {

struct View {
  dlpack::Tensor tensor;
  int64_t bytes;  // those of all elements
  bool read_only;
  bool is_torch;

  char* data() const {
    return tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
  }
  bool is_contiguous() const;
  [[gnu::cold]] PyObject* shape_text() const;
};

// Where a call runs, and what its tensors lend it until it returns.
class Call {
 public:
  explicit Call(int32_t device_type) : device_type_(device_type) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  // Takes an integer handle as the stream, or with None the stream that the framework of the first
  // tensor works on. A call on a CPU ignores it.
  //
  // @pre No tensor has been read.
  bool use_stream(PyObject* stream);

  // Takes the device that tensors must lie on.
  bool use_device(int32_t ordinal);

  // Views a tensor, and refuses an object that is none, has no memory or lies on another device,
  // and a torch tensor whose elements are not those that its memory holds.
  bool read(PyObject* object, Argument argument, View* view);

  // Refuses a torch tensor whose gradient would be lost.
  bool check_gradient(PyObject* object, Argument argument) {
    return check_no_gradient(object, argument, &grad_mode_);
  }

  int32_t device() const { return device_ < 0 ? 0 : device_; }
  void* stream() const { return stream_; }

 private:
  bool read_capsule(PyObject* object, bool is_torch, Argument argument, View* view);
  bool check_device(Argument argument, dlpack::Device device) {
    return (device.type == device_type_ &&
            (device_type_ == dlpack::kCpu || device.id == device_)) ||
           settle_device(argument, device);
  }
  bool settle_device(Argument argument, dlpack::Device device);

  const int32_t device_type_;
  int32_t device_ = -1;  // -1 while no tensor has told it
  Argument device_from_{nullptr};
  GradMode grad_mode_ = GradMode::unknown;
  bool has_stream_ = false;
  void* stream_ = nullptr;
  int num_capsules_ = 0;
  PyObject* capsules_[2 * kMaxTensors + 2];  // every tensor may be a pair; plan and workspace
};

}  // namespace mla::launcher
