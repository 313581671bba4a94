// Objects that a process keeps for others: a module with its parameters, and an optimizer over
// parameters of such modules. A call computes, forward and backward, with the values that it found.
// An optimizer that changes values during a call changes a copy, and later calls find the copy. So
// the steps of other trainers never affect a call.
// Thread rule: any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "trainer/optim/dense_optimizer.h"
#include "trainer/remote/module.h"

namespace tandem::remote {

class HostedModule : public std::enable_shared_from_this<HostedModule> {
 public:
  HostedModule(std::string name, ModuleRegistry::Made made)
      : name_(std::move(name)), made_(std::move(made)) {}

  const std::string& name() const { return name_; }
  Module& module() { return *made_.module; }
  // The place of a parameter; -1: there is none.
  int PlaceOf(const std::string& parameter) const;
  size_t num_parameters() const { return made_.parameters->all().size(); }
  const std::string& NameOf(size_t place) const { return made_.parameters->all()[place]->name; }

  // New leaves over the present values. The values stay unchanged until the holder drops `hold`.
  struct Leaves {
    std::vector<Variable> parameters;
    std::shared_ptr<void> hold;
  };
  Leaves Snapshot();
  // Copies of the values.
  std::vector<Tensor> Fetch();

  // Makes an optimizer of these parameters alone.
  // REQUIRES of Apply: gradients have the parameters' shapes; undefined: no gradient.
  std::unique_ptr<optim::DenseOptimizer> MakeOptimizer(const optim::DenseOptions& options);
  void Apply(optim::DenseOptimizer& optimizer, uint64_t step, const std::vector<Tensor>& gradients,
             double learning_rate, double gradient_scale, Stream& stream);

 private:
  const std::string name_;
  absl::Mutex mutex_;
  ModuleRegistry::Made made_;  // the set of parameters never changes; mutex_ guards their values
  // Holders of the present values, or of some of them.
  std::set<const void*> holders_ ABSL_GUARDED_BY(mutex_);
};

// The gradients of module parameters from a context's calls: sums over the calls, in their order
// (Frame::order).
using ModuleGradients = std::map<const HostedModule*, std::vector<Tensor>>;

class HostedOptimizer {
 public:
  explicit HostedOptimizer(const optim::DenseOptions& options) : options_(options) {}

  // Adds a parameter. REQUIRES: called before the first Step; the module has that parameter.
  void Add(std::shared_ptr<HostedModule> module, size_t place);
  // Returns how many parameters had a gradient. Takes the gradients of the optimizer's parameters
  // from `gradients` and leaves the others.
  uint64_t Step(ModuleGradients& gradients, double learning_rate, double gradient_scale,
                Stream& stream);

 private:
  struct Part {
    std::shared_ptr<HostedModule> module;
    std::set<size_t> places;
    std::unique_ptr<optim::DenseOptimizer> optimizer;
  };
  const optim::DenseOptions options_;
  std::vector<Part> parts_;
  absl::Mutex mutex_;
  uint64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::remote
