// A shape, and a view of an array that somebody else owns: pointer, element type, dims and strides
// (in elements). Kernels and collectives take views and own nothing. Copying a view copies no
// elements. A view must not outlive its buffer.
// Thread rule: a value.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include "kernels/base/check.h"
#include "kernels/base/dtype.h"

namespace tandem {

// Up to five dims, stored inline. An empty shape is a scalar (one element).
class Shape {
 public:
  static constexpr int kMaxDims = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) {
    TANDEM_CHECK_LE(dims.size(), static_cast<size_t>(kMaxDims));
    for (int64_t dim : dims) {
      TANDEM_CHECK_GE(dim, 0);
      dims_[num_dims_++] = dim;
    }
  }

  int num_dims() const { return num_dims_; }
  int64_t operator[](int i) const { return dims_[i < 0 ? num_dims_ + i : i]; }
  int64_t& operator[](int i) { return dims_[i < 0 ? num_dims_ + i : i]; }
  int64_t num_elements() const {
    int64_t n = 1;
    for (int i = 0; i < num_dims_; ++i) n *= dims_[i];
    return n;
  }
  // The product of all dims but the last: the number of rows of a row-wise kernel.
  // REQUIRES: num_dims() >= 1.
  int64_t num_rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < num_dims_; ++i) n *= dims_[i];
    return n;
  }
  bool operator==(const Shape& other) const {
    if (num_dims_ != other.num_dims_) return false;
    for (int i = 0; i < num_dims_; ++i) {
      if (dims_[i] != other.dims_[i]) return false;
    }
    return true;
  }
  bool operator!=(const Shape& other) const { return !(*this == other); }

 private:
  int num_dims_ = 0;
  int64_t dims_[kMaxDims] = {0, 0, 0, 0, 0};
};

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << "[";
  for (int i = 0; i < shape.num_dims(); ++i) out << (i ? ", " : "") << shape[i];
  return out << "]";
}

struct ArrayView {
  void* data = nullptr;
  DType dtype = DType::F32;
  Shape shape;
  Shape strides;  // in elements, one per dim

  ArrayView() = default;
  // A dense (row-major, gap-free) view.
  ArrayView(void* data, DType dtype, Shape shape)
      : data(data), dtype(dtype), shape(shape), strides(shape) {
    int64_t stride = 1;
    for (int i = shape.num_dims() - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= shape[i];
    }
  }
  ArrayView(void* data, DType dtype, Shape shape, Shape strides)
      : data(data), dtype(dtype), shape(shape), strides(strides) {}

  template <class T>
  T* as() const {
    TANDEM_CHECK(dtype == DTypeOf<T>())
        << "the array is " << NameOf(dtype) << ", used as " << NameOf(DTypeOf<T>());
    return static_cast<T*>(data);
  }
  int64_t num_elements() const { return shape.num_elements(); }
  size_t num_bytes() const { return static_cast<size_t>(num_elements()) * SizeOf(dtype); }
  bool is_dense() const {
    int64_t stride = 1;
    for (int i = shape.num_dims() - 1; i >= 0; --i) {
      if (shape[i] != 1 && strides[i] != stride) return false;
      stride *= shape[i];
    }
    return true;
  }
  bool empty() const { return data == nullptr; }
};

template <class T>
ArrayView DenseView(T* data, Shape shape) {
  return ArrayView(const_cast<std::remove_const_t<T>*>(data), DTypeOf<T>(), shape);
}

}  // namespace tandem
