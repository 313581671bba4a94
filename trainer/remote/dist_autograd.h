// A distributed autograd context: one step of a trainer over all processes that its calls reach, nested ones too. Calls made in it are
// part of the step's graph; Backward runs all of it; its end, and every failure and its deadline, ends it at every process, where
// nothing of it is left. The parameters of remote modules keep the gradients of each context apart (remote_optimizer.h applies
// them); the trainer's own leaves get theirs as ever, and their hooks run.
// Thread rule: the step's thread.
#pragma once

#include <memory>
#include <vector>

#include "trainer/remote/host.h"

namespace tandem::remote {

struct DistAutogradOptions {
  // SMART serves what the loss reaches. FAST sends something along every edge of every call, as if the loss reached all.
  PassMode mode = PassMode::SMART;
  absl::Duration timeout = absl::Seconds(60);  // of all of it; the step's context may end it earlier
};

class DistAutogradContext {
 public:
  // Host and context outlive it.
  DistAutogradContext(Host& host, Context& context, const DistAutogradOptions& options = {});
  ~DistAutogradContext();
  DistAutogradContext(const DistAutogradContext&) = delete;
  DistAutogradContext& operator=(const DistAutogradContext&) = delete;

  uint64_t id() const { return frame_->share()->id(); }
  Host& host() const { return frame_->host(); }
  absl::Time deadline() const { return frame_->share()->deadline(); }
  // What remote modules take.
  Frame& frame() const { return *frame_; }

  // As tandem::Backward; returns when every process has its gradients. Failure marks the step's context and names peer and call.
  void Backward(const std::vector<BackwardRoot>& roots);
  void Backward(const Variable& loss) { Backward(std::vector<BackwardRoot>{{loss, Tensor()}}); }

 private:
  const PassMode mode_;
  Context& context_;
  const std::shared_ptr<Frame> frame_;
};

}  // namespace tandem::remote
