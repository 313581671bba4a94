#include "trainer/autograd/engine.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "kernels/elementwise.h"

namespace tandem {

namespace {

// A gradient in flight to a node, and the forward place of the edge it came over.
struct Arrival {
  uint64_t consumer = 0;
  int edge = 0;
  Tensor gradient;
};

struct Pending {
  int missing = 0;  // edges of this pass that have not delivered yet
  std::vector<Arrival> arrivals;
};

struct Completion {
  Node* node = nullptr;
  std::vector<Tensor> gradients;
};

// Asynchronous nodes deliver into it. It outlives the pass if a node completes after the pass gave
// up.
struct Mailbox {
  absl::Mutex mutex;
  std::deque<Completion> completions ABSL_GUARDED_BY(mutex);
};

struct LaterFirst {
  bool operator()(const Node* a, const Node* b) const { return a->sequence() < b->sequence(); }
};

constexpr uint64_t kRootConsumer = ~uint64_t{0};

// The memory for the sum of two gradients: the leaf's storage, or a term that no other tensor
// shares.
Tensor SumTarget(Context& context, Node& node, const Tensor& first, const Tensor& second) {
  for (const Tensor* term : {&first, &second}) {
    if (node.OwnsMemory(*term)) return *term;
  }
  for (const Tensor* term : {&first, &second}) {
    if (term->unique()) return *term;
  }
  return node.GradientMemory(context, first.shape(), first.dtype());
}

// Sums in forward order of the consumers. A single gradient passes through unchanged.
Tensor SumArrivals(Context& context, Node& node, std::vector<Arrival> arrivals) {
  if (arrivals.empty()) return Tensor();
  std::sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) {
    return a.consumer != b.consumer ? a.consumer < b.consumer : a.edge < b.edge;
  });
  if (arrivals.size() == 1) return std::move(arrivals[0].gradient);
  const Tensor &first = arrivals[0].gradient, &second = arrivals[1].gradient;
  Tensor sum = SumTarget(context, node, first, second);
  kernels::Add(sum.view(), first.view(), second.view(), context.stream());
  for (size_t i = 2; i < arrivals.size(); ++i) {
    kernels::Add(sum.view(), sum.view(), arrivals[i].gradient.view(), context.stream());
  }
  return sum;
}

}  // namespace

class BackwardPass {
 public:
  BackwardPass(Context& context, DeferredWeights* deferred)
      : context_(context), deferred_(deferred), mailbox_(std::make_shared<Mailbox>()) {}

  void Run(const std::vector<BackwardRoot>& roots) {
    for (const BackwardRoot& root : roots) {
      if (root.variable.requires_gradient()) Discover(root.variable.node());
    }
    for (size_t i = 0; i < roots.size(); ++i) Seed(roots[i], static_cast<int>(i));
    while (!context_.failed() && (!ready_.empty() || running_ > 0)) {
      if (ready_.empty()) {
        AwaitCompletion();
      } else {
        Node* node = ready_.top();
        ready_.pop();
        RunNode(node);
      }
      DrainMailbox();
    }
  }

  static void DeliverWeights(Context& context, Node& node,
                             const std::function<void(Node*, int, Tensor)>& deliver) {
    std::vector<Tensor> gradients =
        context.failed() ? std::vector<Tensor>() : node.BackwardWeight(context);
    gradients.resize(node.weights().size());
    for (size_t i = 0; i < node.weights().size(); ++i) {
      if (node.weights()[i])
        deliver(node.weights()[i].get(), static_cast<int>(i), std::move(gradients[i]));
    }
    node.Release();
  }

 private:
  void Discover(const std::shared_ptr<Node>& root) {
    ++pending_[root.get()].missing;
    std::vector<std::shared_ptr<Node>> stack;
    if (owners_.emplace(root.get(), root).second) stack.push_back(root);
    while (!stack.empty()) {
      const std::shared_ptr<Node> node = stack.back();
      stack.pop_back();
      for (const auto* edges : {&node->inputs(), &node->weights()}) {
        // With deferral, a later pass of the weight halves delivers the gradients of weights.
        if (edges == &node->weights() && deferred_ != nullptr) {
          for (const std::shared_ptr<Node>& weight : *edges) awaits_weights_.insert(weight.get());
          continue;
        }
        for (const std::shared_ptr<Node>& input : *edges) {
          if (!input) continue;
          ++pending_[input.get()].missing;
          if (owners_.emplace(input.get(), input).second) stack.push_back(input);
        }
      }
    }
  }

  void Seed(const BackwardRoot& root, int index) {
    if (!root.variable.requires_gradient()) return;
    Tensor gradient = root.gradient;
    if (!gradient.defined() && root.variable.node()->ReadsGradientOnHost()) {
      gradient = Tensor::Empty(root.variable.shape(), root.variable.dtype());
      for (int64_t i = 0; i < gradient.num_elements(); ++i) gradient.Set(i, 1);
    } else if (!gradient.defined()) {
      gradient = context_.Empty(root.variable.shape(), root.variable.dtype());
      kernels::Fill(gradient.view(), 1.0, context_.stream());
    }
    TANDEM_CHECK(gradient.shape() == root.variable.shape())
        << gradient.shape() << " vs " << root.variable.shape();
    Deliver(root.variable.node().get(), {kRootConsumer, index, std::move(gradient)});
  }

  void Deliver(Node* node, Arrival arrival) {
    Pending& pending = pending_[node];
    if (arrival.gradient.defined()) pending.arrivals.push_back(std::move(arrival));
    TANDEM_CHECK_GT(pending.missing, 0)
        << node->name() << " got more gradients than it has consumers";
    if (--pending.missing == 0) ready_.push(node);
  }

