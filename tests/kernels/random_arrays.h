// Arrays for kernel tests: owned values with a view, random contents, and comparisons that name the
// first difference.
#pragma once

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "kernels/base/array_view.h"
#include "kernels/base/random.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

template <class T>
struct Array {
  std::vector<T> values;
  Shape shape = {0};

  Array() = default;
  explicit Array(Shape shape, T value = T(0))
      : values(shape.num_elements() + 1, value), shape(shape) {}
  ArrayView view() { return DenseView(values.data(), shape); }
  operator ArrayView() { return view(); }
  int64_t size() const { return shape.num_elements(); }
  T& operator[](int64_t i) { return values[i]; }
  const T& operator[](int64_t i) const { return values[i]; }
};

// Uniform in (-range, range), a function of (seed, element).
template <class T>
Array<T> RandomArray(Shape shape, uint64_t seed, double range = 1) {
  Array<T> a(shape);
  for (int64_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<T>((2.0 * UnitFloat(RandomBits({seed, 7}, 0, i)) - 1.0) * range);
  }
  return a;
}

template <class To, class From>
Array<To> Converted(const Array<From>& from) {
  Array<To> to(from.shape);
  for (int64_t i = 0; i < from.size(); ++i) to[i] = static_cast<To>(from[i]);
  return to;
}

inline Array<int64_t> Consecutive(int64_t n, int64_t first = 0) {
  Array<int64_t> a({n});
  for (int64_t i = 0; i < n; ++i) a[i] = first + i;
  return a;
}

template <class A, class B>
void ExpectNear(const Array<A>& found, const Array<B>& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (int64_t i = 0; i < found.size(); ++i) {
    const double scale = 1 + std::fabs(static_cast<double>(wanted[i]));
    ASSERT_LE(std::fabs(static_cast<double>(found[i]) - static_cast<double>(wanted[i])),
              tolerance * scale)
        << "element " << i << ": " << found[i] << ", wanted " << wanted[i];
  }
}

template <class T>
void ExpectSameBits(const Array<T>& a, const Array<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (int64_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a.values[i], &b.values[i], sizeof(T)), 0)
        << "element " << i << ": " << a[i] << " and " << b[i];
  }
}

// A stream with a pool of its own.
class TestStream {
 public:
  explicit TestStream(int num_threads = 1) : pool_(num_threads), stream_(&pool_) {}
  operator Stream&() { return stream_; }

 private:
  ThreadPool pool_;
  Stream stream_;
};

// d(sum of weight * f(x)) / dx by central differences, in f64. `f` fills an array of weight's size
// from x.
template <class Function>
Array<double> NumericGradient(Array<double>& x, const Array<double>& weight, const Function& f) {
  const double h = 1e-5;
  Array<double> gradient(x.shape), output(weight.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double old = x[i];
    double difference = 0;
    for (double sign : {1.0, -1.0}) {
      x[i] = old + sign * h;
      f(output);
      for (int64_t j = 0; j < output.size(); ++j) difference += sign * weight[j] * output[j];
    }
    x[i] = old;
    gradient[i] = difference / (2 * h);
  }
  return gradient;
}

}  // namespace tandem::kernels
