#include "ps/store/shared_sums.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/vector/vectorise.h"

namespace tandem::ps {
namespace {

// A block stays in the second cache from the copy of its rows until the rows are added.
constexpr size_t kBlockBytes = size_t{256} << 10;

std::vector<size_t> EndsOfBlocks(size_t count, size_t dim, const uint32_t* row_of) {
  const size_t at_once = std::max<size_t>(1, kBlockBytes / (dim * sizeof(float)));
  std::vector<size_t> ends;
  for (size_t end = 0; end < count; ends.push_back(end)) {
    end = std::min(end + at_once, count);
    while (end < count && row_of[end] == row_of[end - 1]) ++end;
  }
  return ends;
}

}  // namespace

SharedSums::SharedSums(size_t count, size_t dim, const uint32_t* row_of, const void* weights,
                       float* sums, int num_workers)
    : dim_(dim),
      row_of_(row_of),
      weights_(weights),
      sums_(sums),
      ends_(EndsOfBlocks(count, dim, row_of)),
      blocks_(ends_.size()) {
  for (Block& block : blocks_) block.missing = num_workers;
}

float* SharedSums::Rows(size_t block) {
  Block& its = blocks_[block];
  std::call_once(its.allocated, [&] {
    its.rows = Buffer::Allocate((end(block) - begin(block)) * dim_ * sizeof(float));
  });
  return static_cast<float*>(its.rows->data());
}

void SharedSums::Arrive(size_t block) {
  if (blocks_[block].missing.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Add(block, Rows(block));
  blocks_[block].rows.reset();
}

void SharedSums::Add(size_t block, const float* rows) {
  kernels::Vectorised([=, first = begin(block), last = end(block), dim = dim_, row_of = row_of_,
                       weights = static_cast<const char*>(weights_), sums = sums_] {
    for (size_t i = first; i < last; ++i) {
      float weight = 1;
      if (weights != nullptr) std::memcpy(&weight, weights + i * sizeof(weight), sizeof(weight));
      const float* const row = rows + (i - first) * dim;
      float* const sum = sums + size_t{row_of[i]} * dim;
      for (size_t column = 0; column < dim; ++column) sum[column] += weight * row[column];
    }
  });
}

}  // namespace tandem::ps
