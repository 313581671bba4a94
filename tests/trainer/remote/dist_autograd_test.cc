#include "tests/trainer/autograd/gradient_check.h"
#include "tests/trainer/remote/remote_hosts.h"

namespace tandem {
namespace {

using namespace testing;
using remote::PassMode;

// The largest difference of two tensors of one shape.
double Difference(const Tensor& a, const Tensor& b) {
  EXPECT_TRUE(a.shape() == b.shape());
  double largest = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i)
    largest = std::max(largest, std::abs(a.At(i) - b.At(i)));
  return largest;
}

class RemoteCallTest : public RemoteHosts {};
class RemoteContextTest : public RemoteHosts, public ::testing::WithParamInterface<PassMode> {};

INSTANTIATE_TEST_SUITE_P(Modes, RemoteContextTest,
                         ::testing::Values(PassMode::SMART, PassMode::FAST), [](const auto& info) {
                           return info.param == PassMode::SMART ? "Smart" : "Fast";
                         });

TEST_P(RemoteContextTest, ARemoteLayerHasTheGradientsOfALocalOne) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *worker, "Linear", "in=3 out=2 dtype=f64 seed=5");
  const auto optimizer = Optimizer(*trainer, linear.Parameters());
  const std::vector<Tensor> before = ValuesOf(linear);
  const Variable x = Variable::Leaf(RandomTensor(Shape{4, 3}, 1), "x"),
                 w = Variable::Leaf(RandomTensor(Shape{2, 1}, 2), "w");

  Context context(StepOptions());
  {
    DistAutogradContext autograd(*trainer, context, {.mode = GetParam()});
    const auto hidden = linear.Forward(autograd.frame(), {x});
    ASSERT_TRUE(hidden.ok()) << hidden.status();
    autograd.Backward(ops::Linear(context, (*hidden)[0], w, Variable()));
    ASSERT_TRUE(context.status().ok()) << context.status();
    const auto updated = optimizer->Step(autograd, 1);
    ASSERT_TRUE(updated.ok()) << updated.status();
    EXPECT_EQ(*updated, 2u);
    EXPECT_EQ(worker->LiveContexts(), 1u);
  }
  EXPECT_TRUE(Eventually([&] { return worker->LiveContexts() + trainer->LiveContexts() == 0; }));

  const Variable x2 = Variable::Leaf(x.value(), "x"), w2 = Variable::Leaf(w.value(), "w");
  const Variable weight = Variable::Leaf(before[0], "weight"),
                 bias = Variable::Leaf(before[1], "bias");
  Context local(StepOptions());
  Backward(local, ops::Linear(local, ops::Linear(local, x2, weight, bias), w2, Variable()));
  EXPECT_EQ(Difference(x.leaf().gradient(), x2.leaf().gradient()), 0);
  EXPECT_EQ(Difference(w.leaf().gradient(), w2.leaf().gradient()), 0);
  const std::vector<Tensor> after = ValuesOf(linear);
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_NEAR(before[0].At(i) - after[0].At(i), weight.leaf().gradient().At(i), 1e-14);
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_NEAR(before[1].At(i) - after[1].At(i), bias.leaf().gradient().At(i), 1e-14);
}

