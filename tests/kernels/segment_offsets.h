// Packed batches for tests of segments: lengths, and the offsets that they give.
#pragma once

#include <vector>

#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {

inline const std::vector<int64_t> kSegmentLengths[] = {
    {}, {0}, {1}, {0, 0, 3}, {2, 0, 1, 17, 0}, {64, 1, 65, 0, 300}};

inline Array<int64_t> OffsetsOf(const std::vector<int64_t>& lengths) {
  Array<int64_t> offsets({static_cast<int64_t>(lengths.size()) + 1});
  for (size_t s = 0; s < lengths.size(); ++s)
    offsets.values[s + 1] = offsets.values[s] + lengths[s];
  return offsets;
}

}  // namespace tandem::kernels
