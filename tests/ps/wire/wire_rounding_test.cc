// Rounding on the wire through the whole client. A skipped step leaves no trace in the next one.
// No two steps or slices draw the same random bits.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

constexpr uint32_t kDim = 8;
const std::vector<uint64_t> kIds = {1, 2, 3};
constexpr double kUnit = 0x1p-7;         // bf16's unit between 1 and 2
constexpr float kBetween = 1 + 0x1p-8f;  // half a unit above 1: no bf16

absl::Time Deadline() { return absl::Now() + absl::Seconds(20); }

CommitArgs Args(uint64_t step, bool skip = false) { return {step, {{1, 1.0f}}, 1, skip}; }

// One server with one SGD table whose rows begin at zero. So a row is minus the sum of the
// gradients that arrived.
class WireRoundingTest : public testing::Test {
 protected:
  struct Trainer {
    PsCluster cluster{1, 1};
    std::unique_ptr<RemoteClient> client;
  };

  static std::unique_ptr<Trainer> MakeTrainer(bool dense) {
    auto made = std::make_unique<Trainer>();
    made->client =
        made->cluster.MakeClient(0, 1, {.timeout = absl::Seconds(20), .wire = WIRE_BF16});
    TableSpec spec = MakeTableSpec(1, kDim);
    spec.set_init_stddev(0);
    spec.set_dense(dense);
    EXPECT_TRUE(made->client->CreateTables({spec}, absl::Seconds(20)).ok());
    if (dense) {
      const std::vector<float> zeros(kIds.size() * kDim);
      EXPECT_TRUE(made->client->Assign({1, kIds, kDim, zeros.data()}, Deadline()).ok());
    }
    return made;
  }
  static void Push(RemoteClient& client, uint64_t step, uint32_t slice,
                   const std::vector<float>& gradients) {
    const auto pushed = client.Push(step, slice, {{1, kIds, gradients.data()}}).Wait(Deadline());
    ASSERT_TRUE(pushed.ok()) << pushed.status();
  }
  static void Commit(RemoteClient& client, const CommitArgs& args) {
    const auto committed = client.Commit(args).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
  }
  static std::vector<float> AllOf(float value) {
    return std::vector<float>(kIds.size() * kDim, value);
  }
  static std::vector<float> DenseRows(RemoteClient& client) {
    std::vector<float> rows(kIds.size() * kDim);
    EXPECT_TRUE(client.Read({1, kIds, kDim, rows.data()}, Deadline()).ok());
    return rows;
  }
  // Expects rows that hold the mean of `count` pushes of kBetween.
  static void ExpectMean(Trainer& trainer, int count) {
    // Reads with another client: the client of the pushes would get rounded rows.
    const auto reader = trainer.cluster.MakeClient(0, 1, {.timeout = absl::Seconds(20)});
    TableSpec spec = MakeTableSpec(1, kDim);
    spec.set_init_stddev(0);
    ASSERT_TRUE(reader->CreateTables({spec}, absl::Seconds(20)).ok());
    std::vector<float> rows(kIds.size() * kDim);
    ASSERT_TRUE(reader->Pull(0, false, {{1, kIds, rows.data()}}).Wait(Deadline()).ok());
    // A mean deviates by half a unit over the root of the count. The test allows five deviations.
    for (const float value : rows)
      EXPECT_NEAR(-value / static_cast<float>(count), kBetween, 5 * 0.5 * kUnit / std::sqrt(count));
  }
};

TEST_F(WireRoundingTest, ASkippedStepLeavesTheResidualsOfDenseTablesAsTheyWere) {
  const auto plain = MakeTrainer(/*dense=*/true), skipping = MakeTrainer(/*dense=*/true);
  Push(*plain->client, 1, 0, AllOf(kBetween));
  Commit(*plain->client, Args(1));
  Push(*plain->client, 2, 0, AllOf(1 + 0x1p-9f));
  Commit(*plain->client, Args(2));

  Push(*skipping->client, 1, 0, AllOf(kBetween));
  Commit(*skipping->client, Args(1));
  Push(*skipping->client, 2, 0, AllOf(1 - 0x1p-9f - 0x1p-10f));
  Commit(*skipping->client, Args(2, /*skip=*/true));
  Push(*skipping->client, 3, 0, AllOf(1 + 0x1p-9f));
  Commit(*skipping->client, Args(3));
  EXPECT_EQ(DenseRows(*skipping->client), DenseRows(*plain->client));
}

TEST_F(WireRoundingTest, OneGradientInManyStepsKeepsItsMean) {
  constexpr int kSteps = 1000;
  const auto trainer = MakeTrainer(/*dense=*/false);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    Push(*trainer->client, step, 0, AllOf(kBetween));
    Commit(*trainer->client, Args(step));
  }
  ExpectMean(*trainer, kSteps);
}

TEST_F(WireRoundingTest, OneGradientInManySlicesOfAStepKeepsItsMean) {
  constexpr int kSlices = 1000;
  const auto trainer = MakeTrainer(/*dense=*/false);
  for (uint32_t slice = 0; slice < kSlices; ++slice)
    Push(*trainer->client, 1, slice, AllOf(kBetween));
  Commit(*trainer->client, Args(1));
  ExpectMean(*trainer, kSlices);
}

}  // namespace
}  // namespace tandem::ps
