// Kernels read and write f32, f64 or bf16 and compute in f32 or f64. Inline bodies for Vectorised().
#pragma once

#include <type_traits>

#include "kernels/base/array_view.h"
#include "kernels/base/bfloat16.h"

namespace tandem::kernels {

// What elements of storage type T are computed in.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

template <class T>
inline Compute<T> Load(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) return ToFloat(x);
  else return x;
}

template <class T>
inline T Store(Compute<T> x) {
  if constexpr (std::is_same_v<T, BFloat16>) return ToBFloat16(x);
  else return x;
}

// Calls body(T{}) with the storage type of a float view.
template <class Body>
void WithStorageType(DType dtype, const Body& body) {
  if (dtype == DType::F32) return body(float{});
  if (dtype == DType::BF16) return body(BFloat16{});
  TANDEM_CHECK(dtype == DType::F64) << "no kernel for elements of type " << NameOf(dtype);
  body(double{});
}

// Calls body(A{}, B{}) with the storage types of two views: both f64, or any of f32 and bf16.
template <class Body>
void WithStorageTypes(DType a, DType b, const Body& body) {
  TANDEM_CHECK((a == DType::F64) == (b == DType::F64)) << "no kernel for " << NameOf(a) << " with " << NameOf(b);
  if (a == DType::F64) return body(double{}, double{});
  WithStorageType(a, [&](auto x) {
    if constexpr (!std::is_same_v<decltype(x), double>) {
      if (b == DType::F32) return body(x, float{});
      TANDEM_CHECK(b == DType::BF16) << "no kernel for elements of type " << NameOf(b);
      body(x, BFloat16{});
    }
  });
}

}  // namespace tandem::kernels
