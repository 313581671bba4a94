#include "trainer/sparse/pooling.h"

#include "ps/local/local_client.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "tests/trainer/remote/remote_hosts.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/sparse/pooled_embedding.h"
#include "trainer/sparse/remote_embedding.h"

namespace tandem {
namespace {

using namespace testing;
using ps::Pooling;

constexpr int64_t kDim = 3;

TEST(PoolRowsTest, EveryPoolingPassesTheGradientCheck) {
  const Variable rows = Variable::Leaf(RandomTensor(Shape{5, kDim}, 1), "rows");
  // A row occurs twice in one bag and again in another. One row never occurs.
  const Tensor index = Tensor::FromVector<int64_t>({3, 0, 4, 4, 0, 1}),
               offsets = Tensor::FromVector<int64_t>({0, 2, 2, 6});
  const Tensor weights = RandomTensor(Shape{6}, 2);
  for (const Pooling pooling : {Pooling::SUM, Pooling::MEAN, Pooling::SQRT_N}) {
    for (const Tensor& with : {Tensor(), weights}) {
      CheckGradients(
          [&](Context& context) {
            return sparse::PoolRows(context, rows, {index, offsets, with}, pooling);
          },
          {rows});
    }
  }
}

// A step of the pooled layer leaves the bits of a step that pools rows here, on another table with
// an equal seed.
TEST(PooledEmbeddingTest, AStepEqualsThatOfRowsPooledHere) {
  for (const Pooling pooling : {Pooling::SUM, Pooling::MEAN, Pooling::SQRT_N}) {
    ps::TableHost host(2);
    ps::LocalClient client(host, 0, 1);
    std::vector<TableSpec> specs(2);
    for (uint32_t number : {1, 2}) {
      TableSpec& spec = specs[number - 1];
      spec.set_name(number == 1 ? "pooled" : "rows");
      spec.set_number(number);
      spec.set_dim(kDim);
      spec.set_optimizer(SPARSE_SGD);
      spec.set_init_stddev(1);
      spec.set_seed(4);
    }
    ASSERT_TRUE(client.CreateTables(specs, absl::Seconds(5)).ok());
    StepFixture fixture;
    Context context(fixture.Options(1));
    const sparse::BagIds bags{{9, 4, 9, 2}, {0, 3, 3, 4}, {0.5f, 2, -1, 3}};
    {
      sparse::StepPushes autograd(&client, &client, 0);
      autograd.Begin(1);
      sparse::PooledEmbedding pooled(&client, 1, kDim, pooling);
      const auto pulled = pooled.Pull(1, true, bags);
      const Variable there = pooled.Enter(context, *pulled, autograd);
      sparse::RemoteEmbedding items(&client, {{2, kDim}}, &fixture.stream());
      const sparse::MergedIds merged = sparse::MergeIds({absl::MakeConstSpan(bags.ids)});
      const auto rows = items.Pull(1, true, {merged.ids});
      const Variable leaf = items.Enter(context, *rows, autograd, 0)[0];
      const Variable here =
          sparse::PoolRows(context, leaf,
                           {merged.places[0], Tensor::FromVector<int64_t>({0, 3, 3, 4}),
                            Tensor::FromVector<float>({0.5f, 2, -1, 3})},
                           pooling);
      for (int64_t i = 0; i < 3 * kDim; ++i)
        ASSERT_EQ(there.value().At(i), here.value().At(i)) << i;
      const Tensor seed = RandomTensor(Shape{3, kDim}, 5, DType::F32);
      Backward(context, {{there, seed}, {here, seed}});
      autograd.AwaitPushes(context);
      ASSERT_TRUE(context.status().ok()) << context.status();
    }
    const auto committed =
        client.Commit({.step = 1, .rates = {{1, 0.5f}, {2, 0.5f}}, .gradient_scale = 1})
            .Wait(Soon());
    ASSERT_TRUE(committed.ok()) << committed.status();
    const std::vector<uint64_t> ids{2, 4, 9};
    std::vector<float> after[2] = {std::vector<float>(9), std::vector<float>(9)};
    for (uint32_t number : {1, 2}) {
      ASSERT_TRUE(
          client.Pull(0, false, {{number, ids, after[number - 1].data()}}).Wait(Soon()).ok());
    }
    EXPECT_EQ(after[0], after[1]);
  }
}

// A worker's module whose rows live on a parameter server. The worker pulls and pushes for its
// callers.
class ServedBagModule : public remote::Module {
 public:
  explicit ServedBagModule(ps::LocalClient* client) : client_(client) {}
  absl::StatusOr<std::vector<Variable>> Forward(remote::Frame& frame, absl::Span<const Variable>,
                                                absl::Span<const Variable> inputs) override {
    struct Call {
      sparse::StepPushes pushes;
      std::unique_ptr<sparse::PulledBags> pulled;
    };
    const auto call =
        std::make_shared<Call>(Call{sparse::StepPushes(client_, client_, 0), nullptr});
    call->pushes.Begin(1);
    sparse::BagIds bags;
    for (int64_t i = 0; i < inputs[0].value().num_elements(); ++i)
      bags.ids.push_back(static_cast<uint64_t>(inputs[0].value().At(i)));
    bags.offsets = {0, bags.ids.size()};
    sparse::PooledEmbedding embedding(client_, 1, kDim, Pooling::SUM);
    call->pulled = embedding.Pull(0, true, std::move(bags));
    frame.Keep(call);
    return std::vector<Variable>{embedding.Enter(frame.context(), *call->pulled, call->pushes)};
  }

