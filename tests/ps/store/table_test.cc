// A table alone: rows come into being, gradients wait for their commit and add up in the published
// order.
#include "ps/store/table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "gtest/gtest.h"
#include "kernels/base/random.h"
#include "ps/server/push_windows.h"
#include "ps/store/initializer.h"
#include "ps/store/spec_check.h"
#include "ps/wire/saturating.h"
#include "ps/wire/wire_codec.h"
#include "tests/ps/push_and_commit.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

std::vector<float> PullRows(Table& table, const std::vector<uint64_t>& ids, bool create = false) {
  std::vector<float> rows(ids.size() * table.spec().dim(), -7);
  table.Pull(/*step=*/0, ids, create, rows.data());
  return rows;
}

void Push(Table& table, uint32_t slice, uint64_t sequence, const std::vector<uint64_t>& ids,
          const std::vector<float>& gradients) {
  auto kept = std::make_shared<const std::vector<float>>(gradients);
  table.Accumulate(slice, sequence, ids, kept->data(), kept);
}

// Encodes rows of `dim` for the wire, from byte `offset` on.
std::string Encoded(WireFormat format, const std::vector<float>& values, uint32_t dim,
                    size_t offset = 0) {
  std::string bytes(offset + values.size() / dim * WireBytes(format, dim), '\0');
  for (size_t row = 0; row < values.size() / dim; ++row) {
    EncodeRow(format, values.data() + row * dim, dim,
              bytes.data() + offset + row * WireBytes(format, dim));
  }
  return bytes;
}

TEST(TableTest, PullCreatesRowsOrOnlyShowsThem) {
  for (uint32_t dim : {1u, 5u, 16u, 67u}) {
    Table table(MakeTableSpec(1, dim));
    const auto ids = MakeIds(dim, 100);
    const auto shown = PullRows(table, ids);
    EXPECT_EQ(table.num_rows(), 0u);
    EXPECT_EQ(PullRows(table, ids, true), shown);
    EXPECT_EQ(table.num_rows(), ids.size());
    EXPECT_EQ(PullRows(table, ids, true), shown);
    EXPECT_EQ(table.num_rows(), ids.size());
    std::vector<float> expected(dim);
    InitializeWeights(table.spec().seed(), table.spec().init_stddev(), ids[99], expected.data(),
                      dim);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), shown.end() - dim));
  }
}

TEST(TableTest, PullWritesToGivenPositions) {
  Table table(MakeTableSpec(1, 3));
  const std::vector<uint64_t> ids = {10, 20};
  const auto rows = PullRows(table, ids);
  std::vector<float> sparse(5 * 3, -1);
  const std::vector<uint32_t> positions = {4, 1};
  table.Pull(/*step=*/0, ids, true, sparse.data(), positions);
  EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 3, sparse.begin() + 12));
  EXPECT_TRUE(std::equal(rows.begin() + 3, rows.end(), sparse.begin() + 3));
  EXPECT_EQ(sparse[0], -1);
}

TEST(TableTest, PullWritesStoredRowsOfAnySizeAndNothingBehindThem) {
  const std::vector<std::pair<RowStorage, WireFormat>> as_stored = {
      {STORED_F32, WIRE_F32}, {STORED_BF16, WIRE_BF16}, {STORED_INT8, WIRE_INT8}};
  for (const auto& [storage, format] : as_stored) {
    for (uint32_t dim : {1u, 5u, 16u, 32u, 64u, 67u, 128u, 200u}) {
      SCOPED_TRACE(testing::Message() << WireFormat_Name(format) << ", dim " << dim);
      TableSpec spec = MakeTableSpec(1, dim);
      spec.set_storage(storage);
      Table table(spec);
      const auto ids = MakeIds(dim, 150);
      const size_t row_bytes = WireBytes(format, dim);
      std::vector<char> rows(ids.size() * row_bytes + 64, '#');
      table.Pull(/*step=*/1, ids, true, rows.data(), {}, format);
      EXPECT_EQ(std::count(rows.end() - 64, rows.end(), '#'), 64);
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(std::memcmp(rows.data() + i * row_bytes, table.Find(ids[i]).weights, row_bytes),
                  0)
            << i;
      }
    }
  }
}

