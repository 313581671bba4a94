// The optimizer of a replica's dense parameters: one update from the summed gradients, with the scale (1 / global count, times the
// clipping factor) applied inside. Every replica holds the same state and computes the same update. The optimizer cuts its parameters
// into runs of a fixed size once; each pass over them is one parallel loop.
// Thread rule: the step's thread.
#pragma once

#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "trainer/autograd/parameter.h"
#include "trainer/optim/dense_state.h"

namespace tandem::optim {

enum class Kind { SGD, ADAGRAD, ADAM, ADAMW };

struct DenseOptions {
  Kind kind = Kind::ADAM;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decay_all = false;  // decay also biases and norms
};

class DenseOptimizer {
 public:
  // Updates all parameters of the set, or only `updated`, which are of the set and in its order.
  DenseOptimizer(const DenseOptions& options, ParameterSet* parameters);
  DenseOptimizer(const DenseOptions& options, ParameterSet* parameters, const std::vector<Parameter*>& updated);

  // Updates the parameters that have a gradient, and their leaves' bf16 shadows. `step` counts from 1.
  void Update(uint64_t step, double learning_rate, double gradient_scale, Stream& stream);
  // The sum of squares over the gradients of those parameters, f64, in parameter order.
  double GradientSquaredNorm(Stream& stream) const;
  // Names a value of the set or a slot that has a NaN or an infinity, as a checkpoint does ("head.weight", "head.weight#m"); "" if all are
  // finite. Waits for the device.
  std::string FirstNonFinite(Stream& stream) const;
  // Names a parameter whose gradient has a NaN or an infinity; "" if there is none.
  std::string FirstNonFiniteGradient(Stream& stream) const;

  // The entries of the parameters that are updated here.
  DenseState State() const;
  // The optimizer's slots of parameter i, in their stored order ("m", "v"; "accumulator"); none of a parameter updated elsewhere.
  const std::vector<Tensor>& slots(size_t i) const { return slots_[i]; }
  std::vector<std::string> slot_names() const;

 private:
  // Elements [begin, begin + count) of one parameter.
  struct Run {
    size_t parameter;
    int64_t begin, count;
  };

  // Parameters to update, each a run.
  std::vector<kernels::OptimizerRun> DeviceRuns() const;
  void UpdateOnDevice(uint64_t step, double learning_rate, double gradient_scale, Stream& stream) const;
  template <class T>
  void UpdateRun(const Run& run, uint64_t step, double learning_rate, double gradient_scale) const;

  const DenseOptions options_;
  ParameterSet* parameters_;
  std::vector<bool> updated_;  // by parameter
  std::vector<std::vector<Tensor>> slots_;
  std::vector<Run> runs_;     // in parameter order
  int64_t num_elements_ = 0;  // in the runs
};

}  // namespace tandem::optim
