#include <future>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/worker.pb.h"
#include "rpc/server.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "tests/trainer/remote/remote_hosts.h"
#include "trainer/remote/array_message.h"
#include "trainer/remote/context_share.h"
#include "trainer/remote/remote_call.h"

namespace tandem {
namespace {

using namespace testing;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

class RemoteFailureTest : public RemoteHosts {
 protected:
  const Variable x_ = Variable::Leaf(RandomTensor(Shape{2, 2}, 1), "x");
};

TEST_F(RemoteFailureTest, AForwardThatHangsEndsAtTheContextsDeadlineEverywhere) {
  const auto first = StartHost(true, 0), second = StartHost(true, 1), trainer = StartHost(false, 0);
  const RemoteModule hang = Make(*trainer, *second, "Hang", "");
  const RemoteModule relay = Make(*trainer, *first, "Relay", RelayTo(hang));
  Context context(StepOptions());
  const absl::Time begun = absl::Now();
  DistAutogradContext autograd(*trainer, context, {.timeout = absl::Milliseconds(150)});
  const auto outputs = relay.Forward(autograd.frame(), {x_});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kDeadlineExceeded) << outputs.status();
  EXPECT_LT(absl::Now() - begun, absl::Seconds(3));
  EXPECT_NE(TextOf(context.status()).find("of Relay at " + first->address()), std::string::npos)
      << context.status();
  EXPECT_TRUE(Eventually([&] { return first->LiveContexts() + second->LiveContexts() == 0; }));
}

TEST_F(RemoteFailureTest, ABackwardPassThatHangsEndsAtTheDeadlineAndNamesPeerAndCall) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule hang = Make(*trainer, *worker, "Hang", "backward=1");
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context, {.timeout = absl::Milliseconds(200)});
  const auto outputs = hang.Forward(autograd.frame(), {x_});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  autograd.Backward((*outputs)[0]);
  EXPECT_EQ(context.status().code(), absl::StatusCode::kDeadlineExceeded) << context.status();
  EXPECT_NE(TextOf(context.status()).find("gradients of outputs of call"), std::string::npos)
      << context.status();
  EXPECT_NE(TextOf(context.status()).find(worker->address()), std::string::npos)
      << context.status();
  EXPECT_TRUE(Eventually([&] { return worker->LiveContexts() + trainer->LiveContexts() == 0; }));
}

TEST_F(RemoteFailureTest, AFailureBehindAWorkerEndsTheContextAtAllAndSaysWhere) {
  const auto first = StartHost(true, 0), second = StartHost(true, 1), trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *second, "Linear", "in=5 out=1 dtype=f64");
  const RemoteModule relay = Make(*trainer, *first, "Relay", RelayTo(linear));
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  const auto outputs = relay.Forward(autograd.frame(), {x_});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument);
  // The error names both ends of the way.
  EXPECT_NE(TextOf(outputs.status()).find(first->address()), std::string::npos) << outputs.status();
  EXPECT_NE(TextOf(outputs.status()).find("of Linear at " + second->address()), std::string::npos)
      << outputs.status();
  // Later calls return at once, with the first failure.
  EXPECT_EQ(relay.Forward(autograd.frame(), {x_}).status(), context.status());
  autograd.Backward(x_);
  EXPECT_TRUE(Eventually([&] {
    return first->LiveContexts() + second->LiveContexts() + trainer->LiveContexts() == 0;
  }));
}

// A worker in a process of its own, made to be killed. A pipe tells the worker what to do.
class KilledWorker {
 public:
  // Forks before any thread of this process matters to the child: the child starts its host anew.
  explicit KilledWorker(const std::string& kind) {
    int to_parent[2];
    EXPECT_EQ(pipe(to_parent), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(to_parent[0]);
      execl("/proc/self/exe", "remote_worker", kind.c_str(), std::to_string(to_parent[1]).c_str(),
            nullptr);
      _exit(1);
    }
    close(to_parent[1]);
    char buffer[64] = {};
    EXPECT_GT(read(to_parent[0], buffer, sizeof buffer - 1), 0);
    close(to_parent[0]);
    address_ = buffer;
  }
  ~KilledWorker() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void Stop() { kill(pid_, SIGSTOP); }
  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  std::string address_;
};

