// Hosts of one process that talk over loopback, with the built-in layers and modules for tests.
#pragma once

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/remote/dist_autograd.h"
#include "trainer/remote/layer_modules.h"
#include "trainer/remote/remote_module.h"
#include "trainer/remote/remote_optimizer.h"

namespace tandem::testing {

using remote::DistAutogradContext;
using remote::Frame;
using remote::Host;
using remote::RemoteModule;
using remote::RemoteOptimizer;
using remote::RemoteRef;

inline absl::Time Soon(double seconds = 20) { return absl::Now() + absl::Seconds(seconds); }

// Polls until `condition` holds or a deadline passes.
template <class Condition>
bool Eventually(Condition condition, double seconds = 10) {
  const absl::Time end = Soon(seconds);
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

// x -> 2 x, y -> 3 y: two outputs, each of which depends on one input.
class TwoModule : public remote::Module {
 public:
  absl::StatusOr<std::vector<Variable>> Forward(Frame& frame, absl::Span<const Variable>,
                                                absl::Span<const Variable> inputs) override {
    return std::vector<Variable>{ops::Scale(frame.context(), inputs[0], 2),
                                 ops::Scale(frame.context(), inputs[1], 3)};
  }
};

// Calls a module of another process and doubles the result, once `after` relays have done so.
// `owner` and `object` are arguments too.
class RelayModule : public remote::Module {
 public:
  RelayModule(std::string owner, uint64_t object, int after, std::atomic<int>* relayed)
      : owner_(std::move(owner)), object_(object), after_(after), relayed_(relayed) {}
  absl::StatusOr<std::vector<Variable>> Forward(Frame& frame, absl::Span<const Variable>,
                                                absl::Span<const Variable> inputs) override {
    auto ref = RemoteRef::Adopt(frame.host(), owner_, object_, Soon());
    if (!ref.ok()) return ref.status();
    const RemoteModule behind(*std::move(ref));
    if (!Eventually([&] { return *relayed_ >= after_; }))
      return absl::DeadlineExceededError("no others relay");
    auto outputs = behind.Forward(frame, {inputs.begin(), inputs.end()});
    if (!outputs.ok()) return outputs.status();
    ++*relayed_;
    for (Variable& output : *outputs) output = ops::Scale(frame.context(), output, 2);
    return outputs;
  }

 private:
  const std::string owner_;
  const uint64_t object_;
  const int after_;
  std::atomic<int>* const relayed_;
};

// Calls a module of another process with each of its inputs and drops the second result.
class RelayAndDropModule : public remote::Module {
 public:
  RelayAndDropModule(std::string owner, uint64_t object)
      : owner_(std::move(owner)), object_(object) {}
  absl::StatusOr<std::vector<Variable>> Forward(Frame& frame, absl::Span<const Variable>,
                                                absl::Span<const Variable> inputs) override {
    auto ref = RemoteRef::Adopt(frame.host(), owner_, object_, Soon());
    if (!ref.ok()) return ref.status();
    const RemoteModule behind(*std::move(ref));
    auto outputs = behind.Forward(frame, {inputs[0]});
    const auto dropped = behind.Forward(frame, {inputs[1]});
    if (!dropped.ok()) return dropped.status();
    return outputs;
  }

 private:
  const std::string owner_;
  const uint64_t object_;
};

// Waits until its context fails, for 20 s at most.
// In `backward` mode the forward pass answers at once, and the backward pass never completes.
class HangingModule : public remote::Module {
 public:
  HangingModule(bool backward, std::atomic<int>* entered)
      : backward_(backward), entered_(entered) {}
  absl::StatusOr<std::vector<Variable>> Forward(Frame& frame, absl::Span<const Variable>,
                                                absl::Span<const Variable> inputs) override {
    if (backward_) {
      class Never : public Node {
       public:
        Never(uint64_t sequence, std::shared_ptr<Node> input, std::atomic<int>* entered)
            : Node("never", sequence, {std::move(input)}, {}), entered_(entered) {}
        void BackwardInput(Context&, const Tensor&, Complete) override { ++*entered_; }

       private:
        std::atomic<int>* const entered_;
      };
      return std::vector<Variable>{Variable(
          inputs[0].value(),
          std::make_shared<Never>(frame.context().NextNode(), inputs[0].node(), entered_))};
    }
    ++*entered_;
    if (!Eventually([&] { return !frame.status().ok(); }, 20))
      return absl::DeadlineExceededError("the context did not fail");
    return frame.status();
  }

 private:
  const bool backward_;
  std::atomic<int>* const entered_;
};

// x -> x, slowly.
class SlowModule : public remote::Module {
 public:
  explicit SlowModule(absl::Duration forward) : forward_(forward) {}
  absl::StatusOr<std::vector<Variable>> Forward(Frame&, absl::Span<const Variable>,
                                                absl::Span<const Variable> inputs) override {
    absl::SleepFor(forward_);
    return std::vector<Variable>{inputs.begin(), inputs.end()};
  }

 private:
  const absl::Duration forward_;
};

class RemoteHosts : public ::testing::Test {
 protected:
  RemoteHosts() {
    remote::AddLayers(registry_);
    registry_.Add("Two", [](remote::ModuleArguments&, ParameterSet&) {
      return std::make_unique<TwoModule>();
    });
    registry_.Add("Relay", [this](remote::ModuleArguments& arguments, ParameterSet&) {
      const std::string owner = arguments.Text("owner", "");
      const auto object = static_cast<uint64_t>(arguments.Integer("object", 1, 1 << 30));
      return std::make_unique<RelayModule>(
          owner, object, static_cast<int>(arguments.Integer("after", 0, 100, 0)), &relayed_);
    });
    registry_.Add("RelayAndDrop", [](remote::ModuleArguments& arguments, ParameterSet&) {
      const std::string owner = arguments.Text("owner", "");
      return std::make_unique<RelayAndDropModule>(
          owner, static_cast<uint64_t>(arguments.Integer("object", 1, 1 << 30)));
    });
    registry_.Add("Slow", [](remote::ModuleArguments& arguments, ParameterSet&) {  // milliseconds
      absl::SleepFor(absl::Milliseconds(arguments.Integer("making", 0, 1000, 0)));
      return std::make_unique<SlowModule>(
          absl::Milliseconds(arguments.Integer("forward", 0, 1000, 0)));
    });
    registry_.Add("Hang", [this](remote::ModuleArguments& arguments, ParameterSet&) {
      return std::make_unique<HangingModule>(arguments.Integer("backward", 0, 1, 0) == 1,
                                             &hanging_);
    });
  }

  static constexpr uint64_t kJobEpoch = 7;

  // Starts a trainer, or a worker with modules.
  std::unique_ptr<Host> StartHost(bool is_worker, uint32_t rank,
                                  absl::Duration lease = absl::Seconds(6),
                                  uint64_t job_epoch = kJobEpoch) {
    auto host = Host::Start({.is_worker = is_worker,
                             .rank = rank,
                             .job_epoch = job_epoch,
                             .pool = &pool_,
                             .modules = is_worker ? &registry_ : nullptr,
                             .lease = lease});
    EXPECT_TRUE(host.ok()) << host.status();
    return host.ok() ? *std::move(host) : nullptr;
  }
  static RemoteModule Make(Host& user, const Host& owner, const std::string& module,
                           const std::string& arguments) {
    auto made = RemoteModule::Create(user, owner.address(), module, arguments, Soon());
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  static std::string RelayTo(const RemoteModule& module) {
    return "owner=" + module.ref().owner() + " object=" + std::to_string(module.ref().object());
  }
  Context::Options StepOptions(uint64_t step = 1) {
    return {.stream = &stream_, .seed = 3, .step = step, .deadline = Soon()};
  }
  static std::unique_ptr<RemoteOptimizer> Optimizer(
      Host& host, const std::vector<remote::RemoteParameter>& parameters,
      optim::DenseOptions options = {.kind = optim::Kind::SGD}) {
    auto optimizer = RemoteOptimizer::Create(host, options, parameters, Soon());
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    return *std::move(optimizer);
  }
  static std::vector<Tensor> ValuesOf(const RemoteModule& module) {
    auto values = module.ref().Fetch(Soon());
    EXPECT_TRUE(values.ok()) << values.status();
    return *std::move(values);
  }

  ThreadPool pool_{1};
  Stream stream_{&pool_};
  remote::ModuleRegistry registry_;
  std::atomic<int> hanging_{0}, relayed_{0};
};

}  // namespace tandem::testing
