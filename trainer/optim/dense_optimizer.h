// The optimizer of a replica's dense parameters: one update from the summed gradients, with the scale (1 / global count,
// times the clipping factor) applied inside. Every replica holds the same state and computes the same update.
// All parameters are cut into runs of a fixed size when the optimizer is made; each pass over them is one parallel loop.
// Thread rule: the step's thread.
#pragma once

#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "kernels/optimizer.h"
#include "trainer/autograd/parameter.h"

namespace tandem::optim {

enum class Kind { SGD, ADAGRAD, ADAM, ADAMW };

struct DenseOptions {
  Kind kind = Kind::ADAM;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decay_all = false;  // decay also biases and norms
};

class DenseOptimizer {
 public:
  DenseOptimizer(const DenseOptions& options, ParameterSet* parameters);

  // Updates parameters that have a gradient, and their leaves' bf16 shadows. `step` counts from 1.
  void Update(uint64_t step, double learning_rate, double gradient_scale, Stream& stream);
  // Sum of squares over all dense gradients, f64, in parameter order.
  double GradientSquaredNorm(Stream& stream) const;
  // Parameters and optimizer slots, as in params_hash.
  absl::uint128 Hash() const;

  // The optimizer's slots of parameter i, in their stored order ("m", "v"; "accumulator").
  const std::vector<Tensor>& slots(size_t i) const { return slots_[i]; }
  std::vector<std::string> slot_names() const;

 private:
  // Elements [begin, begin + count) of one parameter.
  struct Run {
    size_t parameter;
    int64_t begin, count;
  };

  // Parameters that have a gradient, each a run.
  std::vector<kernels::OptimizerRun> DeviceRuns() const;
  void UpdateOnDevice(uint64_t step, double learning_rate, double gradient_scale, Stream& stream) const;
  template <class T>
  void UpdateRun(const Run& run, uint64_t step, double learning_rate, double gradient_scale) const;

  const DenseOptions options_;
  ParameterSet* parameters_;
  std::vector<std::vector<Tensor>> slots_;
  std::vector<Run> runs_;  // in parameter order
};

}  // namespace tandem::optim
