// A dense array with shared ownership of its buffer; layers compute with it. It holds no gradient
// (autograd/variable.h does). A copy shares the memory; Clone copies the elements. The buffer lies
// in host memory or on a CUDA device. At and Set work on host memory only.
// Thread rule: a value; accesses to the elements follow the thread that writes them.
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
  // A tensor in memory that the caller allocated. The tensor starts at byte `offset` of `buffer`.
  static Tensor InBuffer(std::shared_ptr<Buffer> buffer, size_t offset, Shape shape, DType dtype);

  bool defined() const { return buffer_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  DType dtype() const { return dtype_; }
  Device device() const { return buffer_->device(); }
  int64_t num_elements() const { return shape_.num_elements(); }
  size_t num_bytes() const { return static_cast<size_t>(num_elements()) * SizeOf(dtype_); }
  // REQUIRES: defined().
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  // True if no other tensor shares the buffer.
  bool unique() const { return buffer_.use_count() == 1; }

  ArrayView view() const { return ArrayView(raw(), dtype_, shape_); }
  void* raw() const { return static_cast<char*>(buffer_->data()) + offset_; }
  template <class T>
  T* data() const {
    TANDEM_CHECK(dtype_ == DTypeOf<T>()) << "the tensor is " << NameOf(dtype_);
    return static_cast<T*>(raw());
  }

  // Shares the memory under another shape.
  // REQUIRES: both shapes have the same number of elements.
  Tensor Reshape(Shape shape) const;
  // Rows [begin, end) of the first extent. Shares the memory.
  Tensor Rows(int64_t begin, int64_t end) const;
  Tensor Clone() const;  // REQUIRES: the tensor lies in host memory.
  // Copies the elements to another device. Returns the tensor itself if it already lies there.
  // Waits for the stream, because this memory may change or be freed as soon as the call returns.
  // The stream's status says whether the copy succeeded.
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
