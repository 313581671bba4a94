// Stable LSD radix sort by 64-bit keys. Sorts the ids of a batch (tens of thousands) in a fraction
// of the time of a comparison sort. The number of passes depends on the largest key.
// Thread rule: a free function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem {

// Sorts `values` by key_of(value). `scratch` grows to the size of `values`.
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
