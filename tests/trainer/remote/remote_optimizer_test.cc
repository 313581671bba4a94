#include <thread>

#include "kernels/base/random.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "tests/trainer/remote/remote_hosts.h"

namespace tandem {
namespace {

using namespace testing;

class RemoteOptimizerTest : public RemoteHosts {};

// The remote module's layer and optimizer, in this process.
struct LocalLinear {
  LocalLinear(const RemoteModule& like, const optim::DenseOptions& options,
              const std::vector<Tensor>& values)
      : parameters(5, DType::F64),
        weight(parameters.Constant(like.ref().parameters()[0], values[0].shape(), 0)),
        bias(parameters.Constant(like.ref().parameters()[1], values[1].shape(), 0)),
        optimizer(options, &parameters) {
    parameters.Assign(weight.value(), values[0]);
    parameters.Assign(bias.value(), values[1]);
  }
  void Step(Context& context, const Tensor& x, uint64_t step) {
    parameters.ClearGradients();
    Backward(context, ops::Linear(context, Variable::Constant(x), weight, bias));
    optimizer.Update(step, 0.1, 0.5, context.stream());
  }

  ParameterSet parameters;
  Variable weight, bias;
  optim::DenseOptimizer optimizer;
};

TEST_F(RemoteOptimizerTest, RemoteStepsAreTheOwnersOptimizersSteps) {
  const auto first = StartHost(true, 0), second = StartHost(true, 1), trainer = StartHost(false, 0);
  for (const optim::Kind kind : {optim::Kind::SGD, optim::Kind::ADAGRAD, optim::Kind::ADAM}) {
    const optim::DenseOptions options{.kind = kind};
    const RemoteModule a = Make(*trainer, *first, "Linear", "in=3 out=2 dtype=f64 seed=1"),
                       b = Make(*trainer, *second, "Linear", "in=3 out=2 dtype=f64 seed=2");
    std::vector<remote::RemoteParameter> parameters = a.Parameters();
    for (const auto& parameter : b.Parameters()) parameters.push_back(parameter);
    const auto optimizer = Optimizer(*trainer, parameters, options);
    LocalLinear local_a(a, options, ValuesOf(a)), local_b(b, options, ValuesOf(b));
    for (uint64_t step = 1; step <= 3; ++step) {
      const Tensor x = RandomTensor(Shape{4, 3}, step);
      Context context(StepOptions(step)), local(StepOptions(step));
      DistAutogradContext autograd(*trainer, context);
      auto of_a = a.ForwardAsync(autograd.frame(), {Variable::Constant(x)});
      auto of_b = b.ForwardAsync(autograd.frame(), {Variable::Constant(x)});
      const auto got_a = of_a.Await(), got_b = of_b.Await();
      ASSERT_TRUE(got_a.ok() && got_b.ok());
      autograd.Backward(ops::Add(context, (*got_a)[0], (*got_b)[0]));
      const auto updated = optimizer->Step(autograd, 0.1, 0.5);
      ASSERT_TRUE(updated.ok()) << updated.status();
      EXPECT_EQ(*updated, 4u);
      local_a.Step(local, x, step);
      local_b.Step(local, x, step);
    }
    for (const auto& [remote, local] : {std::pair(&a, &local_a), std::pair(&b, &local_b)}) {
      const std::vector<Tensor> values = ValuesOf(*remote);
      for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(values[0].At(i), local->weight.value().At(i)) << i;
      for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(values[1].At(i), local->bias.value().At(i)) << i;
    }
  }
}

TEST_F(RemoteOptimizerTest, CallsOfOneModuleSumTheirGradientsOnceEach) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *worker, "Linear", "in=2 out=1 dtype=f64");
  const auto optimizer = Optimizer(*trainer, linear.Parameters());
  const std::vector<Tensor> before = ValuesOf(linear);
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  const auto call = [&](double a, double b) {
    return linear.ForwardAsync(
        autograd.frame(), {Variable::Constant(Tensor::FromVector<double>({a, b}, Shape{1, 2}))});
  };
  auto first = call(1, 2), second = call(10, 20), unused = call(100, 200);
  const auto y1 = first.Await(), y2 = second.Await(), y3 = unused.Await();
  ASSERT_TRUE(y1.ok() && y2.ok() && y3.ok());
  autograd.Backward(ops::Add(context, (*y1)[0], (*y2)[0]));
  EXPECT_EQ(optimizer->Step(autograd, 1).value(), 2u);
  const std::vector<Tensor> after = ValuesOf(linear);
  EXPECT_NEAR(before[0].At(0) - after[0].At(0), 11, 1e-13);
  EXPECT_NEAR(before[0].At(1) - after[0].At(1), 22, 1e-13);
  EXPECT_NEAR(before[1].At(0) - after[1].At(0), 2, 1e-13);
}

