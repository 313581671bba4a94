// Compares secrets in a time that does not reveal where two texts differ.
// Thread rule: a pure function.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::rpc {

inline bool EqualInConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;  // volatile: the compiler may not end the loop early
  for (size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace tandem::rpc
