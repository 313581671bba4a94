// Cuts a model's layers into stages of about equal work.
// Thread rule: pure function; any thread.
#pragma once

#include <vector>

namespace tandem::parallel {

// The work of a model's layers, in any unit.
struct LayersWork {
  std::vector<double> layers;
  double before_first = 0;  // of the embedding, which the first stage has
  double after_last = 0;    // of the head, which the last stage has
};

// Returns the number of layers of each stage, at least one. The costliest stage costs as little as
// can be; of all such cuts this is the most even one.
// REQUIRES: 1 <= num_stages <= the number of layers.
std::vector<int> SplitLayers(const LayersWork& work, int num_stages);

}  // namespace tandem::parallel