TEST(TableTest, PushToUnknownIdInitialisesRow) {
  Table table(MakeTableSpec(1, 4));
  const auto before = PullRows(table, {9});
  Push(table, 0, 0, {9}, {1, 2, 3, 4});
  EXPECT_EQ(PullRows(table, {9}), before) << "a push shows only after its commit";
  table.Commit(1, 0.5f, 2, false);
  const auto after = PullRows(table, {9});
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(after[i], before[i] - 0.5f * (2.0f * static_cast<float>(i + 1)));
  EXPECT_EQ(table.num_rows(), 1u);
}

TEST(TableTest, SkipDropsGradientsAndCreatesNothing) {
  Table table(MakeTableSpec(1, 4, SPARSE_ADAM));
  PullRows(table, {1}, true);
  const HashResult before = table.Hash();
  Push(table, 0, 0, {1, 2}, MakeValues(1, 8));
  table.Commit(1, 0.5f, 1, true);
  EXPECT_EQ(table.num_rows(), 1u);
  EXPECT_EQ(table.Hash().hash, before.hash);
  table.Commit(2, 0.5f, 1, false);
  EXPECT_EQ(table.Hash().num_rows, 0u) << "nothing was left pending";
}

TEST(TableTest, GradientsAddInSliceSequencePositionOrderWhateverTheArrival) {
  // 1 + 2^-24 + 2^-24 in f32 depends on the order: with the small terms first the sum is 1 + 2^-23.
  struct Arrival {
    uint32_t slice;
    uint64_t sequence;
    float gradient;
  };
  std::vector<Arrival> pushes = {
      {0, 7, 0x1p-24f}, {1, 2, 0x1p-24f}, {1, 5, 1.0f}, {3, 0, -1.0f}, {3, 1, 0x1p-30f}};
  float expected = pushes[0].gradient;
  for (size_t i = 1; i < pushes.size(); ++i) expected += pushes[i].gradient;
  std::vector<size_t> order(pushes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  TableSpec spec = MakeTableSpec(1, 1);
  spec.set_init_stddev(0);
  do {
    Table table(spec);
    for (size_t i : order)
      Push(table, pushes[i].slice, pushes[i].sequence, {5}, {pushes[i].gradient});
    table.Commit(1, 1, 1, false);
    ASSERT_EQ(PullRows(table, {5})[0], -expected);
  } while (std::next_permutation(order.begin(), order.end()));
}

// Gradients come for present and absent rows, pulled before or not, by one trainer or two, in
// random order.
// The table ends equal to one that was given each row's sum.
TEST(TableTest, RowsAddUpHoweverTheyWerePulledAndCreatedBetweenPushes) {
  constexpr uint64_t kIds = 40;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    TableSpec spec = MakeTableSpec(1, 2);
    spec.set_init_stddev(0);
    Table table(spec);
    std::vector<float> expected(kIds + 1);
    std::vector<uint32_t> updates(kIds + 1);
    uint64_t drawn = seed << 32;
    const auto draw = [&drawn](uint64_t below) { return Fmix64(++drawn) % below; };
    const auto draw_ids = [&] {
      std::vector<uint64_t> ids;
      for (uint64_t id = 1; id <= kIds; ++id) {
        if (draw(3) == 0) ids.push_back(id);
      }
      return ids;
    };
    for (uint64_t step = 1; step <= 6; ++step) {
      std::vector<std::vector<uint64_t>> pulled{draw_ids()};
      std::vector<uint64_t> touched;
      for (uint64_t sequence = 1; sequence <= 8; ++sequence) {
        if (draw(2) == 0) {
          pulled.push_back(draw_ids());
          std::vector<float> rows(pulled.back().size() * 2);
          table.Pull(step, pulled.back(), /*create=*/draw(2) == 0, rows.data());
        }
        // Often the pulled ids, or all of them but one.
        std::vector<uint64_t> ids = pulled[draw(pulled.size())];
        if (!ids.empty() && draw(3) == 0) ids.pop_back();
        std::vector<float> gradients;
        for (const uint64_t id : ids) {
          const float gradient = static_cast<float>(draw(1000));  // whole numbers add up exactly
          gradients.insert(gradients.end(), {gradient, -gradient});
          expected[id] -= gradient;
          touched.push_back(id);
        }
        Push(table, static_cast<uint32_t>(draw(3)), sequence, ids, gradients);
      }
      table.Commit(step, 1, 1, false);
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
      for (const uint64_t id : touched) ++updates[id];
    }
    for (uint64_t id = 1; id <= kIds; ++id) {
      ASSERT_EQ(PullRows(table, {id}), (std::vector<float>{expected[id], -expected[id]})) << id;
      const RowView row = table.Find(id);
      ASSERT_EQ(row.header == nullptr ? 0 : row.header->version, updates[id])
          << "the optimizer runs once a row and step";
    }
  }
}

