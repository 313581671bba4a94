// Sums of rows that several tables hold, each on its own thread, have the bits of sums over the
// rows that one table shows.
#include "ps/store/shared_sums.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/random.h"
#include "ps/store/table.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

struct Call {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> row_of;
  std::string weights;  // at an odd address
  size_t num_sums = 0;

  const char* first_weight() const { return weights.empty() ? nullptr : weights.data() + 1; }
};

// Makes bags of these `lengths`, with ids of few distinct rows, so that ids repeat.
Call MakeCall(uint64_t seed, const std::vector<size_t>& lengths, bool weighted) {
  Call call;
  for (const size_t length : lengths) {
    call.row_of.insert(call.row_of.end(), length, static_cast<uint32_t>(call.num_sums++));
  }
  for (size_t i = 0; i < call.row_of.size(); ++i) call.ids.push_back(1 + Fmix64(seed + i) % 5000);
  if (weighted) {
    const std::vector<float> weights = MakeValues(seed, call.ids.size());
    call.weights.resize(1 + weights.size() * sizeof(float));
    std::copy_n(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float),
                call.weights.data() + 1);
  }
  return call;
}

// Adds the rows that a pull shows.
std::vector<float> SumsOfPulledRows(Table& table, const Call& call, bool create) {
  std::set<uint64_t> distinct(call.ids.begin(), call.ids.end());
  const std::vector<uint64_t> ids(distinct.begin(), distinct.end());
  const size_t dim = table.spec().dim();
  std::vector<float> rows(ids.size() * dim), sums(call.num_sums * dim);
  table.Pull(/*step=*/1, ids, create, rows.data());
  for (size_t i = 0; i < call.ids.size(); ++i) {
    const auto row = std::lower_bound(ids.begin(), ids.end(), call.ids[i]) - ids.begin();
    float weight = 1;
    if (!call.weights.empty())
      std::memcpy(&weight, call.first_weight() + i * sizeof(weight), sizeof(weight));
    for (size_t column = 0; column < dim; ++column)
      sums[call.row_of[i] * dim + column] += weight * rows[static_cast<size_t>(row) * dim + column];
  }
  return sums;
}

// An id belongs to tables[id % tables.size()].
std::vector<float> SumsOfSeveral(const std::vector<std::unique_ptr<Table>>& tables,
                                 const Call& call, bool create) {
  std::vector<std::vector<uint64_t>> ids(tables.size());
  std::vector<std::vector<uint32_t>> positions(tables.size());
  for (size_t i = 0; i < call.ids.size(); ++i) {
    ids[call.ids[i] % tables.size()].push_back(call.ids[i]);
    positions[call.ids[i] % tables.size()].push_back(static_cast<uint32_t>(i));
  }
  if (tables.size() == 1) positions[0].clear();  // as a sole worker gets them
  const uint32_t dim = tables[0]->spec().dim();
  std::vector<float> sums(call.num_sums * dim);
  SharedSums shared(call.ids.size(), dim, call.row_of.data(), call.first_weight(), sums.data(),
                    static_cast<int>(tables.size()));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < tables.size(); ++t) {
    threads.emplace_back(
        [&, t] { tables[t]->PullSums(/*step=*/1, ids[t], create, positions[t], shared); });
  }
  for (std::thread& thread : threads) thread.join();
  return sums;
}

TEST(SharedSumsTest, HaveTheBitsOfOneTableWhateverTheBags) {
  const std::vector<std::vector<size_t>> calls = {
      {},
      {1},
      {0, 3, 0, 0, 2, 0},             // empty bags
      std::vector<size_t>(1200, 26),  // several blocks
      {5, 9000, 1, 12000, 0, 4},      // bags longer than a block
      std::vector<size_t>(5000, 1),
  };
  for (const uint32_t dim : {1u, 7u, 64u}) {
    for (const bool weighted : {false, true}) {
      Table one(MakeTableSpec(1, dim));
      std::vector<std::unique_ptr<Table>> tables;
      for (int t = 0; t < 3; ++t) tables.push_back(std::make_unique<Table>(MakeTableSpec(1, dim)));
      for (const bool create : {false, true, false}) {  // no row is there, all come, all are
        for (size_t c = 0; c < calls.size(); ++c) {
          const Call call = MakeCall(c, calls[c], weighted);
          ASSERT_EQ(SumsOfSeveral(tables, call, create), SumsOfPulledRows(one, call, create))
              << dim << " " << weighted << " " << c;
        }
      }
      EXPECT_GT(one.num_rows(), 4000u);
      EXPECT_LE(one.num_rows(), 5000u) << "an id that came twice has one row";
      EXPECT_EQ(tables[0]->num_rows() + tables[1]->num_rows() + tables[2]->num_rows(),
                one.num_rows());
    }
  }
}

TEST(SharedSumsTest, BlocksEndWhereASumDoes) {
  const std::vector<size_t> lengths = {3000, 2, 4000, 1, 1, 30000, 7};
  const Call call = MakeCall(1, lengths, false);
  std::vector<float> sums(call.num_sums * 16);
  const SharedSums shared(call.ids.size(), 16, call.row_of.data(), nullptr, sums.data(), 2);
  ASSERT_GT(shared.num_blocks(), 1u);
  EXPECT_EQ(shared.begin(0), 0u);
  for (size_t block = 0; block < shared.num_blocks(); ++block) {
    EXPECT_LT(shared.begin(block), shared.end(block));
    if (block > 0) {
      EXPECT_EQ(shared.begin(block), shared.end(block - 1));
      EXPECT_NE(call.row_of[shared.begin(block) - 1], call.row_of[shared.begin(block)]);
    }
  }
  EXPECT_EQ(shared.end(shared.num_blocks() - 1), call.ids.size());
}

// The push of the same ids finds the rows that a pull remembered.
TEST(SharedSumsTest, APushOfTheSameIdsReachesTheRows) {
  Table one(MakeTableSpec(1, 16));
  std::vector<std::unique_ptr<Table>> alone;
  alone.push_back(std::make_unique<Table>(MakeTableSpec(1, 16)));
  const Call call = MakeCall(9, std::vector<size_t>(900, 26), true);
  EXPECT_EQ(SumsOfSeveral(alone, call, true), SumsOfPulledRows(one, call, true));
  const auto gradients =
      std::make_shared<const std::vector<float>>(MakeValues(3, call.num_sums * 16));
  for (Table* table : {&one, alone[0].get()}) {
    table->Accumulate(0, 1, call.ids, gradients->data(), gradients, call.row_of);
    table->Commit(1, 0.1, 1, false);
  }
  EXPECT_EQ(SumsOfSeveral(alone, call, false), SumsOfPulledRows(one, call, false));
}

}  // namespace
}  // namespace tandem::ps
