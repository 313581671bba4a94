#include "trainer/remote/frame.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"
#include "trainer/remote/context_share.h"
#include "trainer/remote/host.h"

namespace tandem::remote {

void SendNode::BackwardInput(Context&, const Tensor&, Complete complete) {
  Tensor gradient;
  {
    absl::MutexLock lock(&mutex_);
    if (!arrived_) {
      complete_ = std::move(complete);
      return;
    }
    gradient = std::move(gradient_);
  }
  complete({std::move(gradient)});
}

absl::Status SendNode::Check(const Tensor& gradient) const {
  if (!gradient.defined() || (gradient.shape() == shape_ && gradient.dtype() == dtype_))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a gradient of ", gradient.num_elements(), " ", NameOf(gradient.dtype()),
                   " elements for a value of ", shape_.num_elements(), " ", NameOf(dtype_)));
}

void SendNode::Arrive(Tensor gradient) {
  Complete complete;
  {
    absl::MutexLock lock(&mutex_);
    arrived_ = true;
    complete = std::move(complete_);
    if (!complete) gradient_ = std::move(gradient);
  }
  if (complete) complete({std::move(gradient)});
}

void RecvNode::BackwardInput(Context& context, const Tensor& gradient, Complete complete) {
  if (const std::shared_ptr<Frame> frame = frame_.lock())
    return frame->Collect(*this, gradient, std::move(complete));
  context.Fail(absl::FailedPreconditionError(
      absl::StrCat("the distributed context of ", name(), " is over")));
  complete({});
}

Frame::Frame(Host* host, std::shared_ptr<ContextShare> share, Context* context)
    : host_(host), share_(std::move(share)), call_(0), context_(context) {}

Frame::Frame(Host* host, std::shared_ptr<ContextShare> share, uint64_t call,
             std::vector<uint64_t> order, std::string caller, const Context::Options& options)
    : host_(host),
      share_(std::move(share)),
      call_(call),
      order_(std::move(order)),
      caller_(std::move(caller)),
      own_stream_(std::make_unique<Stream>(&host->pool())),
      own_context_([&] {
        Context::Options with_stream = options;
        with_stream.stream = own_stream_.get();
        return std::make_unique<Context>(with_stream);
      }()),
      context_(own_context_.get()) {}

Frame::~Frame() = default;

std::vector<uint64_t> Frame::NextOrder() {
  std::vector<uint64_t> order = order_;
  order.push_back(num_calls_++);
  return order;
}

void Frame::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!detached_) context_->Fail(status);
}

absl::Status Frame::status() const {
  absl::MutexLock lock(&mutex_);
  return detached_ ? absl::CancelledError("the step is over") : context_->status();
}

void Frame::Detach() {
  absl::MutexLock lock(&mutex_);
  detached_ = true;
}

std::vector<Variable> Frame::TakeInputs(const std::vector<Tensor>& inputs,
                                        const std::vector<bool>& needs_gradient) {
  std::vector<Variable> variables;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!needs_gradient[i] || share_ == nullptr) {
      variables.push_back(Variable::Constant(inputs[i]));
      continue;
    }
    const auto place = static_cast<uint32_t>(i);
    variables.emplace_back(inputs[i], std::make_shared<RecvNode>(absl::StrCat("recv of input ", i),
                                                                 context_->NextNode(),
                                                                 weak_from_this(), call_, place));
  }
  return variables;
}

void Frame::KeepLeaves(std::shared_ptr<HostedModule> module, HostedModule::Leaves leaves) {
  absl::MutexLock lock(&mutex_);
  leaves_.push_back({std::move(module), std::move(leaves)});
}

std::vector<Places> Frame::KeepOutputs(const std::vector<Variable>& outputs) {
  std::vector<Places> reaches(outputs.size());
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_gradient()) continue;
    outputs_[static_cast<uint32_t>(i)] =
        std::make_shared<SendNode>(context_->NextNode(), outputs[i]);
    Reached reached;
    Walk(outputs[i].node(), &reached);
    reaches[i] = std::move(reached.own_inputs);
  }
  if (outputs_.empty()) leaves_.clear();  // no pass will come
  return reaches;
}