TEST(TableTest, IdsLikeThoseThatWerePulledAreNotTakenForThem) {
  TableSpec spec = MakeTableSpec(1, 1);
  spec.set_init_stddev(0);
  Table table(spec);
  float rows[3];
  table.Pull(1, {10, 20, 30}, /*create=*/true, rows);
  Push(table, 0, 1, {10, 21, 30}, {1, 2, 3});
  table.Commit(1, 1, 1, false);
  EXPECT_EQ(PullRows(table, {10, 20, 21, 30}), (std::vector<float>{-1, 0, -2, -3}));
}

TEST(TableTest, OptimizerRunsOncePerRowHoweverManyPushes) {
  for (int optimizer = SPARSE_SGD; optimizer <= SPARSE_DC_SGD; ++optimizer) {
    Table whole(MakeTableSpec(1, 2, optimizer)), parts(MakeTableSpec(1, 2, optimizer));
    Push(whole, 0, 0, {3}, {0.75f, -3});
    Push(parts, 1, 0, {3}, {0.5f, -1});
    Push(parts, 0, 0, {3}, {0.25f, -2});
    whole.Commit(1, 0.1f, 1, false);
    parts.Commit(1, 0.1f, 1, false);
    EXPECT_EQ(whole.Hash().hash, parts.Hash().hash) << optimizer;
  }
}

TEST(TableTest, HeaderRecordsTheCommit) {
  Table table(MakeTableSpec(1, 16, SPARSE_ADAGRAD));
  PullRows(table, {4}, true);
  Push(table, 0, 0, {8, 6}, MakeValues(1, 32));
  Push(table, 1, 0, {6}, MakeValues(2, 16));
  table.Commit(41, 0.1f, 1, false);
  std::vector<RowHeader> headers;
  table.ForEachRow([&](const RowView& row) {
    headers.push_back(*row.header);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(row.weights) % 64, 0u);
  });
  ASSERT_EQ(headers.size(), 3u);
  std::sort(headers.begin(), headers.end(),
            [](const RowHeader& a, const RowHeader& b) { return a.id < b.id; });
  EXPECT_EQ(headers[0].id, 4u);
  EXPECT_EQ(headers[0].version, 0u);
  EXPECT_EQ(headers[0].last_step, 0u);
  EXPECT_EQ(headers[1].id, 6u);
  EXPECT_EQ(headers[1].version, 1u);
  EXPECT_EQ(headers[1].frequency, 2u);
  EXPECT_EQ(headers[1].last_step, 41u);
  EXPECT_EQ(headers[1].flags, 0u);
}

