// Sums of rows that several workers own, added in the order of the ids all the same: so how many workers there are does not show in the
// bits. Each worker copies its rows of a block to where all rows of the block gather, and the last to have done so adds them up, while they
// are in a cache.
// Thread rule: Rows and Arrive from any thread, the rest is constant.
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
  // Row i of `count`, times weights[i] (at any alignment; null: 1), is added to the one of `sums` [*, dim] that row_of[i] says, which
  // ascends. All are read until `num_workers` workers have arrived at every block.
  SharedSums(size_t count, size_t dim, const uint32_t* row_of, const void* weights, float* sums, int num_workers);

  // Rows [begin, end) are those of a block: all that are added to a sum.
  size_t num_blocks() const { return ends_.size(); }
  size_t begin(size_t block) const { return block == 0 ? 0 : ends_[block - 1]; }
  size_t end(size_t block) const { return ends_[block]; }
  // [end - begin, dim], for a worker that has not arrived at the block.
  float* Rows(size_t block);
  // A worker's rows are there. Each worker calls it once for each block.
  void Arrive(size_t block);

 private:
  struct Block {
    std::once_flag allocated;
    std::shared_ptr<Buffer> rows;
    std::atomic<int> missing{0};  // workers
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
