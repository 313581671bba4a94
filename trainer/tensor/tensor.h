// A dense array with shared ownership of its buffer: what layers compute with. No gradient inside (autograd/variable.h).
// Copying shares memory; Clone copies it. It lies in the host's memory or on a CUDA device; elements are read and written one by one
// in the host's only. Thread rule: a value; the elements follow their writer.
#pragma once

#include <memory>
#include <vector>

#include "kernels/base/array_view.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/stream.h"

namespace tandem {

class Tensor {
 public:
  Tensor() = default;  // undefined
  static Tensor Empty(Shape shape, DType dtype, Device device = {});
  static Tensor Zeros(Shape shape, DType dtype);
  template <class T>
  static Tensor FromVector(const std::vector<T>& values, Shape shape) {
    Tensor tensor = Empty(shape, DTypeOf<T>());
    TANDEM_CHECK_EQ(static_cast<int64_t>(values.size()), shape.num_elements());
    std::copy(values.begin(), values.end(), tensor.data<T>());
    return tensor;
  }
  template <class T>
  static Tensor FromVector(const std::vector<T>& values) {
    return FromVector(values, Shape{static_cast<int64_t>(values.size())});
  }
  // A tensor in memory that somebody else allocated, from byte `offset` of `buffer` on.
  static Tensor InBuffer(std::shared_ptr<Buffer> buffer, size_t offset, Shape shape, DType dtype);

  bool defined() const { return buffer_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  DType dtype() const { return dtype_; }
  Device device() const { return buffer_->device(); }
  int64_t num_elements() const { return shape_.num_elements(); }
  size_t num_bytes() const { return static_cast<size_t>(num_elements()) * SizeOf(dtype_); }
  // True if no other tensor shares the buffer.
  bool unique() const { return buffer_.use_count() == 1; }

  ArrayView view() const { return ArrayView(raw(), dtype_, shape_); }
  void* raw() const { return static_cast<char*>(buffer_->data()) + offset_; }
  template <class T>
  T* data() const {
    TANDEM_CHECK(dtype_ == DTypeOf<T>()) << "the tensor is " << NameOf(dtype_);
    return static_cast<T*>(raw());
  }

  // The same memory under another shape of equal size.
  Tensor Reshape(Shape shape) const;
  // Rows [begin, end) of the first extent, the same memory.
  Tensor Rows(int64_t begin, int64_t end) const;
  Tensor Clone() const;  // of the host's memory
  // The same elements on another device, or itself if it lies there. Waits for the stream, for this memory may change or end as soon as
  // the call returns; the stream's status says whether the copy came.
  Tensor To(Device device, Stream& stream) const;
  Tensor ToHost(Stream& stream) const { return To(Device{}, stream); }
  // One element as a double; for tests and scalars.
  double At(int64_t i) const;
  void Set(int64_t i, double value) const;

 private:
  std::shared_ptr<Buffer> buffer_;
  size_t offset_ = 0;  // bytes
  Shape shape_;
  DType dtype_ = DType::F32;
};

}  // namespace tandem