void Frame::BeginCall(uint64_t call, std::string callee, const std::vector<Variable>& inputs) {
  MadeCall made;
  made.callee = std::move(callee);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_gradient() || !context_->training()) continue;
    made.inputs[static_cast<uint32_t>(i)] =
        std::make_shared<SendNode>(context_->NextNode(), inputs[i]);
  }
  absl::MutexLock lock(&mutex_);
  calls_[call] = std::move(made);
}

std::vector<Variable> Frame::EndCall(uint64_t call, const std::vector<Tensor>& outputs,
                                     const std::vector<bool>& needs_gradient,
                                     std::vector<Places> reaches, const std::string& what) {
  std::vector<Variable> variables;
  absl::MutexLock lock(&mutex_);
  MadeCall& made = calls_[call];
  Places reached;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!needs_gradient[i]) {
      variables.push_back(Variable::Constant(outputs[i]));
      continue;
    }
    const auto place = static_cast<uint32_t>(i);
    variables.emplace_back(outputs[i], std::make_shared<RecvNode>(
                                           absl::StrCat("recv of output ", i, " of ", what),
                                           context_->NextNode(), weak_from_this(), call, place));
    reached.insert(reaches[i].begin(), reaches[i].end());
    made.outputs[place] = std::move(reaches[i]);
  }
  for (auto input = made.inputs.begin(); input != made.inputs.end();) {
    input = reached.count(input->first) > 0 ? std::next(input) : made.inputs.erase(input);
  }
  if (made.outputs.empty()) calls_.erase(call);
  return variables;
}

void Frame::DropCall(uint64_t call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(call);
}

void Frame::Walk(const std::shared_ptr<Node>& from, Reached* reached) const {
  std::vector<const Node*> stack;
  const auto visit = [&](const std::shared_ptr<Node>& node) {
    if (node && reached->seen.insert(node.get()).second) stack.push_back(node.get());
  };
  visit(from);
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    for (const auto& input : node->inputs()) visit(input);
    for (const auto& weight : node->weights()) visit(weight);
    const auto* recv = dynamic_cast<const RecvNode*>(node);
    if (recv == nullptr || !recv->IsOf(*this)) continue;
    if (recv->call() == call_) {
      reached->own_inputs.insert(recv->place());
      continue;
    }
    // The walk continues behind the sends of the inputs that this output depends on.
    const auto made = calls_.find(recv->call());
    if (made == calls_.end()) continue;
    const auto output = made->second.outputs.find(recv->place());
    if (output == made->second.outputs.end()) continue;
    reached->outputs[recv->call()].insert(recv->place());
    for (const uint32_t place : output->second) {
      const auto input = made->second.inputs.find(place);
      if (input == made->second.inputs.end() || !reached->inputs[recv->call()].insert(place).second)
        continue;
      visit(input->second);
    }
  }
}

std::vector<GradientBundle> Frame::Prepare(const Reached& reached, PassMode mode,
                                           std::vector<BackwardRoot>* roots) {
  std::vector<GradientBundle> empty;
  const bool fast = mode == PassMode::FAST;
  absl::MutexLock lock(&mutex_);
  fast_ = fast;
  for (auto& [call, made] : calls_) {
    const auto live = reached.outputs.find(call);
    if (live == reached.outputs.end() && !fast) continue;
    Collected& collected = collected_[call];
    if (live != reached.outputs.end()) collected.missing = live->second;
    for (const auto& [place, depends] : made.outputs) {
      if (fast && collected.missing.count(place) == 0) collected.gradients[place] = Tensor();
    }
    const auto live_inputs = reached.inputs.find(call);
    for (const auto& [place, send] : made.inputs) {
      if (!fast && (live_inputs == reached.inputs.end() || live_inputs->second.count(place) == 0))
        continue;
      made.awaited.insert(place);
      roots->push_back({Variable(Tensor::Empty(Shape{}, DType::F32), send), Tensor()});
    }
    if (!collected.missing.empty()) continue;
    GradientBundle bundle{call, false, fast, {}, {}};
    for (const auto& [place, gradient] : collected.gradients) {
      bundle.places.push_back(place);
      bundle.gradients.push_back(gradient);
    }
    collected_.erase(call);
    empty.push_back(std::move(bundle));
  }
  if (!reached.own_inputs.empty()) collected_[call_].missing = reached.own_inputs;
  return empty;
}

