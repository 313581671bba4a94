#include "trainer/data/id_map.h"

#include <gtest/gtest.h>

#include "tests/trainer/data/temp_file.h"
#include "trainer/data/interactions.h"

namespace tandem::data {
namespace {

using Ids = std::vector<uint64_t>;

Ids Row(const Jagged& jagged, int64_t i) { return {jagged.row(i).begin(), jagged.row(i).end()}; }

TEST(IdMapTest, NumbersFollowTheOrderOfFirstComing) {
  IdMap map;
  EXPECT_EQ(map.Add("b"), 1u);
  EXPECT_EQ(map.Add("a"), 2u);
  EXPECT_EQ(map.Add("b"), 1u);
  EXPECT_EQ(map.Find("a"), 2u);
  EXPECT_EQ(map.Find("c"), 0u);
  EXPECT_EQ(map.IdOf(1), "b");
  EXPECT_EQ(map.Lines(), "b\na\n");
}

TEST(IdMapTest, LinesGiveTheSameMap) {
  const auto map = IdMap::FromLines("b\na\n");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->Find("b"), 1u);
  EXPECT_EQ(map->size(), 2u);
  EXPECT_EQ(IdMap::FromLines("")->size(), 0u);
  for (const char* lines : {"a\na\n", "a\n\nb\n", "a"})
    EXPECT_EQ(IdMap::FromLines(lines).status().code(), absl::StatusCode::kDataLoss) << lines;
}

TEST(MappedIdsTest, AnyTextIsAnId) {
  const TempFile file("anna B00x 1099511627776 B00x caf\xC3\xA9\n-7 2.5 B00x\n");
  MappedIds ids;
  const auto read = ReadSequences(file.path(), 0, &ids);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Row(read->items, 0), (Ids{1, 2, 1, 3}));
  EXPECT_EQ(Row(read->items, 1), (Ids{4, 1}));
  EXPECT_EQ(read->num_items, 4u);
  EXPECT_EQ(read->users, (Ids{1, 2}));
  EXPECT_EQ(ids.users.IdOf(2), "-7");
  EXPECT_EQ(ids.items.Lines(), "B00x\n1099511627776\ncaf\xC3\xA9\n2.5\n");
  MappedIds pair_ids;
  const auto pairs = ReadPairs(TempFile("u x\nv y\nu y\n").path(), 0, &pair_ids);
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(Row(pairs->items, 0), (Ids{1, 2}));
  EXPECT_EQ(pairs->num_items, 2u);
}

TEST(MappedIdsTest, ErrorsShowTheFilesIds) {
  const auto error = [](std::string_view content, MappedIds ids = {}) {
    const TempFile file(content);
    const auto read = ReadSequences(file.path(), 0, &ids);
    return read.ok() ? "no error"
                     : "PATH" + std::string(read.status().message()).substr(file.path().size());
  };
  EXPECT_EQ(error("anna x\nbo y\nanna z\n"), "PATH:3: user anna already has line 1");
  EXPECT_EQ(error("anna caf\xE9\n"),
            "PATH:1: expected `user item item ...`, found `caf\\xe9` at column 6");
  MappedIds closed;
  closed.items.Add("x");
  closed.closed = true;
  EXPECT_EQ(error("anna x y\n", closed), "PATH:1: item id y is not in the catalogue (column 8)");
}

TEST(MappedIdsTest, NegativesShareTheLogsNumbersAndAddTheirOwn) {
  const TempFile log("anna a b c d\nbo d c b a\n"), negatives("bo e\nzoe a\nanna e b\n"),
      own("bo e\nanna d\n"), few("bo e\n");
  MappedIds ids;
  const auto read = ReadSequences(log.path(), 0, &ids);
  ASSERT_TRUE(read.ok()) << read.status();
  const auto lists = ReadNegatives(negatives.path(), *read, &ids);
  ASSERT_TRUE(lists.ok()) << lists.status();
  EXPECT_EQ(Row(lists->lists, 0), (Ids{5, 2}));
  EXPECT_EQ(Row(lists->lists, 1), (Ids{5}));
  EXPECT_EQ(ids.items.size(), 5u);
  EXPECT_EQ(
      ReadNegatives(own.path(), *read, &ids).status().message(),
      own.path() +
          ":2: item id d (column 6) is what user anna is tested on; negatives are other items");
  EXPECT_EQ(ReadNegatives(few.path(), *read, &ids).status().message(),
            few.path() + ": no line for user anna of the interaction log");
}

}  // namespace
}  // namespace tandem::data