TEST(TableTest, RowsKeepTheirValuesWhileTheTableGrows) {
  Table table(MakeTableSpec(1, 64, SPARSE_ADAM));
  PullRows(table, {1}, true);
  std::vector<uint64_t> ids(50000);
  std::iota(ids.begin(), ids.end(), uint64_t{1});
  const auto shown = PullRows(table, ids);
  EXPECT_EQ(PullRows(table, ids, true), shown);
  EXPECT_EQ(PullRows(table, ids), shown);
  // Pulls to other places, among rows that are absent.
  ids[17] = 60001;
  ids[20000] = 60002;
  const auto with_absent = PullRows(table, ids);
  std::vector<uint32_t> positions(ids.size());
  std::iota(positions.rbegin(), positions.rend(), 0u);
  std::vector<float> turned(shown.size());
  table.Pull(/*step=*/0, ids, false, turned.data(), positions);
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSERT_TRUE(std::equal(with_absent.data() + i * 64, with_absent.data() + (i + 1) * 64,
                           turned.data() + positions[i] * size_t{64}))
        << i;
  }
  EXPECT_EQ(table.num_rows(), 50000u);
  EXPECT_EQ(PullRows(table, ids, true), with_absent);
}

// The optimizer takes some rows at once. Creating a row moves the rows that wait for the optimizer.
TEST(TableTest, RowsCreatedByACommitLeaveTheOthersAlone) {
  constexpr uint32_t kDim = 64;
  for (int optimizer : {SPARSE_SGD, SPARSE_ADAM}) {
    for (RowStorage storage : {STORED_F32, STORED_BF16}) {
      for (const auto& [format, offset] : std::vector<std::pair<WireFormat, size_t>>{
               {WIRE_F32, 0}, {WIRE_F32, 1}, {WIRE_BF16, 0}}) {
        SCOPED_TRACE(testing::Message() << optimizer << " " << storage << " "
                                        << WireFormat_Name(format) << " from byte " << offset);
        TableSpec spec = MakeTableSpec(1, kDim, optimizer);
        spec.set_storage(storage);
        Table grows(spec), has_all(spec);
        std::vector<uint64_t> all(6000), some;
        std::iota(all.begin(), all.end(), uint64_t{1});
        std::copy_if(all.begin(), all.end(), std::back_inserter(some),
                     [](uint64_t id) { return id % 3 != 0; });
        PullRows(grows, some, true);
        PullRows(has_all, all, true);
        for (Table* table : {&grows, &has_all}) {
          // One gradient per row, and two for every fifth row.
          std::vector<uint64_t> again;
          std::copy_if(all.begin(), all.end(), std::back_inserter(again),
                       [](uint64_t id) { return id % 5 == 0; });
          const std::string first = Encoded(format, MakeValues(1, all.size() * kDim), kDim, offset);
          const std::string second =
              Encoded(format, MakeValues(2, again.size() * kDim), kDim, offset);
          table->Accumulate(0, 1, all, WireRows(first.data() + offset, format), nullptr);
          table->Accumulate(1, 1, again, WireRows(second.data() + offset, format), nullptr);
          table->Commit(1, 0.1f, 0.5f, false);
        }
        EXPECT_EQ(grows.num_rows(), all.size());
        EXPECT_EQ(grows.Hash().hash, has_all.Hash().hash);
        EXPECT_EQ(PullRows(grows, all), PullRows(has_all, all));
      }
    }
  }
}

TEST(TableTest, StoredRowsAreShownAsTheyAreCreated) {
  for (RowStorage storage : {STORED_BF16, STORED_INT8}) {
    TableSpec spec = MakeTableSpec(1, 21);
    spec.set_storage(storage);
    Table table(spec);
    const auto ids = MakeIds(7, 50);
    const auto shown = PullRows(table, ids);
    EXPECT_EQ(PullRows(table, ids, true), shown);
    EXPECT_EQ(PullRows(table, ids), shown);
    std::vector<float> exact(21);
    InitializeWeights(spec.seed(), spec.init_stddev(), ids[0], exact.data(), 21);
    for (int i = 0; i < 21; ++i)
      EXPECT_NEAR(shown[static_cast<size_t>(i)], exact[static_cast<size_t>(i)], 1e-3);
  }
}

