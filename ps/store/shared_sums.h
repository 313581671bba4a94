// Sums of rows that one or several workers own, added in the order of the ids. So the bits do not
// depend on the number of workers. Each worker copies its rows of a block to the memory of the
// block. The last worker to finish adds the rows while they are in a cache.
// Thread rule: any thread calls Rows and Arrive; the rest is constant.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/memory/buffer.h"

namespace tandem::ps {

class SharedSums {
 public:
  // Computes sums[row_of[i]] += weights[i] * row i, for `count` rows; `sums` is [*, dim]. `row_of`
  // is ascending. `weights` are f32 at any alignment; null means all 1. The arrays must live until
  // `num_workers` workers have arrived at every block.
  SharedSums(size_t count, size_t dim, const uint32_t* row_of, const void* weights, float* sums,
             int num_workers);

  // A block is rows [begin, end). All rows of one sum are in one block.
  size_t num_blocks() const { return ends_.size(); }
  size_t begin(size_t block) const { return block == 0 ? 0 : ends_[block - 1]; }
  size_t end(size_t block) const { return ends_[block]; }
  // Returns the block's rows [end - begin, dim].
  // REQUIRES: the caller has not arrived at the block.
  float* Rows(size_t block);
  // Tells that the worker's rows of the block are written. Each worker calls Arrive once for each
  // block.
  void Arrive(size_t block);

 private:
  struct Block {
    std::once_flag allocated;
    std::shared_ptr<Buffer> rows;
    std::atomic<int> missing{0};  // workers that have not arrived
  };

  void Add(size_t block, const float* rows);

  const size_t dim_;
  const uint32_t* const row_of_;
  const void* const weights_;
  float* const sums_;
  std::vector<size_t> ends_;
  std::vector<Block> blocks_;
};

}  // namespace tandem::ps