// pytorch/pytorch#41665: the loss of a peer waits for the whole timeout.
TEST_F(RemoteFailureTest, AKilledWorkerEndsTheBackwardPassLongBeforeItsDeadline) {
  KilledWorker worker("worker");
  const auto trainer = StartHost(false, 0), bystander = StartHost(true, 1);
  auto hang = RemoteModule::Create(*trainer, worker.address(), "Hang", "backward=1", Soon());
  ASSERT_TRUE(hang.ok()) << hang.status();
  const RemoteModule linear = Make(*trainer, *bystander, "Linear", "in=2 out=2 dtype=f64");
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context, {.timeout = absl::Seconds(20)});
  const auto through = linear.Forward(autograd.frame(), {x_});
  ASSERT_TRUE(through.ok()) << through.status();
  const auto outputs = hang->Forward(autograd.frame(), *through);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const absl::Time begun = absl::Now();
  std::thread killer([&] {
    EXPECT_TRUE(Eventually([&] { return trainer->traffic().gradients > 0; }));
    worker.Kill();
  });
  autograd.Backward((*outputs)[0]);
  killer.join();
  EXPECT_EQ(context.status().code(), absl::StatusCode::kUnavailable) << context.status();
  EXPECT_NE(TextOf(context.status()).find(worker.address()), std::string::npos) << context.status();
  EXPECT_LT(absl::Now() - begun, absl::Seconds(5));
  // The surviving worker learns of it without being asked.
  EXPECT_TRUE(Eventually([&] { return bystander->LiveContexts() == 0; }));
}

TEST_F(RemoteFailureTest, AStoppedWorkerIsLostAfterALease) {
  KilledWorker worker("worker");
  const auto trainer = StartHost(false, 0, absl::Milliseconds(300));
  auto hang = RemoteModule::Create(*trainer, worker.address(), "Hang", "backward=1", Soon());
  ASSERT_TRUE(hang.ok()) << hang.status();
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context, {.timeout = absl::Seconds(20)});
  const auto outputs = hang->Forward(autograd.frame(), {x_});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  worker.Stop();
  const absl::Time begun = absl::Now();
  autograd.Backward((*outputs)[0]);
  EXPECT_EQ(context.status().code(), absl::StatusCode::kUnavailable) << context.status();
  EXPECT_NE(TextOf(context.status()).find("has said nothing for 300ms"), std::string::npos)
      << context.status();
  EXPECT_LT(absl::Now() - begun, absl::Seconds(5));
}

TEST_F(RemoteFailureTest, AKilledTrainersContextsAndReferencesAreGoneAfterALease) {
  const auto worker = StartHost(true, 0, absl::Milliseconds(300)),
             behind = StartHost(true, 1, absl::Milliseconds(300));
  setenv("REMOTE_TEST_WORKERS", (worker->address() + " " + behind->address()).c_str(), 1);
  KilledWorker trainer("trainer");  // opens a context over both workers and hangs in a call
  EXPECT_TRUE(Eventually(
      [&] { return worker->LiveContexts() == 1 && behind->LiveContexts() == 1 && hanging_ == 1; }));
  EXPECT_EQ(worker->NumObjects() + behind->NumObjects(), 2u);
  trainer.Kill();
  EXPECT_TRUE(Eventually([&] { return worker->LiveContexts() + behind->LiveContexts() == 0; }));
  EXPECT_TRUE(Eventually([&] { return worker->NumObjects() + behind->NumObjects() == 0; }));
}

// pytorch/pytorch#63247: shutdown takes a fixed five seconds.
TEST_F(RemoteFailureTest, AHostEndsAtOnceThoughACallHangsInItAndTheCallerLearnsIt) {
  auto worker = StartHost(true, 0);
  const auto trainer = StartHost(false, 0);
  {
    const RemoteModule hang = Make(*trainer, *worker, "Hang", "");
    Context context(StepOptions());
    DistAutogradContext autograd(*trainer, context);
    auto pending = hang.ForwardAsync(autograd.frame(), {x_});
    ASSERT_TRUE(Eventually([&] { return hanging_ == 1; }));
    const absl::Time begun = absl::Now();
    worker.reset();
    const auto outputs = pending.Await();
    EXPECT_LT(absl::Now() - begun, absl::Seconds(2));
    EXPECT_FALSE(outputs.ok());
    EXPECT_TRUE(Eventually([&] { return !autograd.frame().share()->status().ok(); }));
  }
  EXPECT_EQ(trainer->LiveContexts(), 0u);
}

