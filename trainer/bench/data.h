// Jobs and data that exist only to be timed: the presets of `tandem bench step`, with random
// symbols and items of fixed shapes.
// Thread rule: free functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "trainer/tasks/kinds/kinds.h"

namespace tandem::bench {

struct BenchJob {
  Job job;  // resolved
  std::unique_ptr<tasks::JobData> data;
};

// "gpt": 4 layers, dim 256, 4 heads, windows of 256, batch 8, 8,192 symbols, untied head, AdamW.
// "sasrec": 2 blocks, dim 64, 1 head, 200 items in every sequence, batch 128, 3,416 items, BCE,
// dropout 0.2, Adam over the whole item table. Any other preset is the path of a job file, whose
// data are read. `sets` is that of LoadJob.
absl::StatusOr<BenchJob> MakeBenchJob(const std::string& preset,
                                      const std::vector<std::string>& sets,
                                      const tasks::Kinds& kinds);

}  // namespace tandem::bench