  void RunNode(Node* node) {
    if (awaits_weights_.count(node) > 0) {
      for (Arrival& arrival : pending_[node].arrivals)
        deferred_->early_.push_back(
            {owners_[node], arrival.consumer, arrival.edge, std::move(arrival.gradient)});
      return;
    }
    ++running_;
    running_name_ = node->name();
    Tensor gradient = SumArrivals(context_, *node, std::move(pending_[node].arrivals));
    const bool is_leaf = node->inputs().empty() && node->weights().empty();
    // Nothing flows here; a leaf must still learn that the pass is over.
    if (!gradient.defined() && !is_leaf && !node->HasGradientElsewhere()) {
      Finish({node, {}}, /*skip_weights=*/true);
      return;
    }
    node->BackwardInput(context_, gradient,
                        [mailbox = mailbox_, node](std::vector<Tensor> gradients) {
                          absl::MutexLock lock(&mailbox->mutex);
                          mailbox->completions.push_back({node, std::move(gradients)});
                        });
  }

  void Finish(Completion completion, bool skip_weights) {
    --running_;
    Node* node = completion.node;
    completion.gradients.resize(node->inputs().size());
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (node->inputs()[i]) {
        Deliver(node->inputs()[i].get(),
                {node->sequence(), static_cast<int>(i), std::move(completion.gradients[i])});
      }
    }
    // Communication that needs these gradients goes on while the weights' are computed.
    while (!context_.failed() && !ready_.empty() && ready_.top()->StartsWork()) {
      Node* const starting = ready_.top();
      ready_.pop();
      RunNode(starting);
    }
    if (deferred_ != nullptr && !node->weights().empty() && !skip_weights) {
      deferred_->nodes_.push_back(owners_[node]);
      return;
    }
    const int first_weight = static_cast<int>(node->inputs().size());
    if (skip_weights) {
      if (deferred_ == nullptr) {
        for (size_t i = 0; i < node->weights().size(); ++i) {
          if (node->weights()[i])
            Deliver(node->weights()[i].get(), {node->sequence(), 0, Tensor()});
        }
      }
      node->Release();
      return;
    }
    DeliverWeights(context_, *node, [&](Node* weight, int i, Tensor gradient) {
      Deliver(weight, {node->sequence(), first_weight + i, std::move(gradient)});
    });
  }

  void DrainMailbox() {
    while (true) {
      Completion completion;
      {
        absl::MutexLock lock(&mailbox_->mutex);
        if (mailbox_->completions.empty()) return;
        completion = std::move(mailbox_->completions.front());
        mailbox_->completions.pop_front();
      }
      Finish(std::move(completion), /*skip_weights=*/false);
    }
  }

  // Waits in short turns, because a failure of the context on another thread cannot wake the
  // mailbox.
  void AwaitCompletion() {
    absl::MutexLock lock(&mailbox_->mutex);
    auto arrived = [this]()
                       ABSL_NO_THREAD_SAFETY_ANALYSIS { return !mailbox_->completions.empty(); };
    const absl::Time turn = std::min(context_.deadline(), absl::Now() + absl::Milliseconds(20));
    if (!mailbox_->mutex.AwaitWithDeadline(absl::Condition(&arrived), turn) &&
        absl::Now() >= context_.deadline()) {
      context_.Fail(absl::DeadlineExceededError(
          absl::StrCat("the backward pass waited too long for the gradient of ", running_name_)));
    }
  }

  Context& context_;
  DeferredWeights* deferred_;
  std::shared_ptr<Mailbox> mailbox_;
  std::unordered_map<Node*, Pending> pending_;
  std::unordered_map<Node*, std::shared_ptr<Node>> owners_;
  std::unordered_set<Node*> awaits_weights_;  // leaves that deferred halves will reach
  std::priority_queue<Node*, std::vector<Node*>, LaterFirst> ready_;
  int running_ = 0;  // nodes started and not finished
  std::string running_name_;
};

void DeferredWeights::Run(Context& context) {
  // A leaf that several layers share gets one sum and one hook call, like in an undivided pass.
  struct Target {
    std::vector<Arrival> arrivals;
    std::shared_ptr<Node> node;
  };
  std::vector<Target> targets;
  std::unordered_map<Node*, size_t> place;
  const auto deliver = [&](const std::shared_ptr<Node>& leaf, Arrival arrival) {
    const auto [it, inserted] = place.emplace(leaf.get(), targets.size());
    if (inserted) targets.push_back({{}, leaf});
    if (arrival.gradient.defined()) targets[it->second].arrivals.push_back(std::move(arrival));
  };
  for (const std::shared_ptr<Node>& node : nodes_) {
    const int first_weight = static_cast<int>(node->inputs().size());
    BackwardPass::DeliverWeights(context, *node, [&](Node* /*weight*/, int i, Tensor gradient) {
      deliver(node->weights()[i], {node->sequence(), first_weight + i, std::move(gradient)});
    });
  }
  for (Early& early : early_)
    deliver(early.leaf, {early.consumer, early.edge, std::move(early.gradient)});
  nodes_.clear();
  early_.clear();
  for (Target& target : targets) {
    const Tensor sum = context.failed()
                           ? Tensor()
                           : SumArrivals(context, *target.node, std::move(target.arrivals));
    target.node->BackwardInput(context, sum, [](std::vector<Tensor>) {});
  }
}

void Backward(Context& context, const std::vector<BackwardRoot>& roots, DeferredWeights* deferred) {
  if (context.failed()) return;
  BackwardPass(context, deferred).Run(roots);
}

void Backward(Context& context, const Variable& loss) { Backward(context, {{loss, Tensor()}}); }

}  // namespace tandem
