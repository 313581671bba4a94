// How row-wise kernels cut their work: a function of the number of rows and columns alone, so that bits are too.
// Plain C++, for the host.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::kernels::cuda {

// Packs of a row that a thread keeps in registers between its passes over the row: 16 elements, or 8 where a pack is one.
constexpr int PacksHeld(int pack) { return pack == 1 ? 8 : 16 / pack; }
// Of a block of teams smaller than itself.
inline constexpr int kTeamsThreads = 128;

// A row is read by a team: some lanes of a warp, or a block. Its packs go round the team's threads.
struct RowPlan {
  int pack;            // elements: the widest pack that divides a row, or one
  int lanes;           // of a team; 0: the whole block
  int threads;         // of a block
  int rows_per_block;  // at a time
};

// The smallest team that can keep a row in registers. Blocks have at most `max_threads` and read the rest of a wider row again.
constexpr RowPlan PlanRows(int64_t columns, int widest_pack, int max_threads) {
  constexpr int kFewLanes = 8, kLanes = 32;
  const int pack = columns % widest_pack == 0 ? widest_pack : 1;
  const int64_t held = int64_t{pack} * PacksHeld(pack);
  if (columns <= kFewLanes * held) return {pack, kFewLanes, kTeamsThreads, kTeamsThreads / kFewLanes};
  if (columns <= kLanes * held) return {pack, kLanes, kTeamsThreads, kTeamsThreads / kLanes};
  const int64_t warps = ((columns + held - 1) / held + kLanes - 1) / kLanes;
  return {pack, 0, static_cast<int>(std::min<int64_t>(warps * kLanes, max_threads)), 1};
}

// Blocks of a grid that goes through all rows, if need be in several rounds.
constexpr int64_t RowBlocks(const RowPlan& plan, int64_t rows) {
  return std::min<int64_t>((rows + plan.rows_per_block - 1) / plan.rows_per_block, int64_t{1} << 30);
}

// Sums over rows: each block goes through neighbouring rows and leaves one partial sum per column.
struct PartialPlan {
  int64_t rows_per_block;
  int64_t blocks;
};
// As many blocks as an H100's 132 processors hold at a time, with 512 threads on each, if there are so many rows: more would only
// write more partial sums.
constexpr PartialPlan PlanPartials(const RowPlan& plan, int64_t rows) {
  const int64_t most = 132 * 512 / plan.threads;
  const int64_t rounds = std::max<int64_t>(1, ((rows + most - 1) / most + plan.rows_per_block - 1) / plan.rows_per_block);
  const int64_t rows_per_block = rounds * plan.rows_per_block;
  return {rows_per_block, (rows + rows_per_block - 1) / rows_per_block};
}

}  // namespace tandem::kernels::cuda