 private:
  ps::LocalClient* const client_;
};

class ServedModuleTest : public RemoteHosts {};

TEST_F(ServedModuleTest, GradientsGoFromTheTrainerThroughAWorkerToAParameterServer) {
  ps::TableHost host(1);
  ps::LocalClient client(host, 0, 1);
  TableSpec spec;
  spec.set_name("rows");
  spec.set_number(1);
  spec.set_dim(kDim);
  spec.set_optimizer(SPARSE_SGD);
  ASSERT_TRUE(client.CreateTables({spec}, absl::Seconds(5)).ok());
  registry_.Add("ServedBag", [&client](remote::ModuleArguments&, ParameterSet&) {
    return std::make_unique<ServedBagModule>(&client);
  });
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule bag = Make(*trainer, *worker, "ServedBag", "");
  {
    Context context(StepOptions());
    remote::DistAutogradContext autograd(*trainer, context);
    const auto pooled =
        bag.Forward(autograd.frame(), {Variable::Constant(Tensor::FromVector<int64_t>({7, 8, 7}))});
    ASSERT_TRUE(pooled.ok()) << pooled.status();
    autograd.Backward(ops::Scale(context, (*pooled)[0], 5));
    ASSERT_TRUE(context.status().ok()) << context.status();
  }
  // The pass's push has arrived when the pass is over.
  ASSERT_TRUE(
      client.Commit({.step = 1, .rates = {{1, 1.0f}}, .gradient_scale = 1}).Wait(Soon()).ok());
  const std::vector<uint64_t> ids{7, 8};
  std::vector<float> rows(2 * kDim);
  ASSERT_TRUE(client.Pull(0, false, {{1, ids, rows.data()}}).Wait(Soon()).ok());
  EXPECT_EQ(rows, (std::vector<float>{-10, -10, -10, -5, -5, -5}));
}

TEST(PooledEmbeddingTest, AFailedPullFailsTheContext) {
  ps::TableHost host(1);
  ps::LocalClient client(host, 0, 1);
  StepFixture fixture;
  Context context(fixture.Options(1));
  sparse::StepPushes autograd(&client, &client, 0);
  autograd.Begin(1);
  sparse::PooledEmbedding pooled(&client, 1, kDim, Pooling::SUM);
  const auto pulled = pooled.Pull(1, true, {{9, 4}, {0, 3}, {}});
  pooled.Enter(context, *pulled, autograd);
  EXPECT_EQ(context.status().code(), absl::StatusCode::kInvalidArgument) << context.status();
}

}  // namespace
}  // namespace tandem
