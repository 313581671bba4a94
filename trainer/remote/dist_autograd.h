// A distributed autograd context: one step of a trainer over all processes that its calls reach,
// nested calls included. Calls made in the context are part of the step's graph, and Backward runs
// the whole graph. The end, every failure and the deadline end the context at every process, where
// nothing of it is left. Parameters of remote modules keep the gradients of each context apart;
// remote_optimizer.h applies them. The trainer's own leaves get their gradients as usual, and their
// hooks run.
// Thread rule: the step's thread.
#pragma once

#include <memory>
#include <vector>

#include "trainer/remote/host.h"

namespace tandem::remote {

struct DistAutogradOptions {
  // SMART serves only the calls that the loss reaches. FAST sends a message along every edge of
  // every call, as if the loss reached all of them.
  PassMode mode = PassMode::SMART;
  // The limit for the whole context; the step's deadline may be earlier.
  absl::Duration timeout = absl::Seconds(60);
};

class DistAutogradContext {
 public:
  // REQUIRES: host and context outlive this object.
  DistAutogradContext(Host& host, Context& context, const DistAutogradOptions& options = {});
  ~DistAutogradContext();
  DistAutogradContext(const DistAutogradContext&) = delete;
  DistAutogradContext& operator=(const DistAutogradContext&) = delete;

  uint64_t id() const { return frame_->share()->id(); }
  Host& host() const { return frame_->host(); }
  absl::Time deadline() const { return frame_->share()->deadline(); }
  // The frame that remote modules take.
  Frame& frame() const { return *frame_; }

  // Like tandem::Backward. Returns when every process has its gradients. A failure fails the step's
  // context and names peer and call.
  void Backward(const std::vector<BackwardRoot>& roots);
  void Backward(const Variable& loss) { Backward(std::vector<BackwardRoot>{{loss, Tensor()}}); }

 private:
  const PassMode mode_;
  Context& context_;
  const std::shared_ptr<Frame> frame_;
};

}  // namespace tandem::remote