TEST_F(RemoteOptimizerTest, ConcurrentContextsDoNotMixAndAStepDoesNotReachIntoACall) {
  const auto worker = StartHost(true, 0), one = StartHost(false, 0), two = StartHost(false, 1);
  const RemoteModule of_one = Make(*one, *worker, "Linear", "in=2 out=1 bias=0 dtype=f64");
  auto adopted = RemoteRef::Adopt(*two, worker->address(), of_one.ref().object(), Soon());
  ASSERT_TRUE(adopted.ok());
  const RemoteModule of_two(*adopted);
  const auto optimizer_one = Optimizer(*one, of_one.Parameters()),
             optimizer_two = Optimizer(*two, of_two.Parameters());
  const Tensor before = ValuesOf(of_one)[0];
  const Variable x1 = Variable::Leaf(RandomTensor(Shape{1, 2}, 1), "x1"),
                 x2 = Variable::Leaf(RandomTensor(Shape{1, 2}, 2), "x2");
  Context context_one(StepOptions()), context_two(StepOptions());
  DistAutogradContext autograd_one(*one, context_one), autograd_two(*two, context_two);
  const auto y1 = of_one.Forward(autograd_one.frame(), {x1}),
             y2 = of_two.Forward(autograd_two.frame(), {x2});
  ASSERT_TRUE(y1.ok() && y2.ok());
  autograd_one.Backward((*y1)[0]);
  ASSERT_TRUE(optimizer_one->Step(autograd_one, 1).ok());
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_NEAR(ValuesOf(of_one)[0].At(i), before.At(i) - x1.value().At(i), 1e-14);
  // The second trainer's pass uses the weights that its call saw, from before the first trainer's
  // step.
  autograd_two.Backward((*y2)[0]);
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(x2.leaf().gradient().At(i), before.At(i));
  ASSERT_TRUE(optimizer_two->Step(autograd_two, 1).ok());
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(ValuesOf(of_one)[0].At(i), before.At(i) - x1.value().At(i) - x2.value().At(i),
                1e-14);
  }
}

TEST_F(RemoteOptimizerTest, AnOptimizerOfSomeParametersLeavesTheOthersGradientsToAnother) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *worker, "Linear", "in=2 out=1 dtype=f64");
  const auto weights = Optimizer(*trainer, {linear.Parameters()[0]}),
             biases = Optimizer(*trainer, {linear.Parameters()[1]});
  const std::vector<Tensor> before = ValuesOf(linear);
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  const auto y = linear.Forward(
      autograd.frame(), {Variable::Constant(Tensor::FromVector<double>({1, 2}, Shape{1, 2}))});
  ASSERT_TRUE(y.ok());
  autograd.Backward((*y)[0]);
  EXPECT_EQ(weights->Step(autograd, 1).value(), 1u);
  EXPECT_EQ(ValuesOf(linear)[1].At(0), before[1].At(0));
  EXPECT_EQ(biases->Step(autograd, 1).value(), 1u);
  EXPECT_EQ(biases->Step(autograd, 1).value(), 0u);  // taken already
  EXPECT_NEAR(ValuesOf(linear)[0].At(1), before[0].At(1) - 2, 1e-14);
  EXPECT_NEAR(ValuesOf(linear)[1].At(0), before[1].At(0) - 1, 1e-14);
  const auto wrong = RemoteOptimizer::Create(*trainer, {}, {{linear.ref(), "scale"}}, Soon());
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument) << wrong.status();
}

