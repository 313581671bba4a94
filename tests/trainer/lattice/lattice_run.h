// A short run of a language model under one layout, by the product's own loop in f64, and all that
// can tell layouts apart: losses, gradient norms, and weights and moments by logical element.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/tasks/job_data.h"

namespace tandem::lattice {

struct Layout {
  int dp = 1, tp = 1, zero = 0;
  bool cut_rows = true;  // sequence parallelism, with tp > 1
  int pp = 1;
  std::string schedule = "ONE_F_ONE_B";
  bool recompute = false;
  int microbatches = 0;                    // 0: as the job says
  std::vector<int> layers_per_stage = {};  // empty: balanced

  int num_ranks() const { return dp * tp * pp; }
  std::string ToString() const;
};

struct Trained {
  absl::Status status;  // of the run
  std::vector<double> losses, norms;
  double valid_loss = 0;
  // By name in the checkpoint: "head.weight", "head.weight#m".
  std::map<std::string, std::vector<double>> tensors;
};

struct RunOptions {
  // Makes the data, and so the task, of a job. Null: the job's own.
  std::function<std::unique_ptr<tasks::JobData>(const Job& job)> make_data = nullptr;
  bool bf16 = false;  // products in bf16 and f32 parameters, instead of f64
};

// Trains the job `text`, with more assignments, as threads of this process. Sends of a pipeline's
// stages wait for their receives.
Trained Train(const std::string& text, const std::vector<std::string>& sets, const Layout& layout,
              const RunOptions& options = {});
// The same in the folder `out`, where the run goes on from the newest checkpoint if there is one.
// `losses` and `norms` are those of this process.
Trained TrainIn(const std::string& out, const std::string& text,
                const std::vector<std::string>& sets, const Layout& layout,
                const RunOptions& options = {});

// The largest difference of two runs' numbers, each relative to the larger of 1 and the value.
// Infinite if a run failed or a number is not finite.
double LargestDifference(const Trained& run, const Trained& serial);

}  // namespace tandem::lattice