TEST_P(RemoteContextTest, ANestedCallAndTwoCallsOfOneModulePassTheGradientCheck) {
  const auto first = StartHost(true, 0), second = StartHost(true, 1), trainer = StartHost(false, 0);
  const RemoteModule mlp = Make(*trainer, *second, "MLP", "sizes=3,4,3 activation=gelu dtype=f64");
  // trainer -> first -> second, then trainer -> second with the first call's result.
  const RemoteModule relay = Make(*trainer, *first, "Relay", RelayTo(mlp));
  const Variable x = Variable::Leaf(RandomTensor(Shape{2, 3}, 1), "x");
  const auto run = [&](DistAutogradContext& autograd, Context& context) {
    const auto once = relay.Forward(autograd.frame(), {x});
    EXPECT_TRUE(once.ok()) << once.status();
    const auto twice = mlp.Forward(autograd.frame(), {ops::Add(context, (*once)[0], x)});
    EXPECT_TRUE(twice.ok()) << twice.status();
    return (*twice)[0];
  };
  Tensor seed = RandomTensor(Shape{2, 3}, 8);
  const auto loss_at = [&] {
    Context context(StepOptions());
    DistAutogradContext autograd(*trainer, context);
    const Variable output = run(autograd, context);
    double sum = 0;
    for (int64_t i = 0; i < 6; ++i) sum += output.value().At(i) * seed.At(i);
    return sum;
  };
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context, {.mode = GetParam()});
  autograd.Backward({{run(autograd, context), seed}});
  ASSERT_TRUE(context.status().ok()) << context.status();
  for (int64_t i = 0; i < 6; ++i) {
    const double old = x.value().At(i);
    x.value().Set(i, old + 1e-5);
    const double above = loss_at();
    x.value().Set(i, old - 1e-5);
    const double below = loss_at();
    x.value().Set(i, old);
    EXPECT_NEAR(x.leaf().gradient().At(i), (above - below) / 2e-5, 1e-7) << i;
  }
}

TEST_P(RemoteContextTest, AnInputThatOnlyADroppedNestedCallUsesHasNoGradient) {
  const auto first = StartHost(true, 0), second = StartHost(true, 1), trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *second, "Linear", "in=2 out=2 dtype=f64");
  const RemoteModule relay = Make(*trainer, *first, "RelayAndDrop", RelayTo(linear));
  const Tensor value = RandomTensor(Shape{3, 2}, 1);
  // If the first input is a constant, the pass waits for nothing.
  for (const Variable& x : {Variable::Leaf(value, "x"), Variable::Constant(value)}) {
    const Variable y = Variable::Leaf(value, "y");
    Context context(StepOptions());
    DistAutogradContext autograd(*trainer, context, {.mode = GetParam()});
    const auto outputs = relay.Forward(autograd.frame(), {x, y});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    autograd.Backward((*outputs)[0]);
    ASSERT_TRUE(context.status().ok()) << context.status();
    EXPECT_FALSE(y.leaf().has_gradient());
    if (x.requires_gradient()) {
      EXPECT_TRUE(x.leaf().has_gradient());
    }
  }
}

TEST_P(RemoteContextTest, AsynchronousCallsOfOneWorkerOverlapAndJoin) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule a = Make(*trainer, *worker, "Linear", "in=2 out=2 dtype=f64 seed=1"),
                     b = Make(*trainer, *worker, "Linear", "in=2 out=2 dtype=f64 seed=2");
  const Variable x = Variable::Leaf(RandomTensor(Shape{3, 2}, 1), "x");
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context, {.mode = GetParam()});
  auto pending_a = a.ForwardAsync(autograd.frame(), {x}),
       pending_b = b.ForwardAsync(autograd.frame(), {x});
  const auto from_b = pending_b.Await(), from_a = pending_a.Await();
  ASSERT_TRUE(from_a.ok() && from_b.ok()) << from_a.status() << from_b.status();
  autograd.Backward(ops::Add(context, (*from_a)[0], (*from_b)[0]));
  ASSERT_TRUE(context.status().ok()) << context.status();
  const Tensor wa = ValuesOf(a)[0], wb = ValuesOf(b)[0];
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(x.leaf().gradient().At(i),
                wa.At(2 * i) + wa.At(2 * i + 1) + wb.At(2 * i) + wb.At(2 * i + 1), 1e-14);
  }
}