TEST_F(RemoteFailureTest, WhatComesAfterTheEndOfAContextDoesNotWakeIt) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *worker, "Linear", "in=2 out=2 dtype=f64");
  const auto optimizer = Optimizer(*trainer, linear.Parameters());
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  ASSERT_TRUE(linear.Forward(autograd.frame(), {x_}).ok());
  trainer->EndContext(autograd.id(), absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return worker->LiveContexts() == 0; }));
  EXPECT_EQ(optimizer->Step(autograd, 1).status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(linear.Forward(autograd.frame(), {x_}).ok());
  // A call that was under way when the context ended.
  ForwardRequest late;
  trainer->Sign(&late);
  late.mutable_context()->set_context(autograd.id());
  late.mutable_context()->set_timeout_ms(1000);
  late.set_object(linear.ref().object());
  const auto answer = remote::StartCall(*trainer, worker->address(), "Forward",
                                        rpc::Payload(late.SerializeAsString()), Soon(), "late");
  EXPECT_EQ(answer.Wait(Soon()).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(worker->LiveContexts(), 0u);
}

TEST_F(RemoteFailureTest, ALongCallOutsideContextsOutlivesTheSilenceOfAPeerThatSpokeInAContext) {
  const auto worker = StartHost(true, 0, absl::Milliseconds(150)),
             trainer = StartHost(false, 0, absl::Milliseconds(150));
  const RemoteModule slow = Make(*trainer, *worker, "Slow", "forward=400"),
                     quick = Make(*trainer, *worker, "Slow", "");
  for (int round = 0; round < 3;
       ++round) {  // the silence may end while a beat of the trainer's is on its way
    {
      Context context(StepOptions());
      DistAutogradContext autograd(*trainer, context);
      const auto outputs = quick.Forward(autograd.frame(), {x_});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      autograd.Backward((*outputs)[0]);
      ASSERT_TRUE(context.status().ok()) << context.status();
    }
    const auto outputs = slow.Evaluate({x_.value()}, Soon());
    EXPECT_TRUE(outputs.ok()) << outputs.status();
  }
}

TEST_F(RemoteFailureTest,
       AnObjectThatItsCallerNoLongerAwaitsIsFreedThoughItsMakingTookLongerThanTheLease) {
  const auto worker = StartHost(true, 0, absl::Milliseconds(100)), trainer = StartHost(false, 0);
  const auto slow =
      RemoteModule::Create(*trainer, worker->address(), "Slow", "making=300", Soon(0.05));
  EXPECT_EQ(slow.status().code(), absl::StatusCode::kDeadlineExceeded) << slow.status();
  EXPECT_TRUE(Eventually([&] { return worker->NumObjects() == 1; }));
  EXPECT_TRUE(Eventually([&] { return worker->NumObjects() == 0; }, 3));
}

TEST_F(RemoteFailureTest, CallsThatComeBeforeTheirPeerHasJoinedWaitForItOrForTheirDeadline) {
  const absl::Duration lease = absl::Milliseconds(300);
  const auto worker = StartHost(true, 0, lease, /*job_epoch=*/0),
             trainer = StartHost(false, 0, lease);
  const auto create = [&](absl::Time deadline) {
    return RemoteModule::Create(*trainer, worker->address(), "Slow", "", deadline);
  };
  auto waiting = std::async(std::launch::async, create, Soon());
  EXPECT_EQ(create(Soon(0.2)).status().code(), absl::StatusCode::kDeadlineExceeded);
  const auto statistics = remote::StartCall(*trainer, worker->address(), "WorkerStatistics",
                                            rpc::Payload(), Soon(), "statistics");
  EXPECT_TRUE(statistics.Wait(Soon()).ok()) << "whoever watches need not be a member";
  worker->Open(0, kJobEpoch);
  const auto made = waiting.get();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(Eventually([&] { return worker->NumObjects() == 1; }))
      << "the other's caller no longer awaits it";
  const auto outputs = made->Evaluate({x_.value()}, Soon());
  EXPECT_TRUE(outputs.ok()) << outputs.status();
}

TEST_F(RemoteFailureTest, CallsThatCameBeforeTheirPeerJoinedEndWithIt) {
  auto worker = StartHost(true, 0, absl::Seconds(6), /*job_epoch=*/0);
  const auto trainer = StartHost(false, 0);
  const auto create = [&](absl::Time deadline) {
    return RemoteModule::Create(*trainer, worker->address(), "Slow", "", deadline);
  };
  auto waiting = std::async(std::launch::async, create, Soon());
  EXPECT_EQ(create(Soon(0.2)).status().code(), absl::StatusCode::kDeadlineExceeded);
  const absl::Time begun = absl::Now();
  worker.reset();
  EXPECT_FALSE(waiting.get().ok());
  EXPECT_LT(absl::Now() - begun, absl::Seconds(5)) << "the deadline is far";
}

TEST_F(RemoteFailureTest, AContextWhoseEndCameBeforeItsFirstCallDoesNotBegin) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *worker, "Linear", "in=2 out=2 dtype=f64");
  const uint64_t id = trainer->NextCall();
  worker->EndContext(id, absl::AbortedError("the trainer gave up"), trainer->address());
  ForwardRequest late;
  trainer->Sign(&late);
  late.mutable_context()->set_context(id);
  late.mutable_context()->set_timeout_ms(1000);
  late.set_object(linear.ref().object());
  rpc::Payload message(late.SerializeAsString());
  const auto answer =
      remote::StartCall(*trainer, worker->address(), "Forward", std::move(message), Soon(), "late");
  EXPECT_EQ(answer.Wait(Soon()).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(worker->LiveContexts(), 0u);
}

