// The split of a pass over many parameters: batches of runs that fit a kernel's parameters. Each
// block of threads in a batch has a chunk of one run. Plain arithmetic, tested without a device.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/optimizer.h"

namespace tandem::kernels::cuda {

// The parameters of one kernel. CUDA limits them to 4 KiB.
struct RunBatch {
  static constexpr int kMaxRuns = 64;

  OptimizerRun runs[kMaxRuns];
  uint32_t first_block[kMaxRuns + 1];  // run r has blocks first_block[r] .. first_block[r + 1] - 1
  int num_runs = 0;
  uint64_t packs = 0;  // bit r: run r's arrays may be read by packs
};

// The run of a block: the last run that begins at or before it.
// REQUIRES: block < first_block[num_runs].
constexpr int RunOfBlock(const uint32_t* first_block, int num_runs, uint32_t block) {
  int low = 0, high = num_runs;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first_block[middle] <= block)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Calls launch(batch, num_blocks) for batches of the runs, in order, with `chunk` elements per
// block. Skips empty runs.
template <class Launch>
void ForEachBatch(const std::vector<OptimizerRun>& runs, int64_t chunk,
                  bool (*takes_packs)(const OptimizerRun&), const Launch& launch) {
  constexpr int64_t kMostBlocks = 0x7fffffff;
  RunBatch batch;
  int64_t num_blocks = 0;
  const auto finish = [&] {
    if (batch.num_runs > 0) launch(batch, static_cast<uint32_t>(num_blocks));
    batch.num_runs = 0, batch.packs = 0, num_blocks = 0;
  };
  for (const OptimizerRun& run : runs) {
    if (run.count == 0) continue;
    const int64_t blocks = (run.count + chunk - 1) / chunk;
    if (batch.num_runs == RunBatch::kMaxRuns || num_blocks + blocks > kMostBlocks) finish();
    batch.runs[batch.num_runs] = run;
    batch.first_block[batch.num_runs] = static_cast<uint32_t>(num_blocks);
    batch.packs |= uint64_t{takes_packs(run)} << batch.num_runs;
    num_blocks += blocks;
    batch.first_block[++batch.num_runs] = static_cast<uint32_t>(num_blocks);
  }
  finish();
}

}  // namespace tandem::kernels::cuda
