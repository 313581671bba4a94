// Element types of arrays, buffers and wire payloads.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/base/bfloat16.h"

namespace tandem {

enum class DType : uint8_t { F32 = 1, F64 = 2, BF16 = 3, I64 = 4, U64 = 5, U8 = 6 };

constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return 4;
    case DType::F64:
      return 8;
    case DType::BF16:
      return 2;
    case DType::I64:
      return 8;
    case DType::U64:
      return 8;
    case DType::U8:
      return 1;
  }
  return 0;
}

constexpr const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return "f32";
    case DType::F64:
      return "f64";
    case DType::BF16:
      return "bf16";
    case DType::I64:
      return "i64";
    case DType::U64:
      return "u64";
    case DType::U8:
      return "u8";
  }
  return "?";
}

template <class T>
constexpr DType DTypeOf() {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, float>)
    return DType::F32;
  else if constexpr (std::is_same_v<U, double>)
    return DType::F64;
  else if constexpr (std::is_same_v<U, BFloat16>)
    return DType::BF16;
  else if constexpr (std::is_same_v<U, int64_t>)
    return DType::I64;
  else if constexpr (std::is_same_v<U, uint64_t>)
    return DType::U64;
  else {
    static_assert(std::is_same_v<U, uint8_t>, "no DType for this C++ type");
    return DType::U8;
  }
}

}  // namespace tandem
