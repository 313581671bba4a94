#include "trainer/sparse/remote_embedding.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/autograd/engine.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/sparse/step_optimizer.h"

namespace tandem {
namespace {

using ::tandem::testing::StepFixture;

TableSpec SpecOf(SparseOptimizer optimizer, uint32_t dim) {
  TableSpec spec;
  spec.set_name("item");
  spec.set_number(1);
  spec.set_dim(dim);
  spec.set_optimizer(optimizer);
  spec.set_init_stddev(1);
  spec.set_epsilon(1e-8f);
  spec.set_beta1(0.9f);
  spec.set_beta2(0.999f);
  return spec;
}

class RemoteTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(client_.CreateTables({SpecOf(SPARSE_SGD, 2)}, absl::Seconds(5)).ok());
  }
  Tensor RowsNow(std::vector<uint64_t> ids) {
    auto rows = items_.Pull(0, false, {std::move(ids)})->Await(absl::Now() + absl::Seconds(5));
    EXPECT_TRUE(rows.ok()) << rows.status();
    return (*rows)[0].Clone();
  }

  ps::TableHost host_{2};
  ps::LocalClient client_{host_, 0, 1};
  StepFixture fixture_;
  sparse::RemoteEmbedding items_{&client_, {{1, 2}}, &fixture_.stream()};
};

TEST(MergeIdsTest, EveryListIsIndexedIntoDistinctAscendingIds) {
  const uint64_t largest = ~uint64_t{0};  // all digits of the sort
  const std::vector<uint64_t> a{9, 3, largest, 9}, none, b{4, 3, uint64_t{1} << 40};
  const sparse::MergedIds merged = sparse::MergeIds({a, none, b});
  EXPECT_EQ(merged.ids, (std::vector<uint64_t>{3, 4, 9, uint64_t{1} << 40, largest}));
  ASSERT_EQ(merged.places.size(), 3u);
  const std::vector<std::vector<int64_t>> places{{2, 0, 4, 2}, {}, {1, 0, 3}};
  for (size_t list = 0; list < places.size(); ++list) {
    const Tensor& found = merged.places[list];
    ASSERT_EQ(found.num_elements(), static_cast<int64_t>(places[list].size()));
    for (size_t i = 0; i < places[list].size(); ++i)
      EXPECT_EQ(found.data<int64_t>()[i], places[list][i]) << list << " " << i;
  }
}

TEST_F(RemoteTest, AStepMovesEachRowByItsMergedGradient) {
  const Tensor before = RowsNow({5, 8});
  auto pulled = items_.Pull(1, true, {{5, 8}});
  Context context(fixture_.Options(1));
  {
    sparse::StepPushes autograd(&client_, &client_, 0);
    autograd.Begin(1);
    const Variable rows = items_.Enter(context, *pulled, autograd, 0)[0];
    const Tensor twice_five = Tensor::FromVector<int64_t>({0, 1, 0});
    Backward(context, ops::GatherRows(context, rows, twice_five));
    ParameterSet none(1, DType::F32);
    optim::DenseOptimizer dense({.kind = optim::Kind::SGD}, &none);
    sparse::StepOptimizer optimizer(
        {.dense = {.learning_rate = 0.5}, .tables = {{1, {.learning_rate = 0.5}}}}, &dense,
        &client_);
    optimizer.AwaitPushes(context, autograd);
    const auto result = optimizer.Step(context, {.count = 4, .want_norm = true});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NEAR(result->grad_norm, std::sqrt(4.0 + 4 + 1 + 1) / 4, 1e-6);
  }
  const Tensor after = RowsNow({5, 8});
  EXPECT_NEAR(after.At(0), before.At(0) - 0.5 * 2 / 4, 1e-6);
  EXPECT_NEAR(after.At(2), before.At(2) - 0.5 * 1 / 4, 1e-6);
}

TEST_F(RemoteTest, TheSecondPassPushesTheSumOfBoth) {
  const Tensor before = RowsNow({5});
  auto pulled = items_.Pull(1, true, {{5}});
  Context context(fixture_.Options(1));
  sparse::StepPushes autograd(&client_, &client_, 0);
  autograd.Begin(1);
  const Variable rows = items_.Enter(context, *pulled, autograd, /*last_pass=*/1)[0];
  for (int pass = 0; pass < 2; ++pass) Backward(context, ops::Scale(context, rows, 1.0 + pass));
  autograd.AwaitPushes(context);
  ASSERT_TRUE(client_.Commit({.step = 1, .rates = {{1, 1.0f}}, .gradient_scale = 1})
                  .Wait(absl::Now() + absl::Seconds(20))
                  .ok());
  EXPECT_NEAR(RowsNow({5}).At(0), before.At(0) - 3, 1e-6);
}

