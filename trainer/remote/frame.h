// One process's part of a distributed graph, for one call: what a remote call computed here, or (call 0) what a trainer computes
// itself. Where values left it for another process, a `send` node waits for their gradient; where values came from another
// process, a `recv` node passes their gradient on. The engine knows neither network nor frames: a send is a root whose gradient
// arrives later, a recv a leaf that completes later.
//
// A frame knows, of every call that it made, which of the call's inputs each of its outputs depends on: the callee says so in its
// reply, nested calls included. So a pass in SMART mode finds by a walk from its roots alone which sends will get a gradient, here
// and beyond: the others are neither waited for nor sent anything. FAST mode serves every edge of every call, NONE where nothing flows.
// Thread rule: forward and backward on the frame's thread; gradients arrive and Fail comes from any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "trainer/autograd/engine.h"
#include "trainer/remote/hosted_module.h"

namespace tandem::remote {

class ContextShare;
class Host;

enum class PassMode { SMART, FAST };

// The places of a call's inputs.
using Places = std::set<uint32_t>;

// A value's departure: its gradient, or that there is none, arrives once.
class SendNode : public Node {
 public:
  SendNode(uint64_t sequence, const Variable& value)
      : Node("send", sequence, {value.node()}, {}), shape_(value.shape()), dtype_(value.dtype()) {}
  void BackwardInput(Context& context, const Tensor& gradient, Complete complete) override;
  bool ReadsGradientOnHost() const override { return true; }
  // InvalidArgument if that is no gradient of the value.
  absl::Status Check(const Tensor& gradient) const;
  void Arrive(Tensor gradient);

 private:
  const Shape shape_;
  const DType dtype_;
  absl::Mutex mutex_;
  bool arrived_ ABSL_GUARDED_BY(mutex_) = false;
  Tensor gradient_ ABSL_GUARDED_BY(mutex_);
  Complete complete_ ABSL_GUARDED_BY(mutex_);
};

// A value's arrival: input `place` of the frame's own call, or output `place` of a call that the frame made.
class RecvNode : public Node {
 public:
  RecvNode(std::string name, uint64_t sequence, std::weak_ptr<Frame> frame, uint64_t call, uint32_t place)
      : Node(std::move(name), sequence, {}, {}), frame_(std::move(frame)), call_(call), place_(place) {}
  void BackwardInput(Context& context, const Tensor& gradient, Complete complete) override;

  bool IsOf(const Frame& frame) const { return frame_.lock().get() == &frame; }
  uint64_t call() const { return call_; }
  uint32_t place() const { return place_; }

 private:
  const std::weak_ptr<Frame> frame_;
  const uint64_t call_;
  const uint32_t place_;
};

// A call's gradients of one direction, which travel in one message.
struct GradientBundle {
  uint64_t call = 0;
  bool of_inputs = false;  // to the frame's caller
  bool fast = false;
  std::vector<uint32_t> places;
  std::vector<Tensor> gradients;
};

class Frame : public std::enable_shared_from_this<Frame> {
 public:
  // A trainer's own (call 0); `context` is the step's, until Detach.
  Frame(Host* host, std::shared_ptr<ContextShare> share, Context* context);
  // Of a call to a module of this process.
  Frame(Host* host, std::shared_ptr<ContextShare> share, uint64_t call, std::vector<uint64_t> order, std::string caller,
        const Context::Options& options);
  ~Frame();

  Context& context() { return *context_; }
  Host& host() const { return *host_; }
  // Null: a call that only looks, without gradients.
  const std::shared_ptr<ContextShare>& share() const { return share_; }
  uint64_t call() const { return call_; }
  const std::string& caller() const { return caller_; }
  // The call's place among those of its context: for each call around it, and for itself, the index where it was made.
  const std::vector<uint64_t>& order() const { return order_; }
  // Of the call that is made now.
  std::vector<uint64_t> NextOrder();

  void Fail(const absl::Status& status);
  absl::Status status() const;
  // The step's context goes: nothing of it is touched any more.
  void Detach();

  // For modules: what a call needs until its gradients are complete. It goes with the context.
  void Keep(std::shared_ptr<const void> needed) { kept_.push_back(std::move(needed)); }