// pytorch/pytorch#26446: an output that the loss does not use costs a zero gradient on the wire.
// #23110, #29175: SMART was never built.
TEST_F(RemoteCallTest, SmartSendsNothingForWhatTheLossDoesNotReachAndFastGivesTheSameGradients) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule two = Make(*trainer, *worker, "Two", ""),
                     unused = Make(*trainer, *worker, "Linear", "in=8 out=8 dtype=f64");
  Tensor gradients[2];
  remote::Traffic sent[2][2];  // [mode][trainer, worker]
  for (const PassMode mode : {PassMode::SMART, PassMode::FAST}) {
    const size_t m = mode == PassMode::FAST;
    const remote::Traffic trainer_before = trainer->traffic(), worker_before = worker->traffic();
    const Variable x = Variable::Leaf(RandomTensor(Shape{8, 8}, 1), "x"),
                   y = Variable::Leaf(RandomTensor(Shape{8, 8}, 2), "y");
    Context context(StepOptions());
    DistAutogradContext autograd(*trainer, context, {.mode = mode});
    const auto outputs = two.Forward(autograd.frame(), {x, y});
    const auto nobody = unused.Forward(autograd.frame(), {y});
    ASSERT_TRUE(outputs.ok() && nobody.ok());
    autograd.Backward((*outputs)[0]);  // y, the second output and the second call are dead
    ASSERT_TRUE(context.status().ok()) << context.status();
    gradients[m] = x.leaf().gradient().Clone();
    EXPECT_FALSE(y.leaf().has_gradient());  // as in one process: not zero, none
    const auto since = [](const remote::Traffic& now, const remote::Traffic& then) {
      return remote::Traffic{now.calls - then.calls, now.gradients - then.gradients,
                             now.gradient_arrays - then.gradient_arrays,
                             now.gradient_bytes - then.gradient_bytes};
    };
    sent[m][0] = since(trainer->traffic(), trainer_before);
    sent[m][1] = since(worker->traffic(), worker_before);
  }
  EXPECT_EQ(Difference(gradients[0], gradients[1]), 0);
  // SMART: one message to the live call and one back, an array each.
  EXPECT_EQ(sent[0][0].gradients, 1u);
  EXPECT_EQ(sent[0][1].gradients, 1u);
  EXPECT_EQ(sent[0][0].gradient_arrays + sent[0][1].gradient_arrays, 2u);
  EXPECT_EQ(sent[0][0].gradient_bytes + sent[0][1].gradient_bytes, 2u * 64 * sizeof(double));
  // FAST: the dead call gets messages too, which say that there is no gradient.
  EXPECT_EQ(sent[1][0].gradients, 2u);
  EXPECT_EQ(sent[1][1].gradients, 2u);
  EXPECT_EQ(sent[1][0].gradient_bytes + sent[1][1].gradient_bytes, 2u * 64 * sizeof(double));
}

TEST_F(RemoteCallTest, SmartDoesNotWaitForADeadOutput) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule alive = Make(*trainer, *worker, "Linear", "in=2 out=2 dtype=f64"),
                     dead = Make(*trainer, *worker, "Hang", "backward=1");  // its pass never ends
  const Variable x = Variable::Leaf(RandomTensor(Shape{2, 2}, 1), "x");
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  const auto used = alive.Forward(autograd.frame(), {x}),
             unused = dead.Forward(autograd.frame(), {x});
  ASSERT_TRUE(used.ok() && unused.ok());
  autograd.Backward((*used)[0]);
  EXPECT_TRUE(context.status().ok()) << context.status();
  EXPECT_EQ(hanging_, 0);
  EXPECT_TRUE(x.leaf().has_gradient());
}

TEST_F(RemoteCallTest, TwoLossesOfOneContextRunOneAfterTheOther) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule a = Make(*trainer, *worker, "Linear", "in=2 out=2 dtype=f64 seed=1"),
                     b = Make(*trainer, *worker, "Linear", "in=2 out=2 dtype=f64 seed=2");
  const Variable x = Variable::Leaf(RandomTensor(Shape{2, 2}, 1), "x");
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  const auto from_a = a.Forward(autograd.frame(), {x}), from_b = b.Forward(autograd.frame(), {x});
  ASSERT_TRUE(from_a.ok() && from_b.ok());
  autograd.Backward((*from_a)[0]);
  autograd.Backward((*from_b)[0]);
  ASSERT_TRUE(context.status().ok()) << context.status();
  const Tensor wa = ValuesOf(a)[0], wb = ValuesOf(b)[0];
  EXPECT_NEAR(x.leaf().gradient().At(0), wa.At(0) + wa.At(1) + wb.At(0) + wb.At(1), 1e-14);
  // A third pass over a graph that is gone is an error, not a wrong gradient.
  autograd.Backward((*from_a)[0]);
  EXPECT_EQ(context.status().code(), absl::StatusCode::kFailedPrecondition) << context.status();
}

