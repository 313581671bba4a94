#include "trainer/autograd/engine.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <thread>

#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem {
namespace {

using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

Variable LeafOf(std::vector<double> values, const char* name = "leaf") {
  return Variable::Leaf(Tensor::FromVector(values), name);
}

TEST(EngineTest, GradientsOfAllUsesAddUp) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable x = LeafOf({1, 2});
  const Variable y = ops::Add(context, ops::Scale(context, x, 3), ops::Add(context, x, x));
  Backward(context, y);
  EXPECT_EQ(x.leaf().gradient().At(0), 5);
  EXPECT_EQ(x.leaf().gradient().At(1), 5);
}

TEST(EngineTest, SecondPassAccumulates) {
  StepFixture fixture;
  const Variable x = LeafOf({1});
  for (int pass = 0; pass < 2; ++pass) {
    Context context(fixture.Options());
    Backward(context, ops::Scale(context, x, 2));
  }
  EXPECT_EQ(x.leaf().gradient().At(0), 4);
}

TEST(EngineTest, SeveralRootsRunInOnePass) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable x = LeafOf({1});
  int hooks = 0;
  x.leaf().set_hook([&hooks](Context&) { ++hooks; });
  const Variable a = ops::Scale(context, x, 2), b = ops::Scale(context, a, 5);
  Backward(context, {{a, Tensor()}, {b, Tensor::FromVector<double>({10})}});
  EXPECT_EQ(x.leaf().gradient().At(0), 2 + 10 * 5 * 2);
  EXPECT_EQ(hooks, 1);
}

TEST(EngineTest, HookRunsAsSoonAsTheGradientIsComplete) {
  StepFixture fixture;
  Context context(fixture.Options());
  std::vector<std::string> order;
  const Variable first = LeafOf({1}, "first"), second = LeafOf({1}, "second");
  for (const Variable* leaf : {&first, &second}) {
    leaf->leaf().set_hook([&order, leaf](Context&) { order.push_back(leaf->node()->name()); });
  }
  Variable x = ops::Add(context, ops::Scale(context, first, 1),
                        Variable::Constant(Tensor::Zeros(Shape{1}, DType::F64)));
  x = ops::Add(context, x, second);
  auto observed = Record(context, "observer", x.value(),
                         {.inputs = {x}, .backward_input = [](Context&, const Tensor& g) {
                            return std::vector<Tensor>{g};
                          }});
  Backward(context, observed);
  EXPECT_EQ(order, (std::vector<std::string>{"second", "first"}));
}

// A node whose gradient arrives later from another thread, as from a network.
class RemoteNode : public Node {
 public:
  RemoteNode(uint64_t sequence, std::shared_ptr<Node> input, absl::Duration delay,
             bool answer = true)
      : Node("remote", sequence, {std::move(input)}, {}), delay_(delay), answer_(answer) {}
  ~RemoteNode() override {
    if (thread_.joinable()) thread_.join();
  }
  void BackwardInput(Context&, const Tensor& gradient, Complete complete) override {
    thread_ = std::thread([this, gradient, complete] {
      absl::SleepFor(delay_);
      if (answer_) complete({gradient});
    });
  }

 private:
  absl::Duration delay_;
  bool answer_;
  std::thread thread_;
};