// Two tables, of widths 2 and 3, whose calls are counted.
class TwoTablesTest : public ::testing::Test {
 protected:
  struct Counting : ps::RowClient {
    explicit Counting(ps::RowClient* to) : inner(to) {}
    rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                                std::vector<ps::PullSegment> segments) override {
      ++num_pulls;
      return inner->Pull(step, create, std::move(segments));
    }
    rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice,
                                std::vector<ps::PushSegment> segments) override {
      pushed_tables.emplace_back();
      for (const ps::PushSegment& segment : segments) pushed_tables.back().insert(segment.table);
      return inner->Push(step, slice, std::move(segments));
    }
    rpc::Future<absl::uint128> GradientNorm(uint64_t step) override {
      return inner->GradientNorm(step);
    }
    rpc::Future<rpc::Done> Commit(const ps::CommitArgs& args) override {
      return inner->Commit(args);
    }
    void Abort(absl::Status reason) override { inner->Abort(reason); }

    ps::RowClient* inner;
    int num_pulls = 0;
    std::vector<std::set<uint32_t>> pushed_tables;  // of each push
  };

  void SetUp() override {
    TableSpec second = SpecOf(SPARSE_SGD, 3);
    second.set_name("title");
    second.set_number(2);
    ASSERT_TRUE(local_.CreateTables({SpecOf(SPARSE_SGD, 2), second}, absl::Seconds(5)).ok());
  }
  std::vector<Tensor> RowsNow(std::vector<std::vector<uint64_t>> ids) {
    auto rows = tables_.Pull(0, false, std::move(ids))->Await(absl::Now() + absl::Seconds(5));
    EXPECT_TRUE(rows.ok()) << rows.status();
    return {(*rows)[0].Clone(), (*rows)[1].Clone()};
  }
  void Commit() {
    ASSERT_TRUE(local_.Commit({.step = 1, .rates = {{1, 1.0f}, {2, 1.0f}}, .gradient_scale = 1})
                    .Wait(absl::Now() + absl::Seconds(20))
                    .ok());
  }

  ps::TableHost host_{2};
  ps::LocalClient local_{host_, 0, 1};
  Counting client_{&local_};
  StepFixture fixture_;
  sparse::RemoteEmbedding tables_{&client_, {{1, 2}, {2, 3}}, &fixture_.stream()};
};

TEST_F(TwoTablesTest, BothArePulledAndPushedInOneMessageEach) {
  const std::vector<Tensor> before = RowsNow({{5, 8}, {5}});
  client_.num_pulls = 0;
  auto pulled = tables_.Pull(1, true, {{5, 8}, {5}});
  Context context(fixture_.Options(1));
  sparse::StepPushes pushes(&client_, &local_, 0);
  pushes.Begin(1);
  const std::vector<Variable> rows = tables_.Enter(context, *pulled, pushes, 0);
  ASSERT_TRUE(rows[0].shape() == (Shape{2, 2}) && rows[1].shape() == (Shape{1, 3}));
  Backward(context, {{ops::Scale(context, rows[0], 2), Tensor()},
                     {ops::Scale(context, rows[1], 3), Tensor()}});
  EXPECT_EQ(client_.pushed_tables, (std::vector<std::set<uint32_t>>{{1, 2}})) << "during backward";
  pushes.AwaitPushes(context);
  Commit();
  EXPECT_EQ(client_.num_pulls, 1);
  EXPECT_EQ(client_.pushed_tables.size(), 1u);
  const std::vector<Tensor> after = RowsNow({{5, 8}, {5}});
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(after[0].At(i), before[0].At(i) - 2, 1e-6);
  for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(after[1].At(i), before[1].At(i) - 3, 1e-6);
}

TEST_F(TwoTablesTest, ATableThatNoLossReachesIsLeftOutAndTheOtherIsPushedOnce) {
  const std::vector<Tensor> before = RowsNow({{5}, {5}});
  auto pulled = tables_.Pull(1, true, {{5}, {5}});
  Context context(fixture_.Options(1));
  sparse::StepPushes pushes(&client_, &local_, 0);
  pushes.Begin(1);
  const std::vector<Variable> rows = tables_.Enter(context, *pulled, pushes, 0);
  Backward(context, ops::Scale(context, rows[1], 3));
  pushes.AwaitPushes(context);
  EXPECT_EQ(client_.pushed_tables, (std::vector<std::set<uint32_t>>{{2}}));
  Commit();
  const std::vector<Tensor> after = RowsNow({{5}, {5}});
  EXPECT_EQ(after[0].At(0), before[0].At(0));
  EXPECT_NEAR(after[1].At(0), before[1].At(0) - 3, 1e-6);
}

