// The optimizer of a replica's dense parameters: one update from the summed gradients, with the scale (1 / global count,
// times the clipping factor) applied inside. Every replica holds the same state and computes the same update. Served parameters are
// updated elsewhere: it has slots for them only while somebody saves, loads or hashes what the servers have.
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

  // Updates parameters that are not served and have a gradient, and their leaves' bf16 shadows. `step` counts from 1.
  void Update(uint64_t step, double learning_rate, double gradient_scale, Stream& stream);
  // Sum of squares over all of their gradients, f64, in parameter order.
  double GradientSquaredNorm(Stream& stream) const;
  // Names a tensor with a NaN or an infinity as a checkpoint does ("head.weight", "head.weight#m"); "" if all are finite. Waits for the
  // device. The slots of served parameters are looked at only while they are held.
  std::string FirstNonFinite(Stream& stream) const;
  // The same of the gradients, by the parameter's name.
  std::string FirstNonFiniteGradient(Stream& stream) const;
  // Parameters and optimizer slots, as in params_hash; served ones only while their slots are held.
  absl::uint128 Hash() const;

  // Makes, with zeros, and ends the slots of served parameters.
  void HoldServedSlots();
  void DropServedSlots();
  // The optimizer's slots of parameter i, in their stored order ("m", "v"; "accumulator"); none of a served one, unless held.
  const std::vector<Tensor>& slots(size_t i) const { return slots_[i]; }
  std::vector<std::string> slot_names() const;

 private:
  // Elements [begin, begin + count) of one parameter.
  struct Run {
    size_t parameter;
    int64_t begin, count;
  };

  std::vector<Tensor> NewSlots(const Shape& shape) const;
  // Parameters to update, each a run.
  std::vector<kernels::OptimizerRun> DeviceRuns() const;
  void UpdateOnDevice(uint64_t step, double learning_rate, double gradient_scale, Stream& stream) const;
  template <class T>
  void UpdateRun(const Run& run, uint64_t step, double learning_rate, double gradient_scale) const;

  const DenseOptions options_;
  ParameterSet* parameters_;
  std::vector<std::vector<Tensor>> slots_;
  std::vector<Run> runs_;  // in parameter order, of those that are not served
  int64_t num_elements_ = 0;  // in the runs
  bool holds_served_ = false;
};

}  // namespace tandem::optim
