// Objects that a process keeps for others: a module with its parameters, and an optimizer over parameters of such modules. A call
// computes, forward and backward, with the values that it found; an optimizer that would change them meanwhile changes a copy, which
// is what later calls find. So steps of other trainers never reach into a call.
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
  HostedModule(std::string name, ModuleRegistry::Made made) : name_(std::move(name)), made_(std::move(made)) {}

  const std::string& name() const { return name_; }
  Module& module() { return *made_.module; }
  // The place of a parameter; -1: there is none.
  int PlaceOf(const std::string& parameter) const;
  size_t num_parameters() const { return made_.parameters->all().size(); }
  const std::string& NameOf(size_t place) const { return made_.parameters->all()[place]->name; }

  // New leaves over the values as they are, which stay so until whoever holds the second drops it.
  struct Leaves {
    std::vector<Variable> parameters;
    std::shared_ptr<void> hold;
  };
  Leaves Snapshot();
  // Copies of the values.
  std::vector<Tensor> Fetch();

  // An optimizer of these parameters alone. REQUIRES: gradients of the parameters' shapes, undefined where there is none.
  std::unique_ptr<optim::DenseOptimizer> MakeOptimizer(const optim::DenseOptions& options);
  void Apply(optim::DenseOptimizer& optimizer, uint64_t step, const std::vector<Tensor>& gradients, double learning_rate,
             double gradient_scale, Stream& stream);

 private:
  const std::string name_;
  absl::Mutex mutex_;
  ModuleRegistry::Made made_;  // which parameters there are never changes; their values are guarded
  std::set<const void*> holders_ ABSL_GUARDED_BY(mutex_);  // of the present values, or of some of them
};

// What a context's calls have given to the parameters of modules: sums over the calls, in their order (Frame::order).
using ModuleGradients = std::map<const HostedModule*, std::vector<Tensor>>;

class HostedOptimizer {
 public:
  explicit HostedOptimizer(const optim::DenseOptions& options) : options_(options) {}

  // Before the first Step. REQUIRES: the module has that parameter.
  void Add(std::shared_ptr<HostedModule> module, size_t place);
  // Returns how many parameters had a gradient. Gradients of parameters that are not the optimizer's are left alone, the others taken.
  uint64_t Step(ModuleGradients& gradients, double learning_rate, double gradient_scale, Stream& stream);

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