void Frame::RunPass(std::vector<BackwardRoot> roots, PassMode mode) {
  Reached reached;
  {
    absl::MutexLock lock(&mutex_);
    for (const BackwardRoot& root : roots) Walk(root.variable.node(), &reached);
    // In FAST mode every send is a root, even if the loss does not reach its call.
    for (const auto& [call, made] : calls_) {
      if (mode == PassMode::SMART) break;
      for (const auto& [place, send] : made.inputs) Walk(send, &reached);
    }
  }
  for (GradientBundle& bundle : Prepare(reached, mode, &roots)) Ship(std::move(bundle), {});
  Backward(*context_, roots);
  absl::MutexLock lock(&mutex_);
  for (auto call = calls_.begin(); call != calls_.end();) {
    const bool over = mode == PassMode::FAST || reached.outputs.count(call->first) > 0;
    call = over ? calls_.erase(call) : std::next(call);
  }
  collected_.clear();
}

void Frame::RunOwn(const std::vector<BackwardRoot>& roots, PassMode mode) {
  std::vector<BackwardRoot> with_node;
  for (const BackwardRoot& root : roots) {
    if (root.variable.requires_gradient()) with_node.push_back(root);
  }
  RunPass(std::move(with_node), mode);
}

absl::Status Frame::RunCalled(GradientBundle bundle) {
  std::vector<BackwardRoot> roots;
  {
    absl::MutexLock lock(&mutex_);
    if (ran_)
      return absl::FailedPreconditionError(
          absl::StrCat("call ", call_, " has had its backward pass"));
    for (size_t i = 0; i < bundle.places.size(); ++i) {
      const auto send = outputs_.find(bundle.places[i]);
      if (send == outputs_.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("output ", bundle.places[i], " takes no gradient"));
      }
      RETURN_IF_ERROR(send->second->Check(bundle.gradients[i]));
    }
    ran_ = true;
    for (size_t i = 0; i < bundle.places.size(); ++i) {
      const std::shared_ptr<SendNode>& send = outputs_[bundle.places[i]];
      send->Arrive(std::move(bundle.gradients[i]));
      roots.push_back({Variable(Tensor::Empty(Shape{}, DType::F32), send), Tensor()});
    }
  }
  RunPass(std::move(roots), bundle.fast ? PassMode::FAST : PassMode::SMART);
  std::map<uint32_t, std::shared_ptr<SendNode>> graph;  // destroyed outside the lock
  absl::MutexLock lock(&mutex_);
  graph.swap(outputs_);
  for (Leaves& leaves : leaves_) leaves.leaves.hold.reset();
  done_ = context_->status().ok();
  return context_->status();
}

void Frame::TakeGradients(ModuleGradients* sum) {
  absl::MutexLock lock(&mutex_);
  if (!done_) return;
  for (const Leaves& leaves : leaves_) {
    const std::vector<Variable>& parameters = leaves.leaves.parameters;
    std::vector<Tensor>& sums = (*sum)[leaves.module.get()];
    sums.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      LeafNode& leaf = parameters[i].leaf();
      if (!leaf.has_gradient()) continue;
      if (sums[i].defined())
        kernels::Add(sums[i].view(), sums[i].view(), leaf.gradient().view(), *own_stream_);
      else
        sums[i] = leaf.gradient().unique() ? leaf.gradient() : leaf.gradient().Clone();
      leaf.ClearGradient();
    }
  }
}

