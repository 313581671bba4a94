// A short run of a language model under one layout, by the product's own loop in f64, and all that
// can tell layouts apart: losses, gradient norms, and weights and moments by logical element.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tandem::lattice {

struct Layout {
  int dp = 1, tp = 1, zero = 0;

  int num_ranks() const { return dp * tp; }
  std::string ToString() const;
};

struct Trained {
  std::vector<double> losses, norms;
  double valid_loss = 0;
  // By name in the checkpoint: "head.weight", "head.weight#m".
  std::map<std::string, std::vector<double>> tensors;
};

// Trains the job `text`, with more assignments, as threads of this process.
Trained Train(const std::string& text, const std::vector<std::string>& sets, const Layout& layout);
// The same in the folder `out`, where the run goes on from the newest checkpoint if there is one.
// `losses` and `norms` are those of this process.
Trained TrainIn(const std::string& out, const std::string& text,
                const std::vector<std::string>& sets, const Layout& layout);

// The largest difference of two runs' numbers, each relative to the larger of 1 and the value.
double LargestDifference(const Trained& run, const Trained& serial);

}  // namespace tandem::lattice