// Steps far below half a unit of the storage: rounding to nearest would lose all of them.
TEST(TableTest, SmallUpdatesOfStoredRowsAddUp) {
  for (RowStorage storage : {STORED_BF16, STORED_INT8}) {
    TableSpec spec = MakeTableSpec(1, 64);
    spec.set_storage(storage);
    spec.set_init_stddev(0);
    Table table(spec);
    std::vector<float> gradient(64, -1);
    PushAndCommit(table, 1, 1, std::vector<uint64_t>{5}, gradient.data());  // all weights 1
    for (uint64_t step = 2; step <= 1001; ++step)
      PushAndCommit(table, step, 1e-4f, std::vector<uint64_t>{5}, gradient.data());
    double mean = 0;
    for (float w : PullRows(table, {5})) mean += w / 64;
    EXPECT_NEAR(mean, 1.1, 0.02) << storage;
  }
}

TEST(TableTest, GradientNormIsOfTheSumPerRowAndOrderFree) {
  Table one(MakeTableSpec(1, 2)), other(MakeTableSpec(1, 2));
  EXPECT_EQ(one.GradientNorm(), 0u);
  Push(one, 0, 0, {1, 2}, {3, 0, 0, 1});
  Push(one, 1, 0, {1}, {0, 4});
  EXPECT_EQ(FromFixedPoint(one.GradientNorm()), 25 + 1);
  EXPECT_EQ(FromFixedPoint(one.GradientNorm()), 25 + 1) << "asking changes nothing";
  Push(other, 1, 0, {1}, {0, 4});
  Push(other, 0, 0, {2, 1}, {0, 1, 3, 0});
  EXPECT_EQ(one.GradientNorm(), other.GradientNorm());
  one.Commit(1, 0.1f, 1, false);
  EXPECT_EQ(one.GradientNorm(), 0u);
}

TEST(TableTest, GradientNormSaturates) {
  Table table(MakeTableSpec(1, 2));
  Push(table, 0, 0, {1, 2}, {3e38f, 3e38f, 1, 1});
  EXPECT_EQ(table.GradientNorm(), absl::Uint128Max());
}

TEST(TableTest, HashCountsCommittedRowsAndSeesEveryBit) {
  const auto run = [](float nudge, float extra_rows) {
    Table table(MakeTableSpec(1, 4, SPARSE_ADAM));
    if (extra_rows > 0) PullRows(table, {100, 200}, true);
    Push(table, 0, 0, {1, 2}, {1, 2, 3, 4, 5, 6, 7, nudge});
    table.Commit(1, 0.1f, 1, false);
    return table.Hash();
  };
  const HashResult hash = run(8, 0);
  EXPECT_EQ(hash.num_rows, 2u);
  EXPECT_EQ(run(8, 2).hash, hash.hash) << "rows that were only pulled do not count";
  EXPECT_NE(run(std::nextafter(8.0f, 9.0f), 0).hash, hash.hash);
}

