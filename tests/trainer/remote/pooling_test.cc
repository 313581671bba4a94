#include "ps/client_local.h"
#include "tests/trainer/gradient_check.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/remote/pooled_embedding.h"
#include "trainer/remote/pooling.h"
#include "trainer/remote/remote_embedding.h"

namespace tandem {
namespace {

using namespace testing;
using ps::Pooling;

constexpr int64_t kDim = 3;

TEST(PoolRowsTest, EveryPoolingPassesTheGradientCheck) {
  const Variable rows = Variable::Leaf(RandomTensor(Shape{5, kDim}, 1), "rows");
  const Tensor offsets = Tensor::FromVector<int64_t>({0, 2, 2, 5}), weights = RandomTensor(Shape{5}, 2);
  for (const Pooling pooling : {Pooling::SUM, Pooling::MEAN, Pooling::SQRT_N}) {
    for (const Tensor& with : {Tensor(), weights}) {
      CheckGradients([&](Context& context) { return remote::PoolRows(context, rows, offsets, with, pooling); }, {rows});
    }
  }
}

// A step of the pooled layer on one table, and of rows pooled here on another with the same seed, leaves the same bits.
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
    const remote::BagIds bags{{9, 4, 9, 2}, {0, 3, 3, 4}, {0.5f, 2, -1, 3}};
    {
      remote::DistAutogradContext autograd(&client, 1, 0);
      remote::PooledEmbedding pooled(&client, 1, kDim, pooling);
      const auto pulled = pooled.Pull(1, true, bags);
      const Variable there = pooled.Enter(context, *pulled, autograd);
      remote::RemoteEmbedding items(&client, 2, kDim, &fixture.stream());
      const auto unique = remote::UniqueIds({absl::MakeConstSpan(bags.ids)});
      const auto rows = items.Pull(1, true, unique);
      const Variable leaf = items.Enter(context, *rows, autograd, 0);
      const Variable here = remote::PoolRows(context, ops::GatherRows(context, leaf, remote::IndexInto(unique, bags.ids)),
                                             Tensor::FromVector<int64_t>({0, 3, 3, 4}), Tensor::FromVector<float>({0.5f, 2, -1, 3}), pooling);
      for (int64_t i = 0; i < 3 * kDim; ++i) ASSERT_EQ(there.value().At(i), here.value().At(i)) << i;
      const Tensor seed = RandomTensor(Shape{3, kDim}, 5, DType::F32);
      Backward(context, {{there, seed}, {here, seed}});
      autograd.AwaitPushes(context);
      ASSERT_TRUE(context.status().ok()) << context.status();
    }
    const auto committed = client.Commit({.step = 1, .rates = {{1, 0.5f}, {2, 0.5f}}, .gradient_scale = 1}).Wait(absl::InfiniteFuture());
    ASSERT_TRUE(committed.ok()) << committed.status();
    const std::vector<uint64_t> ids{2, 4, 9};
    std::vector<float> after[2] = {std::vector<float>(9), std::vector<float>(9)};
    for (uint32_t number : {1, 2}) {
      ASSERT_TRUE(client.Pull(0, false, {{number, ids, after[number - 1].data()}}).Wait(absl::InfiniteFuture()).ok());
    }
    EXPECT_EQ(after[0], after[1]);
  }
}

TEST(PooledEmbeddingTest, AFailedPullFailsTheContext) {
  ps::TableHost host(1);
  ps::LocalClient client(host, 0, 1);
  StepFixture fixture;
  Context context(fixture.Options(1));
  remote::DistAutogradContext autograd(&client, 1, 0);
  remote::PooledEmbedding pooled(&client, 1, kDim, Pooling::SUM);
  const auto pulled = pooled.Pull(1, true, {{9, 4}, {0, 3}, {}});
  pooled.Enter(context, *pulled, autograd);
  EXPECT_EQ(context.status().code(), absl::StatusCode::kInvalidArgument) << context.status();
}

}  // namespace
}  // namespace tandem