TEST(EngineTest, NodesMayCompleteLaterInAnyOrderWithTheSameBits) {
  std::vector<float> results;
  for (int order = 0; order < 2; ++order) {
    StepFixture fixture;
    Context context(fixture.Options());
    const Variable x = Variable::Leaf(RandomTensor(Shape{5}, 1, DType::F32), "x");
    std::vector<BackwardRoot> roots;
    for (int i = 0; i < 3; ++i) {
      const int late = order == 0 ? i : 2 - i;
      auto node =
          std::make_shared<RemoteNode>(context.NextNode(), x.node(), absl::Milliseconds(5 * late));
      roots.push_back({Variable(x.value(), node), RandomTensor(Shape{5}, 10 + i, DType::F32)});
    }
    Backward(context, roots);
    ASSERT_TRUE(context.status().ok());
    for (int i = 0; i < 5; ++i) results.push_back(x.leaf().gradient().data<float>()[i]);
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(results[i], results[i + 5]);
}

TEST(EngineTest, AGradientThatNeverArrivesIsANamedErrorAtTheDeadline) {
  StepFixture fixture;
  auto options = fixture.Options();
  options.deadline = absl::Now() + absl::Milliseconds(60);
  Context context(options);
  const Variable x = LeafOf({1});
  auto node = std::make_shared<RemoteNode>(context.NextNode(), x.node(), absl::ZeroDuration(),
                                           /*answer=*/false);
  Backward(context, Variable(x.value(), node));
  EXPECT_EQ(context.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(context.status().message().find("remote"), std::string::npos);
  EXPECT_FALSE(x.leaf().has_gradient());
}

TEST(EngineTest, DeferredWeightsGiveTheSameGradientsLater) {
  StepFixture fixture;
  const Variable weight = Variable::Leaf(RandomTensor(Shape{3, 3}, 2), "w");
  const Variable bias = Variable::Leaf(RandomTensor(Shape{3}, 3), "b");
  const Variable x = Variable::Leaf(RandomTensor(Shape{4, 3}, 4), "x");
  std::vector<double> whole, split;
  int hooks = 0;
  weight.leaf().set_hook([&hooks](Context&) { ++hooks; });
  for (const bool defer : {false, true}) {
    for (const Variable* leaf : {&weight, &bias, &x}) leaf->leaf().ClearGradient();
    hooks = 0;
    Context context(fixture.Options());
    // The weight is shared by two layers: its gradient is one sum and its hook runs once.
    const Variable y = ops::Linear(context, ops::Linear(context, x, weight, bias), weight, bias);
    DeferredWeights deferred;
    Backward(context, {{y, Tensor()}}, defer ? &deferred : nullptr);
    EXPECT_TRUE(x.leaf().has_gradient());
    EXPECT_EQ(weight.leaf().has_gradient(), !defer);
    EXPECT_EQ(deferred.empty(), !defer);
    deferred.Run(context);
    EXPECT_EQ(hooks, 1);
    auto& out = defer ? split : whole;
    for (int i = 0; i < 9; ++i) out.push_back(weight.leaf().gradient().At(i));
    for (int i = 0; i < 3; ++i) out.push_back(bias.leaf().gradient().At(i));
  }
  EXPECT_EQ(whole, split);
}

// A tied table is read by rows at one end and as a weight at the other.
TEST(EngineTest, ALeafThatIsInputAndWeightIsToldOnceWhenWeightsAreDeferred) {
  StepFixture fixture;
  const Variable table = Variable::Leaf(RandomTensor(Shape{3, 3}, 2), "table");
  const Tensor index = Tensor::FromVector(std::vector<int64_t>{2, 0, 2});
  std::vector<double> whole, split;
  int hooks = 0;
  table.leaf().set_hook([&hooks](Context&) { ++hooks; });
  for (const bool defer : {false, true}) {
    table.leaf().ClearGradient();
    hooks = 0;
    Context context(fixture.Options());
    const Variable rows = ops::GatherRows(context, table, index);
    const Variable y = ops::Linear(context, rows, table, Variable());
    DeferredWeights deferred;
    Backward(context, {{y, RandomTensor(Shape{3, 3}, 5)}}, defer ? &deferred : nullptr);
    EXPECT_EQ(hooks, defer ? 0 : 1);
    deferred.Run(context);
    EXPECT_EQ(hooks, 1);
    for (int i = 0; i < 9; ++i) (defer ? split : whole).push_back(table.leaf().gradient().At(i));
  }
  EXPECT_EQ(whole, split);
}

TEST(EngineTest, ANodeThatStartsWorkRunsBeforeTheWeightHalfOfItsConsumer) {
  StepFixture fixture;
  Context context(fixture.Options());
  std::vector<std::string> order;
  const auto note = [&order](const char* what, Tensor gradient) {
    order.push_back(what);
    return std::vector<Tensor>{std::move(gradient)};
  };
  const Variable x = LeafOf({1}, "x"), weight = LeafOf({2}, "weight");
  const Variable awaited = Record(context, "await", x.value(),
                                  {.inputs = {x}, .backward_input = [&](Context&, const Tensor& g) {
                                     return note("await", g);
                                   }});
  const Variable started =
      Record(context, "start", x.value(),
             {.inputs = {awaited},
              .backward_input = [&](Context&, const Tensor& g) { return note("start", g); },
              .starts_work = true});
  const Variable product = Record(
      context, "product", x.value(),
      {.inputs = {started},
       .backward_input = [&](Context&, const Tensor& g) { return note("input half", g); },
       .weights = {weight},
       .backward_weight = [&](Context&, const Tensor& g) { return note("weight half", g); }});
  Backward(context, product);
  EXPECT_EQ(order, (std::vector<std::string>{"input half", "start", "weight half", "await"}));
}

// Counts how often its tensor is asked for.
class CountedTensor final : public Recoverable {
 public:
  explicit CountedTensor(Tensor tensor) : tensor_(std::move(tensor)) {}
  void Start(Context&) override { ++started; }
  Tensor Value(Context&) override {
    ++asked;
    return tensor_;
  }
  int started = 0, asked = 0;

 private:
  const Tensor tensor_;
};

TEST(EngineTest, AProductTakesItsRecoverableRowsAgainInsteadOfKeepingThem) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable x = Variable::Leaf(RandomTensor({3, 2}, 1), "x"),
                 weight = Variable::Leaf(RandomTensor({2, 2}, 2), "weight");
  const auto rows = std::make_shared<CountedTensor>(x.value());
  Variable entered =
      Record(context, "enter", x.value().Clone(),
             {.inputs = {x},
              .backward_input = [](Context&, const Tensor& g) { return std::vector<Tensor>{g}; },
              .recoverable = rows});
  const Tensor kept = entered.value();
  const Variable product = ops::Linear(context, entered, weight, Variable());
  entered = Variable();
  EXPECT_TRUE(kept.unique()) << "the product keeps its rows";
  Backward(context, product);
  EXPECT_EQ(rows->started, 1);
  EXPECT_EQ(rows->asked, 1);
  Context again(fixture.Options());
  const Tensor gradient = weight.leaf().gradient().Clone();
  weight.leaf().ClearGradient();
  Backward(again, ops::Linear(again, x, weight, Variable()));
  for (int64_t i = 0; i < gradient.num_elements(); ++i)
    EXPECT_EQ(gradient.At(i), weight.leaf().gradient().At(i));
}

TEST(EngineTest, AFailedContextStopsThePass) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable x = LeafOf({1});
  const Variable y = ops::Scale(context, x, 2);
  context.Fail(absl::UnavailableError("peer lost"));
  context.Fail(absl::InternalError("later"));
  Backward(context, y);
  EXPECT_EQ(context.status(), absl::UnavailableError("peer lost"));
  EXPECT_FALSE(x.leaf().has_gradient());
}

