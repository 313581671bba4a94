// Builds the chunks of a model that this rank of a pipeline has.
// Thread rule: a free function.
#pragma once

#include <deque>
#include <vector>

#include "trainer/tasks/task.h"

namespace tandem::tasks {

// One Model for each chunk, with the blocks of its stage alone (Options::blocks). `layer_work` and
// `head_work` are the operations of a token in each layer and in the head, by which stages are
// balanced.
template <class Model, class Options>
std::deque<Model> ModelChunks(Options options, double layer_work, double head_work,
                              const TaskEnvironment& environment) {
  const std::vector<double> layers(static_cast<size_t>(options.layers), layer_work);
  std::deque<Model> chunks;
  for (const IndexRange& blocks :
       environment.pipeline->LayersHere({.layers = layers, .after_last = head_work})) {
    options.blocks = blocks;
    chunks.emplace_back(options, *environment.parameters);
  }
  return chunks;
}

}  // namespace tandem::tasks