// Bags with an empty one, weights and every pooling, compared with differences.
TEST_F(RemoteOptimizerTest, ARemoteEmbeddingBagPassesTheGradientCheck) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const Tensor index = Tensor::FromVector<int64_t>({3, 1, 3, 0}),
               offsets = Tensor::FromVector<int64_t>({0, 3, 3, 4});
  const Tensor weights = Tensor::FromVector<double>({0.5, -1, 2, 3}),
               seed = RandomTensor(Shape{3, 2}, 9);
  for (const std::string pooling : {"sum", "mean", "sqrtn"}) {
    const RemoteModule bag =
        Make(*trainer, *worker, "EmbeddingBag", "rows=5 dim=2 dtype=f64 pooling=" + pooling);
    const auto optimizer = Optimizer(*trainer, bag.Parameters());
    const Tensor before = ValuesOf(bag)[0];
    Context context(StepOptions());
    DistAutogradContext autograd(*trainer, context);
    const auto pooled = bag.Forward(
        autograd.frame(),
        {Variable::Constant(index), Variable::Constant(offsets), Variable::Constant(weights)});
    ASSERT_TRUE(pooled.ok()) << pooled.status();
    autograd.Backward({{(*pooled)[0], seed}});
    ASSERT_TRUE(optimizer->Step(autograd, 1).ok());
    const Tensor after = ValuesOf(bag)[0];
    // The pooled value is linear in the table: the gradient of row r is the value that the bags
    // pass back to the row.
    const double factor = pooling == "sum" ? 1 : pooling == "mean" ? 1.0 / 3 : 1 / std::sqrt(3.0);
    for (int64_t column = 0; column < 2; ++column) {
      const double expected[5] = {3 * seed.At(4 + column), -factor * seed.At(column), 0,
                                  2.5 * factor * seed.At(column), 0};
      for (int64_t row = 0; row < 5; ++row) {
        EXPECT_NEAR(before.At(2 * row + column) - after.At(2 * row + column), expected[row], 1e-14)
            << pooling << " row " << row;
      }
      const double sum =
          0.5 * before.At(6 + column) - before.At(2 + column) + 2 * before.At(6 + column);
      EXPECT_NEAR((*pooled)[0].value().At(column), factor * sum, 1e-14) << pooling;
      EXPECT_EQ((*pooled)[0].value().At(2 + column), 0);
    }
  }
}

TEST_F(RemoteOptimizerTest, AStepDoesNotReachIntoTheReplyOfACallThatOnlyLooks) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0),
             looker = StartHost(false, 1);
  const RemoteModule parameter = Make(*trainer, *worker, "Parameter", "shape=1000000");
  const auto adopted =
      RemoteRef::Adopt(*looker, worker->address(), parameter.ref().object(), Soon());
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  const auto optimizer = Optimizer(*trainer, parameter.Parameters());
  const Tensor before = ValuesOf(parameter)[0];
  std::atomic<bool> stepped{false};
  std::thread looks([&] {
    while (!stepped) {
      const auto values = RemoteModule(*adopted).Evaluate({}, Soon());
      ASSERT_TRUE(values.ok()) << values.status();
      const double moved = before.At(0) - (*values)[0].At(0);
      for (int64_t i = 0; i < before.num_elements(); i += 997)
        ASSERT_NEAR(before.At(i) - (*values)[0].At(i), moved, 0.1) << i;
    }
  });
  for (uint64_t step = 1; step <= 60; ++step) {
    Context context(StepOptions(step));
    DistAutogradContext autograd(*trainer, context);
    const auto value = parameter.Forward(autograd.frame(), {});
    ASSERT_TRUE(value.ok()) << value.status();
    autograd.Backward((*value)[0]);
    ASSERT_TRUE(optimizer->Step(autograd, 1).ok());
  }
  stepped = true;
  looks.join();
}

TEST_F(RemoteOptimizerTest,
       GradientsOfNestedCallsAreSummedInTheOrderOfTheProgramWhicheverCameFirst) {
  const auto middle = StartHost(true, 0), worker = StartHost(true, 1),
             trainer = StartHost(false, 0);
  const RemoteModule linear = Make(*trainer, *worker, "Linear", "in=1 out=1 dtype=f64");
  const auto optimizer = Optimizer(*trainer, linear.Parameters());
  const RemoteModule last = Make(*trainer, *middle, "Relay", RelayTo(linear) + " after=2"),
                     prompt = Make(*trainer, *middle, "Relay", RelayTo(linear));
  const auto input = [](double x) {
    return Variable::Constant(Tensor::FromVector<double>({x}, Shape{1, 1}));
  };
  const double before = ValuesOf(linear)[0].At(0);
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  auto pending = last.ForwardAsync(autograd.frame(), {input(1)});
  const auto second = prompt.Forward(autograd.frame(), {input(1e16)}),
             third = prompt.Forward(autograd.frame(), {input(-1e16)});
  const auto first = pending.Await();
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  autograd.Backward(ops::Add(context, ops::Add(context, (*first)[0], (*second)[0]), (*third)[0]));
  ASSERT_TRUE(optimizer->Step(autograd, 1).ok());
  // (2 + 2e16) - 2e16 in f64. In the order of arrival the sum would be 2.
  EXPECT_EQ(ValuesOf(linear)[0].At(0), before);
}

}  // namespace
}  // namespace tandem