TEST(EngineTest, EvaluationRecordsNoGraph) {
  StepFixture fixture;
  Context context(fixture.Options(1, /*training=*/false));
  EXPECT_FALSE(ops::Scale(context, LeafOf({1}), 2).requires_gradient());
}

TEST(EngineTest, PlacedGradientsLandInTheirStorage) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable x = LeafOf({1, 2});
  const Tensor storage = Tensor::FromVector<double>({7, 7});
  x.leaf().PlaceGradient(storage);
  Backward(context, ops::Scale(context, x, 3));
  EXPECT_EQ(storage.At(0), 3);
  EXPECT_EQ(storage.At(1), 3);
}

// A use of `leaf` whose gradient is `value`, formed in the memory that the leaf offers. `memory`
// records which.
Variable Use(Context& context, const Variable& leaf, double value, std::vector<void*>& memory) {
  return Record(
      context, "use", Tensor::Zeros(Shape{1}, DType::F64),
      {.inputs = {leaf},
       .backward_input = [node = leaf.node().get(), value, &memory](Context& c, const Tensor&) {
         Tensor gradient = node->GradientMemory(c, Shape{1}, DType::F64);
         gradient.Set(0, value);
         memory.push_back(gradient.raw());
         return std::vector<Tensor>{gradient};
       }});
}