  // Callee's side of a call. `inputs` where `needs_gradient` get recv nodes.
  std::vector<Variable> TakeInputs(const std::vector<Tensor>& inputs, const std::vector<bool>& needs_gradient);
  void KeepLeaves(std::shared_ptr<HostedModule> module, HostedModule::Leaves leaves);
  // What the outputs depend on, and their sends: entry i is null where output i needs no gradient.
  std::vector<Places> KeepOutputs(const std::vector<Variable>& outputs);
  // The callee's pass, once, after gradients of the outputs have come. Blocks until all of it is over, here and beyond.
  absl::Status RunCalled(GradientBundle bundle);
  // Adds what the pass has left at the leaves, and forgets it.
  void TakeGradients(ModuleGradients* sum);

  // Caller's side: input sends of a call to be made.
  void BeginCall(uint64_t call, std::string callee, const std::vector<Variable>& inputs);
  // The reply came: makes recv nodes for the outputs. `reaches[i]`: what output i depends on.
  std::vector<Variable> EndCall(uint64_t call, const std::vector<Tensor>& outputs, const std::vector<bool>& needs_gradient,
                                std::vector<Places> reaches, const std::string& what);
  void DropCall(uint64_t call);
  // Gradients of inputs have come back from a callee: all that are awaited, or it is InvalidArgument. NotFound if none are.
  absl::Status ArriveInputs(GradientBundle bundle);
  // The caller's own pass, from these roots.
  void RunOwn(const std::vector<BackwardRoot>& roots, PassMode mode);

 private:
  friend class RecvNode;
  // What must be there before a message can go.
  struct Collected {
    std::set<uint32_t> missing;
    std::map<uint32_t, Tensor> gradients;
    std::vector<Node::Complete> completes;
  };
  struct MadeCall {
    std::string callee;
    std::map<uint32_t, std::shared_ptr<SendNode>> inputs;  // that need a gradient and can get one
    std::map<uint32_t, Places> outputs;                    // that need a gradient, and what they depend on
    Places awaited;                                        // inputs whose gradients the pass at hand waits for
  };
  // What a walk over the graph reached.
  struct Reached {
    std::map<uint64_t, std::set<uint32_t>> outputs;  // of calls made
    std::map<uint64_t, Places> inputs;               // of calls made: their sends are live
    Places own_inputs;
    std::unordered_set<const Node*> seen;
  };

  void Walk(const std::shared_ptr<Node>& from, Reached* reached) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Arranges messages for what was reached and adds the sends to `roots`. Returns what can be sent at once.
  std::vector<GradientBundle> Prepare(const Reached& reached, PassMode mode, std::vector<BackwardRoot>* roots);
  void RunPass(std::vector<BackwardRoot> roots, PassMode mode);
  void Collect(const RecvNode& node, const Tensor& gradient, Node::Complete complete);
  void Ship(GradientBundle bundle, std::vector<Node::Complete> completes);
  // The callee says that its part of the pass is over; Internal if gradients are still awaited, which then would never come.
  absl::Status CheckOver(uint64_t call) const;

  Host* const host_;
  const std::shared_ptr<ContextShare> share_;
  const uint64_t call_;
  const std::vector<uint64_t> order_;
  uint64_t num_calls_ = 0;    // made so far; the frame's thread
  const std::string caller_;  // address; empty: a trainer's own
  std::unique_ptr<Stream> own_stream_;
  std::unique_ptr<Context> own_context_;
  Context* const context_;

  mutable absl::Mutex mutex_;
  bool detached_ ABSL_GUARDED_BY(mutex_) = false;
  bool ran_ ABSL_GUARDED_BY(mutex_) = false;  // a callee's pass
  bool done_ ABSL_GUARDED_BY(mutex_) = false;  // it ran well: gradients are at the leaves
  bool fast_ ABSL_GUARDED_BY(mutex_) = false;  // the pass at hand
  std::map<uint32_t, std::shared_ptr<SendNode>> outputs_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, MadeCall> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Collected> collected_ ABSL_GUARDED_BY(mutex_);  // by call; call() itself: its inputs
  struct Leaves {
    std::shared_ptr<HostedModule> module;
    HostedModule::Leaves leaves;
  };
  std::vector<Leaves> leaves_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const void>> kept_;  // the frame's thread
};

}  // namespace tandem::remote
