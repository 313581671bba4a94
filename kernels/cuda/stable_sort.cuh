// Sorts the places of an index by value, equal values in ascending place. A scatter-add in a fixed
// order walks along the result. A radix sort of our own, because the library's cannot run without a
// device.
// Thread rule: the stream's thread.
#pragma once

#include <memory>

#include "kernels/cuda/device/launch.cuh"

namespace tandem::kernels::cuda {

// keys[p] = index[places[p]], ascending. The memory belongs to the stream's device and serves its
// kernels.
struct SortedIndex {
  std::shared_ptr<Buffer> memory;
  const uint32_t* keys = nullptr;
  const uint32_t* places = nullptr;
};

// `index` is i64. A value outside [0, num_values) ends the kernel with an error.
// REQUIRES: fewer than 2^32 values and places.
SortedIndex StableSort(const ArrayView& index, int64_t num_values, Stream& stream);

}  // namespace tandem::kernels::cuda
