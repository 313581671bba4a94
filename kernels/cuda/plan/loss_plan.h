// The split of the linear cross entropy, a function of the shape alone. Plain C++, for the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/loss.h"

namespace tandem::kernels::cuda {

// The number of rows whose logits are computed at a time. Whole tiles of a product; up to 256 MB of
// f32, unless a single tile takes more. All chunks have about the same number of rows.
constexpr int64_t CrossEntropyChunkRows(int64_t rows, int64_t classes) {
  constexpr int64_t kTileRows = 128, kMaxElements = 256'000'000 / 4;
  const int64_t most =
      std::max<int64_t>(1, kMaxElements / std::max<int64_t>(1, classes) / kTileRows) * kTileRows;
  const int64_t chunks = std::max<int64_t>(1, (rows + most - 1) / most);
  return ((rows + chunks - 1) / chunks + kTileRows - 1) / kTileRows * kTileRows;
}

// LinearCrossEntropy with `chunk_rows` rows at a time, for tests that need many chunks.
void LinearCrossEntropyInChunks(const LinearCrossEntropyArgs& args, int64_t chunk_rows,
                                Stream& stream);

}  // namespace tandem::kernels::cuda
