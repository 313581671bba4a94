#include "trainer/data/catalogue.h"

#include <gtest/gtest.h>

namespace tandem::data {
namespace {

// A log of one user with the ids 1 .. count, and `largest`.
Interactions LogOf(uint64_t count, uint64_t largest) {
  Interactions log;
  log.users = {1};
  std::vector<uint64_t> items;
  for (uint64_t id = 1; id <= count; ++id) items.push_back(id);
  items.push_back(largest);
  log.items.Append(items);
  log.num_items = largest;
  return log;
}

constexpr double kItemBytes = 72;  // of dim 8

TEST(CatalogueTest, ManyMoreIdsThanItemsAreSparse) {
  for (const uint64_t largest :
       {uint64_t{1} << 20, (uint64_t{1} << 24) + 1, uint64_t{1} << 40, ~uint64_t{0}}) {
    const absl::Status status = CheckDenseIds("log", LogOf(4, largest), kItemBytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << largest;
  }
  EXPECT_EQ(CheckDenseIds("log", LogOf(4, uint64_t{1} << 40), kItemBytes).message(),
            "log: the item ids are sparse: the largest is 1099511627776, of 5 different ones; each "
            "id up to the largest would have a row: "
            "number items 1, 2, 3 ..., or set data.ids=MAP or data.num_items");
}

TEST(CatalogueTest, AGapThatCostsLittleIsTaken) {
  EXPECT_TRUE(CheckDenseIds("log", LogOf(4, 200'000), kItemBytes).ok());
  EXPECT_FALSE(CheckDenseIds("log", LogOf(4, 200'000), 100 * kItemBytes).ok())
      << "wider rows cost more";
}

TEST(CatalogueTest, ALargeCatalogueWhoseItemsOccurIsDense) {
  EXPECT_TRUE(CheckDenseIds("log", LogOf(100'000, 1'500'000), kItemBytes).ok());
  EXPECT_FALSE(CheckDenseIds("log", LogOf(100'000, 1'700'000), kItemBytes).ok());
}

TEST(CatalogueTest, WhatThisMachineCannotHoldIsRefused) {
  EXPECT_TRUE(CheckCatalogueFits(1'000'000, kItemBytes).ok());
  for (const uint64_t num_items : {uint64_t{1} << 40, ~uint64_t{0}}) {
    EXPECT_EQ(CheckCatalogueFits(num_items, kItemBytes).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tandem::data
