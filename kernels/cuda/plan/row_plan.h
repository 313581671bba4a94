// The split of row-wise kernels: a function of the numbers of rows and columns alone, so that bits
// depend on the shape only. Plain C++, for the host.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::kernels::cuda {

// Packs of a row that a thread keeps in registers between passes over the row: 16 elements, or 8 if
// a pack is one element.
constexpr int PacksHeld(int pack) { return pack == 1 ? 8 : 16 / pack; }
// Threads of a block that holds several teams.
inline constexpr int kTeamsThreads = 128;

// A team reads a row: some lanes of a warp, or a block. The row's packs go round the team's
// threads.
struct RowPlan {
  int pack;            // elements: the widest pack that divides a row, or one
  int lanes;           // lanes of a team; 0: the whole block
  int threads;         // threads of a block
  int rows_per_block;  // rows that a block handles at a time
};

// The smallest team that can keep a row in registers. Blocks have at most `max_threads` threads and
// reread the rest of a wider row.
constexpr RowPlan PlanRows(int64_t columns, int widest_pack, int max_threads) {
  constexpr int kFewLanes = 8, kLanes = 32;
  const int pack = columns % widest_pack == 0 ? widest_pack : 1;
  const int64_t held = int64_t{pack} * PacksHeld(pack);
  if (columns <= kFewLanes * held)
    return {pack, kFewLanes, kTeamsThreads, kTeamsThreads / kFewLanes};
  if (columns <= kLanes * held) return {pack, kLanes, kTeamsThreads, kTeamsThreads / kLanes};
  const int64_t warps = ((columns + held - 1) / held + kLanes - 1) / kLanes;
  return {pack, 0, static_cast<int>(std::min<int64_t>(warps * kLanes, max_threads)), 1};
}

// The blocks of a grid that goes through all rows, in several rounds if needed.
constexpr int64_t RowBlocks(const RowPlan& plan, int64_t rows) {
  return std::min<int64_t>((rows + plan.rows_per_block - 1) / plan.rows_per_block,
                           int64_t{1} << 30);
}

// The split of sums over rows: each block goes through neighbouring rows and leaves one partial sum
// per column.
struct PartialPlan {
  int64_t rows_per_block;
  int64_t blocks;
};
// Uses as many blocks as an H100's 132 multiprocessors hold at a time, with 512 threads each, if
// rows suffice. More blocks would only write more partial sums.
constexpr PartialPlan PlanPartials(const RowPlan& plan, int64_t rows) {
  const int64_t most = 132 * 512 / plan.threads;
  const int64_t rounds = std::max<int64_t>(
      1, ((rows + most - 1) / most + plan.rows_per_block - 1) / plan.rows_per_block);
  const int64_t rows_per_block = rounds * plan.rows_per_block;
  return {rows_per_block, (rows + rows_per_block - 1) / rows_per_block};
}

}  // namespace tandem::kernels::cuda