// A worker of another make. Its one module passes two inputs on; the test decides how it answers
// gradients.
class OddWorker {
 public:
  explicit OddWorker(std::function<void(const GradientRequest&)> on_gradients)
      : on_gradients_(std::move(on_gradients)) {
    Handle("Create", [](rpc::Payload) {
      CreateReply reply;
      reply.set_object(1);
      return rpc::Payload(reply.SerializeAsString());
    });
    Handle("Forward", [](rpc::Payload payload) {
      std::string_view data;
      const auto request = *remote::Decode<ForwardRequest>(payload, &data);
      const std::vector<Tensor> inputs = *remote::ReadArrays(request.inputs(), data);
      ForwardReply reply;
      for (size_t i = 0; i < inputs.size(); ++i) {
        remote::DescribeArray(inputs[i], reply.mutable_outputs())->set_needs_gradient(true);
        reply.add_reaches(std::string(1, static_cast<char>(1 << i)));
      }
      return remote::MessageOf(reply.SerializeAsString(), inputs);
    });
    Handle("Gradient", [this](rpc::Payload payload) {
      std::string_view data;
      on_gradients_(*remote::Decode<GradientRequest>(payload, &data));
      return rpc::Payload();
    });
    for (const char* method : {"Drop", "End"})
      Handle(method, [](rpc::Payload) { return rpc::Payload(); });
    EXPECT_TRUE(server_.Start("127.0.0.1:0").ok());
  }
  std::string address() const { return server_.address(); }

 private:
  void Handle(const char* method, std::function<rpc::Payload(rpc::Payload)> answer) {
    server_.Handle("tandem.WorkerService", method, rpc::MethodKind::UNARY,
                   [answer = std::move(answer)](rpc::Payload request, rpc::Reply reply) {
                     // Answers off the handler's thread: an answer may have to wait for a call of
                     // its own.
                     std::thread([answer, request = std::move(request), reply = std::move(reply)] {
                       reply(answer(request));
                     }).detach();
                   });
  }

  const std::function<void(const GradientRequest&)> on_gradients_;
  rpc::Server server_;
};

TEST_F(RemoteFailureTest, APassEndsAtOnceIfThePeerSaysThatItsPartIsOverAndSentNoGradients) {
  const OddWorker odd([](const GradientRequest&) {});
  const auto trainer = StartHost(false, 0), bystander = StartHost(true, 1);
  const RemoteModule linear = Make(*trainer, *bystander, "Linear", "in=2 out=2 dtype=f64");
  auto two = RemoteModule::Create(*trainer, odd.address(), "Two", "", Soon());
  ASSERT_TRUE(two.ok()) << two.status();
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  const auto through = linear.Forward(autograd.frame(), {x_});
  const auto outputs = two->Forward(autograd.frame(), {x_, (*through)[0]});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const absl::Time begun = absl::Now();
  autograd.Backward({{(*outputs)[0], Tensor()}, {(*outputs)[1], Tensor()}});
  EXPECT_LT(absl::Now() - begun, absl::Seconds(5)) << "the deadline is far";
  EXPECT_EQ(context.status().code(), absl::StatusCode::kInternal) << context.status();
  EXPECT_NE(TextOf(context.status()).find(odd.address() + " ended its part of call"),
            std::string::npos)
      << context.status();
  EXPECT_NE(TextOf(context.status()).find("without the gradient of input 0"), std::string::npos)
      << context.status();
  EXPECT_TRUE(Eventually([&] { return bystander->LiveContexts() == 0; }));
}