TEST(TableTest, HashDoesNotDependOnTheOrderOfRows) {
  Table one(MakeTableSpec(1, 4, SPARSE_ADAGRAD)), other(MakeTableSpec(1, 4, SPARSE_ADAGRAD));
  Push(one, 0, 0, {1, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  Push(other, 0, 0, {2, 1}, {5, 6, 7, 8, 1, 2, 3, 4});
  one.Commit(1, 0.1f, 1, false);
  other.Commit(1, 0.1f, 1, false);
  EXPECT_EQ(one.Hash().hash, other.Hash().hash);
}

TEST(TableTest, TakesGradientsAtAnyAlignment) {
  Table aligned(MakeTableSpec(1, 3)), shifted(MakeTableSpec(1, 3));
  const auto gradients = MakeValues(1, 6);
  auto bytes = std::make_shared<std::vector<char>>(1 + 24);
  memcpy(bytes->data() + 1, gradients.data(), 24);
  Push(aligned, 0, 0, {1, 2}, gradients);
  shifted.Accumulate(0, 0, std::vector<uint64_t>{1, 2}, bytes->data() + 1, bytes);
  Push(aligned, 1, 0, {1, 2}, gradients);
  shifted.Accumulate(1, 0, std::vector<uint64_t>{1, 2}, bytes->data() + 1, bytes);
  EXPECT_EQ(aligned.GradientNorm(), shifted.GradientNorm());
  aligned.Commit(1, 0.1f, 1, false);
  shifted.Commit(1, 0.1f, 1, false);
  EXPECT_EQ(aligned.Hash().hash, shifted.Hash().hash);
}

TEST(TableTest, KeepsGradientBytesUntilCommitAndNoLonger) {
  Table table(MakeTableSpec(1, 2));
  auto bytes = std::make_shared<std::vector<float>>(2, 1.0f);
  table.Accumulate(0, 0, std::vector<uint64_t>{1}, bytes->data(), bytes);
  EXPECT_EQ(bytes.use_count(), 2);
  table.Commit(1, 0.1f, 1, false);
  EXPECT_EQ(bytes.use_count(), 1);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint64_t SequenceOf(uint64_t trainer, uint64_t sequence) {
  return trainer << kSequenceBits | sequence;
}

class ValueGuardTest : public testing::Test {
 protected:
  // Three pushes to row 5, the second not finite, and one push to row 6 that is not finite either.
  void PushAll(Table& table) {
    Push(table, 0, SequenceOf(1, 7), {5}, {1, 2});
    Push(table, 0, SequenceOf(2, 3), {6, 5}, {-kInfinity, 1, std::nanf(""), 4});
    Push(table, 1, SequenceOf(1, 8), {5}, {8, 16});
  }
  TableSpec SpecOf(TableSpec::NonFinite policy, int optimizer = SPARSE_SGD) {
    TableSpec spec = MakeTableSpec(1, 2, optimizer);
    spec.set_init_stddev(0);
    spec.set_non_finite(policy);
    return spec;
  }
};

TEST_F(ValueGuardTest, SkipDropsTheRowGradientsThatAreNotFinite) {
  Table table(SpecOf(TableSpec::SKIP));
  PushAll(table);
  EXPECT_EQ(FromFixedPoint(table.GradientNorm()), 9 * 9 + 18 * 18);
  EXPECT_EQ(table.guarded().skipped, 0u) << "counted when they are dropped";
  table.Commit(4, 1, 1, false);
  EXPECT_EQ(PullRows(table, {5}), (std::vector<float>{-9, -18}));
  EXPECT_EQ(table.Find(6).header, nullptr) << "a row with no other gradient has none";
  EXPECT_EQ(table.Find(5).header->frequency, 2u);
  EXPECT_EQ(table.guarded().skipped, 2u);
  EXPECT_EQ(table.guarded().mended, 0u);
  ASSERT_TRUE(table.guarded().first.has_value());
  EXPECT_EQ(table.guarded().first->id, 5u);
  EXPECT_EQ(table.guarded().first->trainer, 2u);
  EXPECT_EQ(table.guarded().first->step, 4u);
}

TEST_F(ValueGuardTest, ClipTakesThemAsZero) {
  Table table(SpecOf(TableSpec::CLIP));
  PushAll(table);
  table.Commit(4, 1, 1, false);
  EXPECT_EQ(PullRows(table, {5, 6}), (std::vector<float>{-9, -22, 0, -1}));
  EXPECT_EQ(table.guarded().mended, 2u);
  EXPECT_EQ(table.guarded().skipped, 0u);
  EXPECT_EQ(table.guarded().first->step, 4u);
}

TEST_F(ValueGuardTest, ASkippedStepNamesItsOffenders) {
  Table table(SpecOf(TableSpec::SKIP));
  PushAll(table);
  table.Commit(1, 1, 1, true);
  EXPECT_EQ(table.num_rows(), 0u);
  EXPECT_EQ(table.guarded().skipped, 2u);
}

// Two finite gradients of row 5, from trainers 3 and 4, whose first numbers overflow together. Row
// 6 is finite.
class OverflowTest : public ValueGuardTest {
 protected:
  static void PushOverflow(Table& table) {
    Push(table, 0, uint64_t{3} << kSequenceBits | 1, {5, 6}, {3e38f, 1, 1, 1});
    Push(table, 0, uint64_t{4} << kSequenceBits | 1, {5}, {3e38f, 1});
  }
};

TEST_F(OverflowTest, ClipTakesTheNumbersThatOverflowAsZero) {
  Table table(SpecOf(TableSpec::CLIP));
  PushOverflow(table);
  EXPECT_EQ(FromFixedPoint(table.GradientNorm()), 2 * 2 + 1 + 1);
  table.Commit(1, 1, 1, false);
  EXPECT_EQ(PullRows(table, {5, 6}), (std::vector<float>{0, -2, -1, -1}));
  EXPECT_EQ(table.guarded().mended, 1u);
  EXPECT_TRUE(table.overflow().ok());
}

TEST_F(OverflowTest, SkipDropsTheRowsGradientOfThatStep) {
  Table table(SpecOf(TableSpec::SKIP));
  PushOverflow(table);
  EXPECT_EQ(FromFixedPoint(table.GradientNorm()), 1 + 1);
  table.Commit(1, 1, 1, false);
  EXPECT_EQ(table.Find(5).header, nullptr);
  EXPECT_EQ(PullRows(table, {6}), (std::vector<float>{-1, -1}));
  EXPECT_EQ(table.guarded().skipped, 1u);
  ASSERT_TRUE(table.guarded().first.has_value());
  EXPECT_EQ(table.guarded().first->id, 5u);
  EXPECT_EQ(table.guarded().first->trainer, 4u) << "with whose gradient the sum overflows";
  EXPECT_EQ(table.guarded().first->step, 1u);
  Push(table, 0, 2, {5}, {1, 1});
  table.Commit(2, 1, 1, false);
  EXPECT_EQ(PullRows(table, {5}), (std::vector<float>{-1, -1})) << "the next step counts";
}

TEST_F(OverflowTest, RejectLeavesTheRowAndNamesIt) {
  for (const bool known : {false, true}) {
    Table table(SpecOf(TableSpec::REJECT));
    const std::vector<float> before = PullRows(table, {5}, known);
    PushOverflow(table);
    Push(table, 1, 1, {9}, {3e38f, 1});
    Push(table, 2, 1, {9}, {3e38f, 1});
    table.Commit(7, 1, 1, false);
    EXPECT_EQ(PullRows(table, {5}), before);
    EXPECT_EQ(table.overflow().code(), absl::StatusCode::kOutOfRange);
    for (const char* part : {"table1", "id 5", "trainer 4", "step 7", "sum"}) {
      EXPECT_NE(table.overflow().message().find(part), absl::string_view::npos) << table.overflow();
    }
    EXPECT_EQ(table.guarded().rejected, 2u);
  }
}

TEST_F(OverflowTest, ASkippedStepRejectsNothing) {
  Table table(SpecOf(TableSpec::REJECT));
  PushOverflow(table);
  table.Commit(1, 1, 1, true);
  EXPECT_TRUE(table.overflow().ok());
}

// Clips the sum after its scale, so the way in which pushes divide a row's gradient does not
// matter.
TEST_F(ValueGuardTest, RowsAreClippedToTheirNorm) {
  TableSpec spec = SpecOf(TableSpec::REJECT);
  spec.set_max_row_norm(2.5f);
  Table parts(spec), whole(spec);
  Push(parts, 0, 0, {5, 6}, {30, 0, 0.5f, 0});
  Push(parts, 0, 1, {5}, {0, 40});
  Push(whole, 0, 0, {5, 6}, {30, 40, 0.5f, 0});
  for (Table* table : {&parts, &whole}) {
    table->Commit(1, 1, 0.125f, false);
    const auto rows = PullRows(*table, {5, 6});
    EXPECT_FLOAT_EQ(rows[0], -1.5f);  // 0.125 * (30, 40) is 6.25 long
    EXPECT_FLOAT_EQ(rows[1], -2);
    EXPECT_EQ(rows[2], -0.0625f);
    EXPECT_EQ(table->guarded().clipped, 1u);
  }
  EXPECT_EQ(parts.Hash().hash, whole.Hash().hash);
}

TEST_F(ValueGuardTest, PoliciesCostNothingWhereAllIsFinite) {
  std::vector<absl::uint128> hashes;
  for (auto policy : {TableSpec::REJECT, TableSpec::SKIP, TableSpec::CLIP}) {
    Table table(SpecOf(policy, SPARSE_ADAM));
    Push(table, 0, 1, {1, 2}, MakeValues(1, 4));
    Push(table, 1, 1, {2, 3}, MakeValues(2, 4));
    table.Commit(1, 0.1f, 0.5f, false);
    hashes.push_back(table.Hash().hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]);
}

TEST_F(ValueGuardTest, TheFirstOffenderIsTheSameInAnyOrderOfMerging) {
  ValueGuardStatistics early, late, both;
  early.NoteOffender({9, 1, 3});
  late.NoteOffender({1, 0, 4});
  late.NoteOffender({8, 0, 4});
  early.skipped = 2;
  late.rejected = 1;
  both = late;
  both.Merge(early);
  early.Merge(late);
  for (const auto& merged : {both, early}) {
    EXPECT_EQ(merged.first->id, 9u);
    EXPECT_EQ(merged.skipped, 2u);
    EXPECT_EQ(merged.rejected, 1u);
  }
  EXPECT_EQ(late.first->id, 1u);
}

TEST(FindNonFiniteTest, FindsTheRowAtAnyAlignment) {
  std::vector<float> gradients(6, 1);
  EXPECT_EQ(FindNonFinite(gradients.data(), 3, 2), std::nullopt);
  EXPECT_EQ(FindNonFinite(gradients.data(), 0, 2), std::nullopt);
  for (float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    gradients[3] = bad;
    std::vector<char> shifted(1 + 6 * sizeof(float));
    memcpy(shifted.data() + 1, gradients.data(), 6 * sizeof(float));
    EXPECT_EQ(FindNonFinite(shifted.data() + 1, 3, 2), 1u);
  }
}

TEST(CheckTableSpecTest, NamesTheFieldThatIsWrong) {
  TableSpec spec = MakeTableSpec(1, 0);
  EXPECT_NE(CheckTableSpec(spec).message().find("dim"), absl::string_view::npos);
  spec.set_dim(65537);
  EXPECT_FALSE(CheckTableSpec(spec).ok());
  spec = MakeTableSpec(0, 4);
  EXPECT_NE(CheckTableSpec(spec).message().find("number"), absl::string_view::npos);
  spec = MakeTableSpec(1, 4);
  spec.set_init_stddev(-1);
  EXPECT_NE(CheckTableSpec(spec).message().find("init_stddev"), absl::string_view::npos);
  spec = MakeTableSpec(1, 4);
  spec.set_storage(static_cast<RowStorage>(3));
  EXPECT_NE(CheckTableSpec(spec).message().find("storage"), absl::string_view::npos);
  spec = MakeTableSpec(1, 4);
  spec.set_non_finite(static_cast<TableSpec::NonFinite>(3));
  EXPECT_NE(CheckTableSpec(spec).message().find("non_finite"), absl::string_view::npos);
  for (float bad : {-1.0f, std::nanf("")}) {
    spec = MakeTableSpec(1, 4);
    spec.set_max_row_norm(bad);
    EXPECT_NE(CheckTableSpec(spec).message().find("max_row_norm"), absl::string_view::npos);
  }
  spec = MakeTableSpec(1, 4);
  spec.clear_name();
  EXPECT_FALSE(CheckTableSpec(spec).ok());
}

}  // namespace
}  // namespace tandem::ps
