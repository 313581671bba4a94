// Sorts by 64-bit keys, one digit after the other from the lowest, as many as the largest key has: the ids of a batch, tens of
// thousands, in a fraction of what comparisons take. Stable. Thread rule: a free function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem {

// key_of(value) is the key of one of `values`, whose order becomes that of their keys. `scratch` is room for as many.
template <class T, class KeyOf>
void RadixSort(std::vector<T>* values, std::vector<T>* scratch, const KeyOf& key_of) {
  constexpr int kDigitBits = 11;
  constexpr size_t kDigits = size_t{1} << kDigitBits;
  uint64_t all = 0;
  for (const T& value : *values) all |= key_of(value);
  scratch->resize(values->size());
  for (int shift = 0; shift < 64 && all >> shift != 0; shift += kDigitBits) {
    size_t places[kDigits] = {};
    for (const T& value : *values) ++places[(key_of(value) >> shift) % kDigits];
    size_t begin = 0;
    for (size_t& place : places) begin += std::exchange(place, begin);
    for (const T& value : *values) (*scratch)[places[(key_of(value) >> shift) % kDigits]++] = value;
    values->swap(*scratch);
  }
}

}  // namespace tandem
