#include "trainer/bench/plan/plan.h"

#include <fstream>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "trainer/bench/cost/profile.h"
#include "trainer/tasks/kinds/kinds.h"

namespace tandem::bench {
namespace {

constexpr Machines kOneMachine{.transport = Machines::SHM, .cores = 2};

Inventory LargeTableAndDense() {
  Inventory inventory;
  inventory.tables.push_back(
      {.name = "item", .rows = 200'000, .dim = 64, .rows_of_trainer = 2000, .distinct_rows = 3800});
  inventory.dense.push_back({.name = "blocks.*.ffn", .count = 4, .elements = 1'000'000});
  inventory.dense.push_back({.name = "head", .count = 1, .elements = 10'000});
  return inventory;
}

TEST(PlanTest, ATableOfFewRowsGoesToServersAndDenseWeightsToTheRing) {
  const Plan plan = MakePlan(LargeTableAndDense(), 2, 1, kOneMachine, TypicalCosts());
  ASSERT_EQ(plan.entries.size(), 3u);
  EXPECT_TRUE(plan.entries[0].by_servers);
  EXPECT_NEAR(plan.entries[0].share, 0.01, 1e-9);
  // A ring carries all rows, servers carry a hundredth.
  EXPECT_EQ(plan.entries[0].reason,
            "1 % of its rows a step: a ring would carry 100 times the bytes");
  EXPECT_FALSE(plan.entries[1].by_servers);
  EXPECT_NE(plan.entries[1].reason.find("2.0 times a trainer's bytes"), std::string::npos)
      << plan.entries[1].reason;
}

TEST(PlanTest, ATableOfWhichAllRowsAreUsedGoesToTheRing) {
  Inventory inventory = LargeTableAndDense();
  inventory.tables[0].rows_of_trainer = inventory.tables[0].distinct_rows = 200'000;
  const Plan plan = MakePlan(inventory, 2, 1, kOneMachine, TypicalCosts());
  EXPECT_FALSE(plan.entries[0].by_servers);
  EXPECT_EQ(
      plan.entries[0].reason,
      "100 % of its rows a step: the server would carry 2.0 times a trainer's bytes in a ring");
}

TEST(PlanTest, ALoneTrainerNeedsNobody) {
  const Plan plan = MakePlan(LargeTableAndDense(), 1, 1, kOneMachine, TypicalCosts());
  EXPECT_TRUE(plan.entries[0].by_servers);
  EXPECT_EQ(plan.entries[0].reason,
            "1 % of its rows a step: a lone trainer would update every row itself");
  EXPECT_FALSE(plan.entries[1].by_servers);
  EXPECT_EQ(plan.entries[1].reason,
            "every weight, every step: a lone trainer needs nobody else's gradients");
}

TEST(PlanTest, OverSlowLinksTheBytesDecide) {
  const Machines slow{.transport = Machines::NETWORK, .bits_per_second = 1e9};
  // As many servers as trainers: their links carry as much, but one way after the other.
  const Plan equal = MakePlan(LargeTableAndDense(), 2, 2, slow, TypicalCosts());
  EXPECT_FALSE(equal.entries[1].by_servers);
  EXPECT_EQ(equal.entries[1].reason, "every weight, every step: servers are limited by the link");
  // A table of all rows, many trainers and one server.
  Inventory inventory = LargeTableAndDense();
  inventory.tables[0].rows_of_trainer = inventory.tables[0].distinct_rows = 100'000;
  const Plan many = MakePlan(inventory, 16, 1, slow, TypicalCosts());
  EXPECT_FALSE(many.entries[0].by_servers);
  EXPECT_EQ(
      many.entries[0].reason,
      "50 % of its rows a step: the server would carry 4.3 times a trainer's bytes in a ring");
}

TEST(PlanTest, JobsOfOneKindOfParameterHavePlansToo) {
  Inventory tables = LargeTableAndDense();
  tables.dense.clear();
  const Plan sparse = MakePlan(tables, 2, 1, kOneMachine, TypicalCosts());
  EXPECT_EQ(sparse.entries.size(), 1u);
  EXPECT_EQ(sparse.hybrid, sparse.entries[0].server_seconds);
  Inventory unused = tables;
  unused.tables[0].rows_of_trainer = unused.tables[0].distinct_rows = 0;
  const Plan none = MakePlan(unused, 2, 1, kOneMachine, TypicalCosts());
  EXPECT_EQ(none.entries[0].reason, "no row was used in the first batches");
  // Two tables of a job travel in one call.
  tables.tables.push_back(tables.tables[0]);
  const Plan two = MakePlan(tables, 2, 1, kOneMachine, TypicalCosts());
  EXPECT_LT(two.hybrid, 2 * sparse.hybrid);
}

TEST(PlanTest, DenseParametersShareOneSynchronisation) {
  const Inventory inventory = LargeTableAndDense();
  const Plan plan = MakePlan(inventory, 2, 1, kOneMachine, TypicalCosts());
  EXPECT_NEAR(plan.entries[1].ring_seconds / plan.entries[2].ring_seconds, 100, 1e-6);
  EXPECT_NEAR(
      plan.hybrid,
      plan.entries[0].server_seconds + plan.entries[1].ring_seconds + plan.entries[2].ring_seconds,
      1e-12);
  EXPECT_NEAR(
      plan.all_ring,
      plan.entries[0].ring_seconds + plan.entries[1].ring_seconds + plan.entries[2].ring_seconds,
      1e-12);
  EXPECT_LE(plan.planned, std::min({plan.hybrid, plan.all_ring, plan.all_servers}));
}

TEST(PlanTest, WithoutServersAllGoesByTheRing) {
  const Plan plan = MakePlan(LargeTableAndDense(), 2, 0, kOneMachine, TypicalCosts());
  for (const PlanEntry& entry : plan.entries) {
    EXPECT_FALSE(entry.by_servers);
    EXPECT_EQ(entry.reason, "there is no server");
  }
}

TEST(PlanTest, ParametersOfEqualModulesHaveOneName) {
  EXPECT_EQ(FoldedName("blocks.3.ffn.up.weight"), "blocks.*.ffn");
  EXPECT_EQ(FoldedName("blocks.12.ffn.down.bias"), "blocks.*.ffn");
  EXPECT_EQ(FoldedName("blocks.0"), "blocks.*");
  EXPECT_EQ(FoldedName("head.bias"), "head");
  EXPECT_EQ(FoldedName("temperature"), "temperature");
}

class InventoryTest : public testing::Test {
 protected:
  // 40 users with the items 1 .. 8 of 50, so that a step uses few rows.
  absl::StatusOr<Inventory> Take(const std::vector<std::string>& sets, int trainers = 2) const {
    std::ofstream log(folder_ / "log.txt");
    for (int user = 1; user <= 40; ++user)
      log << user << " " << 1 + user % 8 << " " << 1 + (user + 1) % 8 << " " << 1 + (user + 2) % 8
          << " 50\n";
    log.close();
    std::ofstream(folder_ / "job.textproto") << R"(
        data { format: SEQUENCES path: ")" << folder_ / "log.txt"
                                             << R"(" }
        model { sequence_rec { max_length: 4 layers: 2 heads: 1 loss: SAMPLED_SOFTMAX
                               num_negatives: 4 } }
        tables { name: "item" dim: 8 }
        train { batch_size: 4 max_steps: 5 })";
    return TakeInventory(folder_ / "job.textproto", sets, trainers, kinds_);
  }
  const support::TempFolder folder_;
  const tasks::Kinds kinds_;
};

TEST_F(InventoryTest, ATablesRowsAreThoseOfTheFirstBatchesInEitherPlacement) {
  const auto on_servers = Take({});
  ASSERT_TRUE(on_servers.ok()) << on_servers.status();
  ASSERT_EQ(on_servers->tables.size(), 1u);
  const TableUse& item = on_servers->tables[0];
  EXPECT_EQ(item.name, "item");
  EXPECT_EQ(item.rows, 50u);
  EXPECT_EQ(item.dim, 8u);
  EXPECT_GE(item.rows_of_trainer, 4);
  EXPECT_LE(item.rows_of_trainer, 9 + 4);  // the items of the log, and negatives
  EXPECT_GE(item.distinct_rows, item.rows_of_trainer);
  EXPECT_LE(item.distinct_rows, 2 * item.rows_of_trainer);
  EXPECT_EQ(on_servers->needs_servers, "placement is PS");
  const auto replicated = Take({"placement=REPLICATED"});
  ASSERT_TRUE(replicated.ok()) << replicated.status();
  EXPECT_EQ(replicated->needs_servers, "");
  ASSERT_EQ(replicated->tables.size(), 1u);
  EXPECT_EQ(replicated->tables[0].rows_of_trainer, item.rows_of_trainer);
}

TEST_F(InventoryTest, EqualModulesOfTheBlocksAreOneEntry) {
  const auto inventory = Take({});
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  int ffn = 0;
  for (const DenseUse& dense : inventory->dense) {
    EXPECT_NE(dense.name, "item");
    if (dense.name != "blocks.*.ffn") continue;
    ++ffn;
    EXPECT_EQ(dense.count, 8);  // two matrices and two biases in each of two blocks
  }
  EXPECT_EQ(ffn, 1);
}

TEST_F(InventoryTest, LayoutsThatCutTheModelAreRefused) {
  const auto inventory = Take({"parallel.pp=2"});
  EXPECT_EQ(inventory.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(inventory.status().message().find("parallel.pp is 2"), std::string::npos)
      << inventory.status();
}

}  // namespace
}  // namespace tandem::bench