TEST_F(TwoTablesTest, AStepMayNeedNoRowOfATable) {
  auto pulled = tables_.Pull(1, true, {{}, {5}});
  Context context(fixture_.Options(1));
  sparse::StepPushes pushes(&client_, &local_, 0);
  pushes.Begin(1);
  const std::vector<Variable> rows = tables_.Enter(context, *pulled, pushes, 0);
  ASSERT_TRUE(context.status().ok()) << context.status();
  EXPECT_TRUE(rows[0].shape() == (Shape{0, 2}));
  Backward(context, {{ops::Scale(context, rows[0], 2), Tensor()},
                     {ops::Scale(context, rows[1], 3), Tensor()}});
  pushes.AwaitPushes(context);
  EXPECT_EQ(client_.pushed_tables.size(), 1u);
  Commit();
}

TEST_F(TwoTablesTest, TheLastPassPushesTheSumsOfBothTables) {
  const std::vector<Tensor> before = RowsNow({{5}, {5}});
  auto pulled = tables_.Pull(1, true, {{5}, {5}});
  Context context(fixture_.Options(1));
  sparse::StepPushes pushes(&client_, &local_, 0);
  pushes.Begin(1);
  const std::vector<Variable> rows = tables_.Enter(context, *pulled, pushes, /*last_pass=*/1);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_TRUE(client_.pushed_tables.empty());
    Backward(context, {{ops::Scale(context, rows[0], 1), Tensor()},
                       {ops::Scale(context, rows[1], 1), Tensor()}});
  }
  pushes.AwaitPushes(context);
  EXPECT_EQ(client_.pushed_tables.size(), 1u);
  Commit();
  EXPECT_NEAR(RowsNow({{5}, {5}})[1].At(0), before[1].At(0) - 2, 1e-6);
}

TEST_F(RemoteTest, ClippingScalesDenseAndSparseTogether) {
  const Tensor before = RowsNow({5});
  auto pulled = items_.Pull(1, true, {{5}});
  Context context(fixture_.Options(1));
  sparse::StepPushes autograd(&client_, &client_, 0);
  autograd.Begin(1);
  const Variable rows = items_.Enter(context, *pulled, autograd, 0)[0];
  ParameterSet parameters(1, DType::F32);
  const Variable w = parameters.Constant("w", Shape{2}, 0);
  Backward(context,
           {{ops::Scale(context, rows, 3), Tensor()}, {ops::Scale(context, w, 4), Tensor()}});
  optim::DenseOptimizer dense({.kind = optim::Kind::SGD}, &parameters);
  sparse::StepOptimizer optimizer(
      {.dense = {.learning_rate = 1}, .tables = {{1, {.learning_rate = 1}}}, .max_grad_norm = 1},
      &dense, &client_);
  optimizer.AwaitPushes(context, autograd);
  const auto result = optimizer.Step(context, {.count = 1});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(optimizer.AwaitCommit(absl::Now() + absl::Seconds(5)).ok());
  const double norm = std::sqrt(2 * 9.0 + 2 * 16.0);
  EXPECT_NEAR(result->grad_norm, norm, 1e-5);
  EXPECT_NEAR(w.value().At(0), -4 / norm, 1e-5);
  EXPECT_NEAR(RowsNow({5}).At(0), before.At(0) - 3 / norm, 1e-5);
}

