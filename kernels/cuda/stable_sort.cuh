// The places of an index in the order of its values, equal values in ascending place: what a scatter-add in a fixed order walks
// along. A radix sort of our own, for the library's cannot run without a device.
#pragma once

#include <memory>

#include "kernels/cuda/device/launch.cuh"

namespace tandem::kernels::cuda {

// keys[p] = index[places[p]], ascending. Memory of the stream's device, for its kernels.
struct SortedIndex {
  std::shared_ptr<Buffer> memory;
  const uint32_t* keys = nullptr;
  const uint32_t* places = nullptr;
};

// `index`: i64. A value outside [0, num_values) ends the kernel with an error. REQUIRES: fewer than 2^32 values and places.
SortedIndex StableSort(const ArrayView& index, int64_t num_values, Stream& stream);

}  // namespace tandem::kernels::cuda