absl::Status Frame::ArriveInputs(GradientBundle bundle) {
  std::vector<std::pair<std::shared_ptr<SendNode>, Tensor>> sends;
  {
    absl::MutexLock lock(&mutex_);
    const auto made = calls_.find(bundle.call);
    const bool known = made != calls_.end();
    // FAST also serves calls whose outputs the module dropped. Undefined gradients of inputs that
    // have no send are ignored.
    std::vector<size_t> taken;
    for (size_t i = 0; i < bundle.places.size(); ++i) {
      if (bundle.gradients[i].defined() ||
          (known && made->second.inputs.count(bundle.places[i]) > 0))
        taken.push_back(i);
    }
    if (taken.empty()) return absl::OkStatus();
    if (!known || made->second.awaited.empty()) {
      return absl::NotFoundError(
          absl::StrCat("no gradients of call ", bundle.call, " are expected"));
    }
    for (const uint32_t place : made->second.awaited) {
      if (std::find(bundle.places.begin(), bundle.places.end(), place) != bundle.places.end())
        continue;
      return absl::InvalidArgumentError(absl::StrCat("the gradients of call ", bundle.call,
                                                     " lack that of input ", place,
                                                     ", and there is no second message"));
    }
    for (const size_t i : taken) {
      const auto send = made->second.inputs.find(bundle.places[i]);
      if (send == made->second.inputs.end()) {
        return absl::InvalidArgumentError(absl::StrCat("input ", bundle.places[i], " of call ",
                                                       bundle.call, " takes no gradient"));
      }
      RETURN_IF_ERROR(send->second->Check(bundle.gradients[i]));
      sends.emplace_back(send->second, std::move(bundle.gradients[i]));
    }
    made->second.awaited.clear();
  }
  for (auto& [send, gradient] : sends) send->Arrive(std::move(gradient));
  return absl::OkStatus();
}

void Frame::Collect(const RecvNode& node, const Tensor& gradient, Node::Complete complete) {
  GradientBundle bundle{node.call(), node.call() == call_, false, {}, {}};
  std::vector<Node::Complete> completes;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = collected_.find(node.call());
    if (found == collected_.end() || found->second.missing.erase(node.place()) == 0) {
      if (!detached_) {
        context_->Fail(absl::FailedPreconditionError(
            absl::StrCat(node.name(), ": a second backward pass, or one of another context")));
      }
    } else {
      Collected& collected = found->second;
      collected.gradients[node.place()] = gradient;
      collected.completes.push_back(std::move(complete));
      if (!collected.missing.empty()) return;
      for (auto& [place, each] : collected.gradients) {
        bundle.places.push_back(place);
        bundle.gradients.push_back(std::move(each));
      }
      bundle.fast = fast_;
      completes = std::move(collected.completes);
      collected_.erase(found);
    }
  }
  if (completes.empty()) return complete({});
  Ship(std::move(bundle), std::move(completes));
}

void Frame::Ship(GradientBundle bundle, std::vector<Node::Complete> completes) {
  std::string peer = caller_;
  if (!bundle.of_inputs) {
    absl::MutexLock lock(&mutex_);
    peer = calls_[bundle.call].callee;
  }
  host_->SendGradients(*share_, peer, bundle,
                       [self = shared_from_this(), call = bundle.call, of_inputs = bundle.of_inputs,
                        completes = std::move(completes)](const absl::Status& sent) {
                         absl::Status status = sent;
                         if (sent.ok() && !of_inputs) status = self->CheckOver(call);
                         if (!status.ok()) self->Fail(status);
                         for (const Node::Complete& complete : completes) complete({});
                       });
}

absl::Status Frame::CheckOver(uint64_t call) const {
  absl::MutexLock lock(&mutex_);
  const auto made = calls_.find(call);
  if (made == calls_.end() || made->second.awaited.empty()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(share_->name(), ": ", made->second.callee, " ended its part of call ",
                   call & ((uint64_t{1} << 48) - 1), " without the gradient of input ",
                   *made->second.awaited.begin()));
}

}  // namespace tandem::remote
