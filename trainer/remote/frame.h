// One process's part of a distributed graph, for one call: the values that a remote call computes
// here, or (call 0) the values that a trainer computes itself. A `send` node stands where a value
// leaves the process: it waits for the value's gradient. A `recv` node stands where a value
// arrives: it passes the value's gradient on. The engine knows neither network nor frames. For the
// engine, a send is a root whose gradient arrives later, and a recv is a leaf that completes later.
//
// For every call that a frame made, the frame knows which inputs each output depends on. The
// callee's reply says so, nested calls included. So a pass in SMART mode walks the graph from its
// roots. The walk finds the sends, here and beyond, that will get a gradient. The pass neither
// waits for the other sends nor sends them anything. FAST mode serves every edge of every call,
// with NONE where no gradient flows.
// Thread rule: forward and backward on the frame's thread; gradients arrive, and Fail is called, on
// any thread.
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

// The point where a value leaves the process. The value's gradient, or its absence, arrives once.
class SendNode : public Node {
 public:
  SendNode(uint64_t sequence, const Variable& value)
      : Node("send", sequence, {value.node()}, {}), shape_(value.shape()), dtype_(value.dtype()) {}
  void BackwardInput(Context& context, const Tensor& gradient, Complete complete) override;
  bool ReadsGradientOnHost() const override { return true; }
  // Returns InvalidArgument if `gradient` does not have the value's shape and type.
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

// The point where a value arrives: input `place` of the frame's own call, or output `place` of a
// call that the frame made.
class RecvNode : public Node {
 public:
  RecvNode(std::string name, uint64_t sequence, std::weak_ptr<Frame> frame, uint64_t call,
           uint32_t place)
      : Node(std::move(name), sequence, {}, {}),
        frame_(std::move(frame)),
        call_(call),
        place_(place) {}
  void BackwardInput(Context& context, const Tensor& gradient, Complete complete) override;

  bool IsOf(const Frame& frame) const { return frame_.lock().get() == &frame; }
  uint64_t call() const { return call_; }
  uint32_t place() const { return place_; }

 private:
  const std::weak_ptr<Frame> frame_;
  const uint64_t call_;
  const uint32_t place_;
};

// The gradients of a call in one direction. They travel in one message.
struct GradientBundle {
  uint64_t call = 0;
  bool of_inputs = false;  // to the frame's caller
  bool fast = false;
  std::vector<uint32_t> places;
  std::vector<Tensor> gradients;
};

class Frame : public std::enable_shared_from_this<Frame> {
 public:
  // Makes a trainer's own frame (call 0). `context` is the step's, until Detach.
  Frame(Host* host, std::shared_ptr<ContextShare> share, Context* context);
  // Makes the frame of a call to a module of this process.
  Frame(Host* host, std::shared_ptr<ContextShare> share, uint64_t call, std::vector<uint64_t> order,
        std::string caller, const Context::Options& options);
  ~Frame();

  Context& context() { return *context_; }
  Host& host() const { return *host_; }
  // Null for a call that only evaluates, without gradients.
  const std::shared_ptr<ContextShare>& share() const { return share_; }
  uint64_t call() const { return call_; }
  const std::string& caller() const { return caller_; }
  // The call's place among the calls of its context: for each enclosing call, and for the call
  // itself, the index at which it was made.
  const std::vector<uint64_t>& order() const { return order_; }
  // The order of the call that is about to be made.
  std::vector<uint64_t> NextOrder();

  void Fail(const absl::Status& status);
  absl::Status status() const;
  // Call before the step's context is destroyed. The frame no longer touches the context
  // afterwards.
  void Detach();

  // For modules: keeps an object that a call needs until its gradients are complete. The object is
  // released with the context.
  void Keep(std::shared_ptr<const void> needed) { kept_.push_back(std::move(needed)); }