// A step's rows take megabytes, so an unshared gradient must not be copied.
TEST(EngineTest, ALeafKeepsAGradientThatNobodyElseHoldsAndCopiesOthers) {
  StepFixture fixture;
  Context context(fixture.Options());
  const void* formed = nullptr;
  const Tensor held = Tensor::FromVector<double>({5});
  const Variable sole = LeafOf({1}, "sole"), shared = LeafOf({1}, "shared");
  const auto backward = [&formed, &held](Context&, const Tensor&) {
    std::vector<Tensor> gradients{Tensor::FromVector<double>({4}), held};
    formed = gradients[0].raw();
    return gradients;
  };
  Backward(context, Record(context, "producer", Tensor::FromVector<double>({0}),
                           {.inputs = {sole, shared}, .backward_input = backward}));
  EXPECT_EQ(sole.leaf().gradient().raw(), formed);
  EXPECT_EQ(sole.leaf().gradient().At(0), 4);
  EXPECT_NE(shared.leaf().gradient().raw(), held.raw());
  EXPECT_EQ(shared.leaf().gradient().At(0), 5);
}

TEST(EngineTest, OneProducerFormsItsGradientInTheLeafsStorage) {
  for (const int uses : {1, 2, 3}) {
    StepFixture fixture;
    const Variable x = LeafOf({0});
    const Tensor storage = Tensor::FromVector<double>({7});
    x.leaf().PlaceGradient(storage);
    for (int step = 0; step < 2; ++step) {
      x.leaf().ClearGradient();
      for (int pass = 0; pass < 2; ++pass) {
        Context context(fixture.Options());
        std::vector<void*> memory;
        Variable sum = Use(context, x, 1, memory);
        for (int i = 1; i < uses; ++i) sum = ops::Add(context, sum, Use(context, x, i + 1, memory));
        Backward(context, sum);
        EXPECT_EQ(std::count(memory.begin(), memory.end(), storage.raw()), pass == 0 ? 1 : 0);
        EXPECT_EQ(storage.At(0), (pass + 1) * uses * (uses + 1) / 2)
            << uses << " uses, pass " << pass;
      }
    }
  }
}

TEST(EngineTest, ASumSparesTheTermsThatOthersHold) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable x = LeafOf({0});
  std::vector<Tensor> held;
  const auto use = [&](double value) {
    return Record(context, "use", Tensor::Zeros(Shape{1}, DType::F64),
                  {.inputs = {x}, .backward_input = [&held, value](Context&, const Tensor&) {
                     held.push_back(Tensor::FromVector<double>({value}));
                     return std::vector<Tensor>{held.back()};
                   }});
  };
  Backward(context, ops::Add(context, ops::Add(context, use(1), use(2)), use(4)));
  EXPECT_EQ(x.leaf().gradient().At(0), 7);
  std::multiset<double> values;
  for (const Tensor& tensor : held) values.insert(tensor.At(0));
  EXPECT_EQ(values, (std::multiset<double>{1, 2, 4}));
}

}  // namespace
}  // namespace tandem
