// The places of a sampler's batch, as the layers take them.
// Thread rule: pure function.
#pragma once

#include "trainer/nn/layers.h"

namespace tandem::tasks {

// `Batch` has the vectors offsets, positions and row_index of data::SequenceBatch.
template <class Batch>
nn::PackedRows PackedRowsOf(const Batch& batch, int64_t max_length) {
  return {.offsets = Tensor::FromVector(batch.offsets),
          .positions = Tensor::FromVector(batch.positions),
          .row_index = Tensor::FromVector(batch.row_index),
          .max_length = max_length};
}

}  // namespace tandem::tasks