TEST_F(RemoteFailureTest, GradientsThatLackAnAwaitedPlaceAreRefusedAndTheWholeMessageIsStillTaken) {
  const auto trainer = StartHost(false, 0), signer = StartHost(true, 1);
  const Tensor gradient = RandomTensor(Shape{2, 2}, 9);
  std::vector<absl::Status> answers;
  const OddWorker odd([&](const GradientRequest& of_outputs) {
    for (const std::vector<uint32_t>& places : {std::vector<uint32_t>{1}, {}, {0, 1}}) {
      GradientRequest request;
      signer->Sign(&request);
      request.set_context(of_outputs.context());
      request.set_call(of_outputs.call());
      request.set_of_inputs(true);
      for (const uint32_t place : places)
        remote::DescribeArray(gradient, request.mutable_gradients())->set_place(place);
      const std::vector<Tensor> arrays(places.size(), gradient);
      answers.push_back(remote::StartCall(*signer, trainer->address(), "Gradient",
                                          remote::MessageOf(request.SerializeAsString(), arrays),
                                          Soon(), "gradients")
                            .Wait(Soon())
                            .status());
    }
  });
  auto two = RemoteModule::Create(*trainer, odd.address(), "Two", "", Soon());
  ASSERT_TRUE(two.ok()) << two.status();
  const Variable y = Variable::Leaf(RandomTensor(Shape{2, 2}, 2), "y");
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  const auto outputs = two->Forward(autograd.frame(), {x_, y});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  autograd.Backward({{(*outputs)[0], Tensor()}, {(*outputs)[1], Tensor()}});
  EXPECT_TRUE(context.status().ok()) << context.status();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].code(), absl::StatusCode::kInvalidArgument) << answers[0];
  EXPECT_NE(TextOf(answers[0]).find("lack that of input 0"), std::string::npos) << answers[0];
  EXPECT_TRUE(answers[1].ok()) << "nothing came, and nothing came of it: " << answers[1];
  EXPECT_TRUE(answers[2].ok()) << answers[2];
  for (const Variable& leaf : {x_, y}) ASSERT_TRUE(leaf.leaf().has_gradient());
}

// The bodies of these tests' other processes, which run until they are killed.
class OtherProcess : public RemoteFailureTest {
 public:
  void TestBody() override {}
  void Worker(int address_pipe) {
    const auto worker = StartHost(true, 0);
    Tell(address_pipe, worker->address());
    pause();
  }
  void Trainer(int address_pipe) {
    const std::string workers = getenv("REMOTE_TEST_WORKERS");
    const std::string worker = workers.substr(0, workers.find(' ')),
                      behind = workers.substr(workers.find(' ') + 1);
    const auto trainer = StartHost(false, 0, absl::Milliseconds(300));
    auto hang = RemoteModule::Create(*trainer, behind, "Hang", "", Soon());
    auto relay = RemoteModule::Create(*trainer, worker, "Relay", RelayTo(*hang), Soon());
    Context context(StepOptions());
    DistAutogradContext autograd(*trainer, context);
    Tell(address_pipe, trainer->address());
    relay->Forward(autograd.frame(), {x_}).status().IgnoreError();
    pause();
  }

 private:
  static void Tell(int pipe, const std::string& text) {
    if (write(pipe, text.data(), text.size()) < 0) _exit(1);
    close(pipe);
  }
};

}  // namespace

int RunOtherProcess(const std::string& kind, int address_pipe) {
  OtherProcess process;
  if (kind == "worker")
    process.Worker(address_pipe);
  else
    process.Trainer(address_pipe);
  return 0;
}

}  // namespace tandem

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[0]) == "remote_worker")
    return tandem::RunOtherProcess(argv[1], std::stoi(argv[2]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
