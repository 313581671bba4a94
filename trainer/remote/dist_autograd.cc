#include "trainer/remote/dist_autograd.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace tandem::remote {

DistAutogradContext::DistAutogradContext(Host& host, Context& context,
                                         const DistAutogradOptions& options)
    : mode_(options.mode),
      context_(context),
      frame_(std::make_shared<Frame>(
          &host, host.BeginContext(std::min(context.deadline(), absl::Now() + options.timeout)),
          &context)) {}

DistAutogradContext::~DistAutogradContext() {
  const absl::Status status = context_.status();
  frame_->Detach();
  frame_->host().EndContext(id(), status);
}

void DistAutogradContext::Backward(const std::vector<BackwardRoot>& roots) {
  if (!context_.failed()) context_.Fail(frame_->share()->status());
  if (!context_.failed()) frame_->RunOwn(roots, mode_);
  // Tells the other processes now, so that they need not wait for this object's end.
  if (context_.failed()) frame_->host().EndContext(id(), context_.status());
}

}  // namespace tandem::remote