TEST_F(RemoteTest, EveryStepHasTheRatesOfItsNumberInBothHalves) {
  ParameterSet parameters(1, DType::F32);
  const Variable w = parameters.Constant("w", Shape{2}, 0);
  optim::DenseOptimizer dense({.kind = optim::Kind::SGD}, &parameters);
  // Warm-up gives 1/4, 2/4, 3/4 of the dense rate and 1/2, 2/2, 2/2 of the table's rate.
  sparse::StepOptimizer optimizer({.dense = {.learning_rate = 0.5, .warmup_steps = 3},
                                   .tables = {{1, {.learning_rate = 0.25, .warmup_steps = 1}}}},
                                  &dense, &client_);
  const double dense_rates[] = {0.125, 0.25, 0.375}, row_rates[] = {0.125, 0.25, 0.25};
  double expected = 0, row = RowsNow({5}).At(0);
  for (uint64_t step = 1; step <= 3; ++step) {
    auto pulled = items_.Pull(step, true, {{5}});
    Context context(fixture_.Options(step));
    sparse::StepPushes autograd(&client_, &client_, 0);
    autograd.Begin(step);
    const Variable rows = items_.Enter(context, *pulled, autograd, 0)[0];
    parameters.ClearGradients();
    Backward(context,
             {{ops::Scale(context, rows, 1), Tensor()}, {ops::Scale(context, w, 1), Tensor()}});
    optimizer.AwaitPushes(context, autograd);
    const auto result = optimizer.Step(context, {.count = 1});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(optimizer.AwaitCommit(absl::Now() + absl::Seconds(5)).ok());
    EXPECT_EQ(result->learning_rate, dense_rates[step - 1]);
    EXPECT_EQ(w.value().At(0), expected -= dense_rates[step - 1]) << "step " << step;
    row -= row_rates[step - 1];
    EXPECT_NEAR(RowsNow({5}).At(0), row, 1e-6) << "step " << step;
  }
}

TEST_F(RemoteTest, ANonFiniteDenseGradientSkipsBothHalves) {
  const Tensor before = RowsNow({5});
  auto pulled = items_.Pull(1, true, {{5}});
  Context context(fixture_.Options(1));
  sparse::StepPushes autograd(&client_, &client_, 0);
  autograd.Begin(1);
  const Variable rows = items_.Enter(context, *pulled, autograd, 0)[0];
  ParameterSet parameters(1, DType::F32);
  const Variable w = parameters.Constant("w", Shape{2}, 1);
  const Tensor infinite = Tensor::FromVector<float>({INFINITY, 0});
  Backward(context, {{ops::Scale(context, rows, 3), Tensor()}, {w, infinite}});
  optim::DenseOptimizer dense({.kind = optim::Kind::SGD}, &parameters);
  sparse::StepOptimizer optimizer(
      {.dense = {.learning_rate = 1}, .tables = {{1, {.learning_rate = 1}}}}, &dense, &client_);
  optimizer.AwaitPushes(context, autograd);
  const auto result = optimizer.Step(context, {.count = 1});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->skipped);
  ASSERT_TRUE(optimizer.AwaitCommit(absl::Now() + absl::Seconds(5)).ok());
  EXPECT_EQ(w.value().At(0), 1);
  EXPECT_EQ(RowsNow({5}).At(0), before.At(0));
}

TEST_F(RemoteTest, AStepOfAFailedDeviceIsNotCommitted) {
  Context context(fixture_.Options(1));
  sparse::StepPushes autograd(&client_, &client_, 0);
  autograd.Begin(1);
  ParameterSet parameters(1, DType::F32);
  const Variable w = parameters.Constant("w", Shape{2}, 1);
  Backward(context, {{ops::Scale(context, w, 4), Tensor()}});
  optim::DenseOptimizer dense({.kind = optim::Kind::SGD}, &parameters);
  sparse::StepOptimizer optimizer(
      {.dense = {.learning_rate = 1}, .tables = {{1, {.learning_rate = 1}}}}, &dense, &client_);
  context.stream().Fail(absl::InternalError("attention_backward [8, 64]: an illegal address"));
  EXPECT_EQ(optimizer.Step(context, {.count = 1}).status(), context.stream().status());
  EXPECT_EQ(w.value().At(0), 1);
  // There is nothing to wait for: the servers' step stays open.
  ASSERT_TRUE(optimizer.AwaitCommit(absl::InfinitePast()).ok());
}

TEST_F(RemoteTest, AFailedPullFailsTheContextAndNothingIsApplied) {
  client_.Abort(absl::UnavailableError("ps-0 is gone"));
  auto pulled = items_.Pull(1, true, {{5}});
  Context context(fixture_.Options(1));
  sparse::StepPushes autograd(&client_, &client_, 0);
  autograd.Begin(1);
  items_.Enter(context, *pulled, autograd, 0);
  EXPECT_EQ(context.status().code(), absl::StatusCode::kUnavailable);
  ParameterSet none(1, DType::F32);
  optim::DenseOptimizer dense({.kind = optim::Kind::SGD}, &none);
  sparse::StepOptimizer optimizer({}, &dense, &client_);
  optimizer.AwaitPushes(context, autograd);
  EXPECT_EQ(optimizer.Step(context, {.count = 1}).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem
