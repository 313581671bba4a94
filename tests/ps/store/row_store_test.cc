// The store against a plain map: thousands of random operations, growth, crowded columns, and the
// slots' arithmetic at its edges.
#include "ps/store/row_store.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "gtest/gtest.h"

namespace tandem::ps {
namespace {

constexpr uint64_t kSalt = 12345;

uint64_t ValueOf(const char* record) {
  uint64_t value;
  std::memcpy(&value, record + 8, sizeof(value));
  return value;
}

void SetValue(char* record, uint64_t value) { std::memcpy(record + 8, &value, sizeof(value)); }

// Inverts x ^= x >> 33; x *= odd; in Fmix64's order.
uint64_t Unmix(uint64_t x) {
  const auto inverse = [](uint64_t odd) {
    uint64_t y = odd;  // right in its lowest 3 bits; each round doubles them
    for (int i = 0; i < 5; ++i) y *= 2 - odd * y;
    return y;
  };
  x ^= x >> 33;
  x *= inverse(0xc4ceb9fe1a85ec53ULL);
  x ^= x >> 33;
  x *= inverse(0xff51afd7ed558ccdULL);
  x ^= x >> 33;
  return x;
}

// Returns an id whose hash is `hash`, as a store with kSalt computes it.
uint64_t IdOfHash(uint64_t hash) { return Unmix(std::rotr(hash, 20)) ^ kSalt; }

TEST(RowStoreTest, UnmixIsTheInverse) {
  for (uint64_t x : {uint64_t{0}, uint64_t{1}, uint64_t{77}, ~uint64_t{0}})
    EXPECT_EQ(Unmix(Fmix64(x)), x);
}

void ExpectSame(RowStore& store, const std::map<uint64_t, uint64_t>& expected) {
  ASSERT_EQ(store.size(), expected.size());
  std::set<uint64_t> seen;
  store.ForEachRecord([&](const char* record) {
    uint64_t id;
    std::memcpy(&id, record, sizeof(id));
    EXPECT_TRUE(seen.insert(id).second) << id;
    const auto found = expected.find(id);
    ASSERT_NE(found, expected.end()) << id;
    EXPECT_EQ(ValueOf(record), found->second) << id;
  });
  EXPECT_EQ(seen.size(), expected.size());
  for (const auto& [id, value] : expected) {
    const char* record = store.Find(id);
    ASSERT_NE(record, nullptr) << id;
    ASSERT_EQ(ValueOf(record), value) << id;
  }
}

// Compares batches of random ids (present, absent or inserted on the way) with a map, in every
// instruction set.
TEST(RowStoreTest, AgreesWithAMapOverRandomBatches) {
  using kernels::InstructionSet;
  for (const InstructionSet set :
       {InstructionSet::BASELINE, InstructionSet::AVX2, InstructionSet::AMX}) {
    const kernels::InstructionSetLimit limit(set);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const size_t stride = seed % 2 == 0 ? 24 : 320;  // crowded lines, and roomy ones
      RowStore store(kSalt, stride);
      std::map<uint64_t, uint64_t> expected;
      uint64_t drawn = seed << 32;
      const auto draw = [&drawn](uint64_t below) { return Fmix64(++drawn) % below; };
      for (int batch = 0; batch < 400; ++batch) {
        std::set<uint64_t> distinct;
        // Some calls span several batches of the index, and a few span several blocks: columns grow
        // between them.
        for (uint64_t count = draw(batch % 100 == 50 ? 20000
                                   : batch % 20 == 0 ? 2500
                                                     : 150);
             count > 0; --count) {
          distinct.insert(draw(3) == 0 ? Fmix64(draw(1 << 20)) | 1
                                       : 1 + draw(uint64_t{1} << (8 + batch / 25)));
        }
        const std::vector<uint64_t> ids(distinct.begin(), distinct.end());
        const bool inserts = draw(4) != 0;
        size_t next = 0;
        std::vector<uint64_t> numbers(ids.size());
        store.FindNumbers(ids, numbers.data());
        store.ForEachNumber(numbers, 0, stride, [&](size_t i, char* record) {
          ASSERT_EQ(i, next++);
          const auto found = expected.find(ids[i]);
          ASSERT_EQ(record != nullptr, found != expected.end()) << ids[i];
          if (record != nullptr) {
            ASSERT_EQ(ValueOf(record), found->second) << ids[i];
            SetValue(record, ++found->second);
          } else if (inserts) {
            char* const inserted = store.Insert(ids[i]);
            ASSERT_EQ(ValueOf(inserted), 0u) << "a new record is zero";
            SetValue(inserted, expected[ids[i]] = draw(1000));
          }
        });
        ASSERT_EQ(next, ids.size());
        const size_t num_absent = store.FindNumbers(ids, numbers.data());
        ASSERT_EQ(num_absent,
                  static_cast<size_t>(std::count(numbers.begin(), numbers.end(), IdIndex::kNone)));
        next = 0;
        store.ForEachNumber(numbers, 0, stride, [&](size_t i, char* record) {
          ASSERT_EQ(i, next++);
          ASSERT_EQ(record, store.Find(ids[i])) << ids[i];
          if (record != nullptr) {
            ASSERT_EQ(store.NumberOf(record), numbers[i]);
          }
        });
        ASSERT_EQ(next, ids.size());
      }
      ExpectSame(store, expected);
    }
  }
}

// A batch finds nearly all ids at home, however many lines columns have. Few ids need a search of
// their own afterwards.
TEST(RowStoreTest, BatchesFindMostIdsAtHome) {
  IdIndex index(kSalt, /*max_of_line=*/4);
  std::vector<uint64_t> ids;
  for (size_t count = 1000; count <= 256000; count *= 2) {
    while (ids.size() < count) index.Insert(ids.emplace_back(1 + ids.size()));
    size_t num_away = 0;
    for (size_t first = 0; first < ids.size(); first += IdIndex::Batch::kSize) {
      IdIndex::Batch batch;
      IdIndex::Away away;
      uint64_t numbers[IdIndex::Batch::kSize];
      index.Begin(absl::MakeConstSpan(ids).subspan(first, IdIndex::Batch::kSize), batch);
      EXPECT_EQ(index.Look<kernels::InstructionSet::BASELINE>(batch, 0, numbers, away), 0u)
          << "all are there";
      num_away += away.count;
    }
    EXPECT_LT(num_away, ids.size() / 20) << "of " << ids.size();
  }
}

// All ids lie in one column and close together. They end far from home, until a line is out of
// reach and the column grows.
// Covers growth from below and from above, where the search wraps round the column's end.
TEST(RowStoreTest, TellsNeighboursApartInACrowdedColumn) {
  constexpr uint64_t kCrowd = 700, kApart = (~uint64_t{0} / 40 / kCrowd) & ~uint64_t{1023};
  for (const bool from_above : {false, true}) {
    for (const uint64_t apart : {kApart, uint64_t{1024}}) {
      const uint64_t count = apart == 1024 ? 400 : kCrowd;  // no more than 512 can have one home
      const auto id_of = [&](uint64_t i) {
        const uint64_t place = from_above ? ~uint64_t{1023} - i * apart : i * apart;
        return IdOfHash(place | 7);
      };
      RowStore store(kSalt, 16);
      std::map<uint64_t, uint64_t> expected;
      for (uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(store.Find(id_of(i)), nullptr) << i;
        SetValue(store.Insert(id_of(i)), i);
        expected[id_of(i)] = i;
      }
      ExpectSame(store, expected);
      EXPECT_EQ(store.Find(id_of(count)), nullptr);
      EXPECT_EQ(store.Find(IdOfHash(8)), nullptr) << "another column";
    }
  }
}

TEST(RowStoreTest, ManyRowsTakeLittleMoreThanTheirRecords) {
  RowStore store(kSalt, 64);
  for (uint64_t i = 1; i <= 1 << 20; ++i) SetValue(store.Insert(i * 0x9e3779b97f4a7c15ULL), i);
  for (uint64_t i = 1; i <= 1 << 20; ++i)
    ASSERT_EQ(ValueOf(store.Find(i * 0x9e3779b97f4a7c15ULL)), i);
  EXPECT_LT(static_cast<double>(store.index_bytes()) / static_cast<double>(store.size()), 13);
  EXPECT_LT(static_cast<double>(store.record_bytes()) / static_cast<double>(store.size()),
            64 * 1.15);
}

TEST(RowStoreTest, AnEmptyStoreIsSmall) {
  const RowStore store(kSalt, 1 << 12);
  EXPECT_LE(store.index_bytes() + store.record_bytes(), size_t{1} << 16);
  EXPECT_EQ(store.Find(5), nullptr);
}

}  // namespace
}  // namespace tandem::ps
