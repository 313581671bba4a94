// Storage and compute types: kernels store f32, f64 or bf16 and compute in f32 or f64. Inline
// bodies for Vectorised() and for CUDA kernels.
// Thread rule: pure functions.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/base/array_view.h"
#include "kernels/base/bfloat16.h"

namespace tandem::kernels {

// The type that elements of storage type T are computed in.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

template <class T>
constexpr Compute<T> Load(T x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return ToFloat(x);
  else
    return x;
}

template <class T>
constexpr T Store(Compute<T> x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return ToBFloat16(x);
  else
    return x;
}

// Two neighbouring bf16 elements in one 32-bit lane. A loop over pairs needs 32-bit lanes only, so
// no vector is unpacked or packed. One shift or mask turns each half into an f32.
struct BFloat16Pair {
  uint32_t bits;

  static BFloat16Pair At(const BFloat16* x) {
    BFloat16Pair pair;
    std::memcpy(&pair.bits, x, sizeof(pair.bits));
    return pair;
  }
  static BFloat16Pair Of(float first, float second) {
    return {(RoundedBits(first) >> 16) | (RoundedBits(second) & 0xffff0000u)};
  }
  void Put(BFloat16* x) const { std::memcpy(static_cast<void*>(x), &bits, sizeof(bits)); }
  float first() const { return std::bit_cast<float>(bits << 16); }
  float second() const { return std::bit_cast<float>(bits & 0xffff0000u); }
};

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
  TANDEM_CHECK((a == DType::F64) == (b == DType::F64))
      << "no kernel for " << NameOf(a) << " with " << NameOf(b);
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