TEST_F(RemoteCallTest, EvaluationLooksAndLeavesNothing) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *worker, "Linear", "in=2 out=1 dtype=f64");
  const Tensor x = RandomTensor(Shape{1, 2}, 1);
  const auto outputs = linear.Evaluate({x}, Soon());
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const auto values = ValuesOf(linear);
  EXPECT_NEAR((*outputs)[0].At(0),
              x.At(0) * values[0].At(0) + x.At(1) * values[0].At(1) + values[1].At(0), 1e-14);
  EXPECT_EQ(worker->LiveContexts(), 0u);
}

TEST_F(RemoteCallTest, InputThatDoesNotFitIsRefusedWithPeerAndCallAndTheWorkerLives) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *worker, "Linear", "in=2 out=1"),
                     bag = Make(*trainer, *worker, "EmbeddingBag", "rows=4 dim=2");
  const auto expect_refused = [&](const RemoteModule& module, const std::vector<Variable>& inputs,
                                  const std::string& why) {
    Context context(StepOptions());
    DistAutogradContext autograd(*trainer, context);
    const auto outputs = module.Forward(autograd.frame(), inputs);
    EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument) << outputs.status();
    const std::string message(outputs.status().message());
    EXPECT_NE(message.find(why), std::string::npos) << message;
    EXPECT_NE(message.find(worker->address()), std::string::npos) << message;
    EXPECT_EQ(message.rfind("context 0.", 0), 0u) << message;
    EXPECT_EQ(context.status(), outputs.status());
  };
  expect_refused(linear, {Variable::Constant(Tensor::Zeros(Shape{2, 3}, DType::F32))},
                 "last extent is 2");
  expect_refused(linear, {}, "0 inputs, 1 wanted");
  const auto index = Variable::Constant(Tensor::FromVector<int64_t>({1, 4}));
  expect_refused(bag, {index, Variable::Constant(Tensor::FromVector<int64_t>({0, 2}))},
                 "index 4 at place 1 of a table of 4 rows");
  const auto low = Variable::Constant(Tensor::FromVector<int64_t>({1, 3}));
  expect_refused(bag, {low, Variable::Constant(Tensor::FromVector<int64_t>({0, 3}))},
                 "offsets do not rise from 0 to 2");
  EXPECT_TRUE(Eventually([&] { return worker->LiveContexts() == 0; }));
  EXPECT_TRUE(linear.Evaluate({Tensor::Zeros(Shape{2, 2}, DType::F32)}, Soon()).ok());
}

TEST_F(RemoteCallTest, AModuleIsMadeByNameAndWhatIsWrongIsNamed) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const auto why = [&](const std::string& module, const std::string& arguments) {
    const auto made = RemoteModule::Create(*trainer, worker->address(), module, arguments, Soon());
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << made.status();
    return std::string(made.status().message());
  };
  EXPECT_NE(why("Liner", "in=2 out=1")
                .find("there is no module 'Liner'; there are: Embedding, EmbeddingBag"),
            std::string::npos);
  EXPECT_NE(why("Linear", "in=2").find("argument 'out' is missing"), std::string::npos);
  EXPECT_NE(why("Linear", "in=2 out=1 bais=0")
                .find("there is no argument 'bais'; there are: seed, dtype, in, out, bias"),
            std::string::npos);
  EXPECT_NE(why("Linear", "in=0 out=1").find("in=0 is no number from 1"), std::string::npos);
  EXPECT_NE(why("Embedding", "rows=4294967296 dim=65536").find("at most"), std::string::npos);
  EXPECT_NE(why("EmbeddingBag", "rows=4 dim=2 pooling=max")
                .find("pooling=max is none of sum, mean, sqrtn"),
            std::string::npos);
  EXPECT_EQ(worker->NumObjects(), 0u);
  // A process of another job is not served.
  auto stranger = Host::Start({.job_epoch = 8, .pool = &pool_});
  ASSERT_TRUE(stranger.ok());
  const auto refused =
      RemoteModule::Create(**stranger, worker->address(), "Linear", "in=2 out=1", Soon());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << refused.status();
}

}  // namespace
}  // namespace tandem
