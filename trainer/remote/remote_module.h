// A module in another process, called like a layer. Within a context, its outputs are part of the
// caller's graph. The same holds in the frame of a hosted module: calls nest over any number of
// processes.
// Thread rule: the frame's thread. Arrays lie in host memory.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/future.h"
#include "trainer/remote/frame.h"
#include "trainer/remote/remote_ref.h"

namespace tandem::remote {

// Outputs in flight. REQUIRES: Await is called once, before the frame is destroyed.
class PendingOutputs {
 public:
  // Waits, and makes the outputs part of the graph. A failure also fails the step's context, and
  // names peer, call and time.
  absl::StatusOr<std::vector<Variable>> Await();

 private:
  friend class RemoteModule;
  absl::StatusOr<std::vector<Variable>> Read(absl::StatusOr<rpc::Payload> payload);

  std::shared_ptr<Frame> frame_;
  uint64_t call_ = 0;
  std::string what_;
  rpc::Future<rpc::Payload> answer_;
};

// One parameter of a remote module.
struct RemoteParameter {
  RemoteRef module;
  std::string name;
};

class RemoteModule {
 public:
  explicit RemoteModule(RemoteRef ref) : ref_(std::move(ref)) {}
  // Like RemoteRef::Create.
  static absl::StatusOr<RemoteModule> Create(Host& host, const std::string& owner,
                                             const std::string& module,
                                             const std::string& arguments, absl::Time deadline);

  const RemoteRef& ref() const { return ref_; }
  std::vector<RemoteParameter> Parameters() const;

  // Sends one message and receives one. A frame that is not training gets constants.
  PendingOutputs ForwardAsync(Frame& frame, const std::vector<Variable>& inputs) const;
  absl::StatusOr<std::vector<Variable>> Forward(Frame& frame,
                                                const std::vector<Variable>& inputs) const {
    return ForwardAsync(frame, inputs).Await();
  }
  // Outside any context: evaluates without gradients.
  absl::StatusOr<std::vector<Tensor>> Evaluate(const std::vector<Tensor>& inputs,
                                               absl::Time deadline) const;

 private:
  RemoteRef ref_;
};

}  // namespace tandem::remote
