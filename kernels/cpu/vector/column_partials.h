// Sums over rows, one number per column. Rows are summed in blocks of a fixed size, and the blocks'
// partial sums in block order. So the result depends on shape and values alone.
// Thread rule: the stream's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/vector/scratch.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// Rows per partial sum: few partials for narrow arrays, and enough tasks from some thousand rows
// on.
inline constexpr int64_t kPartialRows = 512;

// Calls add_rows(begin, end, partial) per block, inside Vectorised(). `partial` [columns] starts at
// 0 and lies in `partials`, [number of blocks, columns]. Returns the number of blocks.
template <class T, class AddRows>
int64_t RowBlockPartials(int64_t rows, int64_t columns, Stream& stream, T* partials,
                         const AddRows& add_rows) {
  const int64_t num_blocks = (rows + kPartialRows - 1) / kPartialRows;
  stream.pool().ParallelFor(num_blocks, [&](int64_t block) {
    T* partial = partials + block * columns;
    const int64_t begin = block * kPartialRows, end = std::min(rows, begin + kPartialRows);
    Vectorised([&] {
      for (int64_t c = 0; c < columns; ++c) partial[c] = T(0);
      add_rows(begin, end, partial);
    });
  });
  return num_blocks;
}

// output[c] = (accumulate ? output[c] : 0) + sum over blocks of partials[block, first + c], in
// block order.
template <class T>
void AddPartials(int64_t num_blocks, int64_t columns, const T* partials, int64_t first,
                 int64_t count, T* output, bool accumulate) {
  for (int64_t c = 0; c < count; ++c) {
    T sum = 0;
    for (int64_t block = 0; block < num_blocks; ++block)
      sum += partials[block * columns + first + c];
    output[c] = accumulate ? output[c] + sum : sum;
  }
}

template <class T, class AddRows>
void SumRowBlocks(int64_t rows, int64_t columns, Stream& stream, T* output, bool accumulate,
                  const AddRows& add_rows) {
  T* partials = Scratch<T>(ScratchSlot::CALLER, (rows / kPartialRows + 1) * columns);
  const int64_t num_blocks = RowBlockPartials<T>(rows, columns, stream, partials, add_rows);
  AddPartials(num_blocks, columns, partials, 0, columns, output, accumulate);
}

}  // namespace tandem::kernels