  // Callee's side of a call. Inputs with `needs_gradient` get recv nodes.
  std::vector<Variable> TakeInputs(const std::vector<Tensor>& inputs,
                                   const std::vector<bool>& needs_gradient);
  void KeepLeaves(std::shared_ptr<HostedModule> module, HostedModule::Leaves leaves);
  // Returns what the outputs depend on, and makes their sends. Entry i has no send if output i
  // needs no gradient.
  std::vector<Places> KeepOutputs(const std::vector<Variable>& outputs);
  // Runs the callee's pass once, after gradients of the outputs have arrived. Blocks until the
  // whole pass is over, here and beyond.
  absl::Status RunCalled(GradientBundle bundle);
  // Adds the gradients that the pass left at the leaves to `sum`, and forgets them.
  void TakeGradients(ModuleGradients* sum);

  // Caller's side: makes the sends of the inputs of a call that is about to be made.
  void BeginCall(uint64_t call, std::string callee, const std::vector<Variable>& inputs);
  // Handles the reply: makes recv nodes for the outputs. Output i depends on the places
  // `reaches[i]`.
  std::vector<Variable> EndCall(uint64_t call, const std::vector<Tensor>& outputs,
                                const std::vector<bool>& needs_gradient,
                                std::vector<Places> reaches, const std::string& what);
  void DropCall(uint64_t call);
  // Takes the gradients of inputs that a callee returned. InvalidArgument unless they are all that
  // are awaited. NotFound if none are awaited.
  absl::Status ArriveInputs(GradientBundle bundle);
  // Runs the caller's own pass from these roots.
  void RunOwn(const std::vector<BackwardRoot>& roots, PassMode mode);

 private:
  friend class RecvNode;
  // The gradients collected for a message. The message leaves when none is missing.
  struct Collected {
    std::set<uint32_t> missing;
    std::map<uint32_t, Tensor> gradients;
    std::vector<Node::Complete> completes;
  };
  struct MadeCall {
    std::string callee;
    // Inputs that need a gradient and can get one.
    std::map<uint32_t, std::shared_ptr<SendNode>> inputs;
    // Outputs that need a gradient, and the inputs they depend on.
    std::map<uint32_t, Places> outputs;
    Places awaited;  // inputs whose gradients the current pass waits for
  };
  // The nodes that a walk over the graph reached.
  struct Reached {
    std::map<uint64_t, std::set<uint32_t>> outputs;  // outputs of calls made
    std::map<uint64_t, Places> inputs;               // inputs of calls made, whose sends are live
    Places own_inputs;
    std::unordered_set<const Node*> seen;
  };

  void Walk(const std::shared_ptr<Node>& from, Reached* reached) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Arranges messages for the reached nodes and adds the sends to `roots`. Returns the messages
  // that can be sent at once.
  std::vector<GradientBundle> Prepare(const Reached& reached, PassMode mode,
                                      std::vector<BackwardRoot>* roots);
  void RunPass(std::vector<BackwardRoot> roots, PassMode mode);
  void Collect(const RecvNode& node, const Tensor& gradient, Node::Complete complete);
  void Ship(GradientBundle bundle, std::vector<Node::Complete> completes);
  // The callee says that its part of the pass is over. Returns Internal if gradients are still
  // awaited, because they would never come.
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
  bool ran_ ABSL_GUARDED_BY(mutex_) = false;   // a callee's pass has run
  bool done_ ABSL_GUARDED_BY(mutex_) = false;  // the pass ended well: gradients are at the leaves
  bool fast_ ABSL_GUARDED_BY(mutex_) = false;  // the current pass's mode
  std::map<uint32_t, std::shared_ptr<SendNode>> outputs_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, MadeCall> calls_ ABSL_GUARDED_BY(mutex_);
  // By call; call() itself: its own inputs.
  std::map<uint64_t, Collected> collected_ ABSL_GUARDED_BY(mutex_);
  struct Leaves {
    std::shared_ptr<HostedModule> module;
    HostedModule::Leaves leaves;
  };
  std::vector<Leaves> leaves_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const void>> kept_;  // the frame's thread
};

}  // namespace tandem::remote
