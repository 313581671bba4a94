#include "trainer/data/interactions.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/data/temp_file.h"
#include "trainer/data/text_file.h"

namespace tandem::data {
namespace {

using Ids = std::vector<uint64_t>;

Ids Row(const Jagged& jagged, int64_t i) { return {jagged.row(i).begin(), jagged.row(i).end()}; }

// The error of reading `content`, with the file's path replaced by PATH.
std::string SequencesError(std::string_view content, uint64_t limit = 0) {
  const TempFile file(content);
  const auto read = ReadSequences(file.path(), limit);
  if (read.ok()) return "no error";
  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  std::string message(read.status().message());
  EXPECT_EQ(message.rfind(file.path(), 0), 0u) << message;
  return "PATH" + message.substr(file.path().size());
}

std::string PairsError(std::string_view content, uint64_t limit = 0) {
  const TempFile file(content);
  const auto read = ReadPairs(file.path(), limit);
  if (read.ok()) return "no error";
  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  return "PATH" + std::string(read.status().message()).substr(file.path().size());
}

TEST(SequencesTest, UsersAndItemsKeepTheFilesOrder) {
  const TempFile file("7 3 1 2\n5 9\n18446744073709551615 4 4\n");
  const auto read = ReadSequences(file.path(), 0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->users, (Ids{7, 5, 18446744073709551615u}));
  EXPECT_EQ(Row(read->items, 0), (Ids{3, 1, 2}));
  EXPECT_EQ(Row(read->items, 1), (Ids{9}));
  EXPECT_EQ(Row(read->items, 2), (Ids{4, 4}));
  EXPECT_EQ(read->num_items, 9u);
}

TEST(SequencesTest, CatalogueLimitIsTheNumberOfItems) {
  const TempFile file("1 5 10\n");
  EXPECT_EQ(ReadSequences(file.path(), 10)->num_items, 10u);
  EXPECT_EQ(ReadSequences(file.path(), 99)->num_items, 99u);
}

TEST(SequencesTest, ForeignLineEndsBlanksTabsAndByteOrderMarkAreAccepted) {
  const TempFile file(
      "\xEF\xBB\xBF"
      "1 2 3 \r\n\r\n  \t\n\n\t4\t5  6\t\r\n8 9");
  const auto read = ReadSequences(file.path(), 0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->users, (Ids{1, 4, 8}));
  EXPECT_EQ(Row(read->items, 0), (Ids{2, 3}));
  EXPECT_EQ(Row(read->items, 1), (Ids{5, 6}));
  EXPECT_EQ(Row(read->items, 2), (Ids{9}));
}

TEST(SequencesTest, MalformedFieldIsQuotedWithItsColumn) {
  EXPECT_EQ(SequencesError("1 2 3\n2 3 abc\n"),
            "PATH:2: expected `user item item ...`, found `abc` at column 5");
  EXPECT_EQ(SequencesError("x 2\n"),
            "PATH:1: expected `user item item ...`, found `x` at column 1");
  EXPECT_EQ(SequencesError("1 2,3\n"),
            "PATH:1: expected `user item item ...`, found `2,3` at column 3");
  EXPECT_EQ(SequencesError("1 +2\n"),
            "PATH:1: expected `user item item ...`, found `+2` at column 3");
  EXPECT_EQ(SequencesError("1 -\n"),
            "PATH:1: expected `user item item ...`, found `-` at column 3");
  EXPECT_EQ(SequencesError("1 2.5\n"),
            "PATH:1: expected `user item item ...`, found `2.5` at column 3");
}

TEST(SequencesTest, LineNumberCountsBlankLines) {
  EXPECT_EQ(SequencesError("\n\r\n1 2\n\n\n2 0\n"),
            "PATH:6: item id 0 is reserved for padding (column 3)");
}

TEST(SequencesTest, OldMacLineEndIsNotTakenForASpace) {
  EXPECT_EQ(SequencesError("1 2\r3 4\n"),
            "PATH:1: expected `user item item ...`, found `2\\r3` at column 3");
}

TEST(SequencesTest, ANoBreakSpaceDoesNotLookLikeASpace) {
  EXPECT_EQ(SequencesError("1 2\xC2\xA0"
                           "3\n"),
            "PATH:1: expected `user item item ...`, found `2\\u00a03` at column 3");
  EXPECT_EQ(SequencesError("1 caf\xE9\n"),
            "PATH:1: expected `user item item ...`, found `caf\\xe9` at column 3");
  EXPECT_EQ(
      SequencesError("1 " + std::string(39, 'a') + "\xC3\xA9\n"),
      "PATH:1: expected `user item item ...`, found `" + std::string(39, 'a') + "...` at column 3");
}

TEST(SequencesTest, UsersAreCountedByWhatTheyAreLongEnoughFor) {
  const TempFile file("1 1 2\n2 1 2 3\n3 1 2 3 4\n4 1 2 3 4 5\n");
  const UserCounts counts = CountUsers(*ReadSequences(file.path(), 0));
  EXPECT_EQ(counts.all, 4);
  EXPECT_EQ(counts.evaluated, 3);
  EXPECT_EQ(counts.trained, 2);
  EXPECT_EQ(counts.most_items, 5);
}

TEST(SequencesTest, BinaryAndLongFieldsAreEscapedAndShortened) {
  EXPECT_EQ(SequencesError("1 \x1b[2J\n"),
            "PATH:1: expected `user item item ...`, found `\\x1b[2J` at column 3");
  EXPECT_EQ(
      SequencesError("1 " + std::string(100, 'a') + "\n"),
      "PATH:1: expected `user item item ...`, found `" + std::string(40, 'a') + "...` at column 3");
}

TEST(SequencesTest, UserWithoutItemsIsAnError) {
  EXPECT_EQ(SequencesError("1 2\n2\n"),
            "PATH:2: expected `user item item ...`, found the end of the line");
}

TEST(SequencesTest, ImpossibleIdsAreNamed) {
  EXPECT_EQ(SequencesError("1 2 0\n"), "PATH:1: item id 0 is reserved for padding (column 5)");
  EXPECT_EQ(SequencesError("1 2\n2 -3\n"), "PATH:2: item id -3 is negative (column 3)");
  EXPECT_EQ(SequencesError("-1 2\n"), "PATH:1: user id -1 is negative (column 1)");
  EXPECT_EQ(SequencesError("1 2 11\n", 10),
            "PATH:1: item id 11 is above the catalogue's largest id 10 (column 5)");
  EXPECT_EQ(SequencesError("1 18446744073709551616\n"),
            "PATH:1: item id 18446744073709551616 does not fit in 64 bits (column 3)");
}

TEST(SequencesTest, SecondLineOfAUserIsAnError) {
  EXPECT_EQ(SequencesError("7 1\n8 1\n\n7 2\n"), "PATH:4: user 7 already has line 1");
}

TEST(SequencesTest, NulByteIsAnError) {
  EXPECT_EQ(SequencesError(std::string_view("1 2\n3 \0004\n", 9)),
            "PATH:2: NUL byte at column 3: is this a text file?");
}

TEST(SequencesTest, LineAboveTheLimitIsAnErrorAndOneAtTheLimitIsNot) {
  std::string line = "1 2";
  line.resize(kMaxLineBytes, ' ');
  EXPECT_EQ(SequencesError("5 5\n" + line + "\n"), "no error");
  EXPECT_EQ(SequencesError("5 5\n" + line + " \n"), "PATH:2: the line is longer than 16 MB");
}

TEST(SequencesTest, FileWithoutContentIsAnError) {
  EXPECT_EQ(SequencesError(""), "PATH: the file is empty");
  EXPECT_EQ(SequencesError("\n \r\n"), "PATH: the file has only blank lines");
}

TEST(SequencesTest, MissingFileIsNotFound) {
  for (const char* path : {"/nonexistent/log.txt", "/etc/passwd/log.txt", ""}) {
    const absl::Status status = ReadSequences(path, 0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(status.message(), absl::StrCat(path, ": No such file"));
  }
}

TEST(SequencesTest, DirectoryAndPipeAreErrorsAndDoNotHang) {
  const absl::Status directory = ReadSequences("/tmp", 0).status();
  EXPECT_EQ(directory, absl::DataLossError("/tmp: is a directory, expected a text file"));
  const std::string pipe = testing::TempDir() + "tandem_data_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadSequences(pipe, 0).status(), absl::DataLossError(pipe + ": is not a regular file"));
  std::remove(pipe.c_str());
}

TEST(PairsTest, UsersStandInOrderOfAppearanceAndKeepTheirItemsOrder) {
  const TempFile file(
      "\xEF\xBB\xBF"
      "9 1\n4 2\r\n\n9 3\n4 1\n9 2");
  const auto read = ReadPairs(file.path(), 0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->users, (Ids{9, 4}));
  EXPECT_EQ(Row(read->items, 0), (Ids{1, 3, 2}));
  EXPECT_EQ(Row(read->items, 1), (Ids{2, 1}));
  EXPECT_EQ(read->num_items, 3u);
  EXPECT_EQ(ReadPairs(file.path(), 30)->num_items, 30u);
}

TEST(PairsTest, MalformedLinesAreErrorsWithTheirPlace) {
  EXPECT_EQ(PairsError("1 2\n1\n"), "PATH:2: expected `user item`, found the end of the line");
  EXPECT_EQ(PairsError("1 2 881250949\n"),
            "PATH:1: expected `user item`, found `881250949` at column 5");
  EXPECT_EQ(PairsError("user item\n"), "PATH:1: expected `user item`, found `user` at column 1");
  EXPECT_EQ(PairsError("1 1\n1 0\n"), "PATH:2: item id 0 is reserved for padding (column 3)");
  EXPECT_EQ(PairsError("1 -1\n"), "PATH:1: item id -1 is negative (column 3)");
  EXPECT_EQ(PairsError("1 7\n", 6),
            "PATH:1: item id 7 is above the catalogue's largest id 6 (column 3)");
  EXPECT_EQ(PairsError("\n"), "PATH: the file has only blank lines");
}

class NegativesTest : public testing::Test {
 protected:
  const Interactions log_{{7, 5}, {{0, 1, 2}, {1, 2}}, 9};

  std::string Error(std::string_view content) {
    const TempFile file(content);
    const auto read = ReadNegatives(file.path(), log_);
    if (read.ok()) return "no error";
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
    return "PATH" + std::string(read.status().message()).substr(file.path().size());
  }
};

TEST_F(NegativesTest, RowsFollowTheLogsUsersAndOthersAreDropped) {
  const TempFile file("5 3 4\n6 8\n7 9 8 7\n");
  const auto read = ReadNegatives(file.path(), log_);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->lists.size(), 2);
  EXPECT_EQ(Row(read->lists, 0), (Ids{9, 8, 7}));
  EXPECT_EQ(Row(read->lists, 1), (Ids{3, 4}));
}

TEST_F(NegativesTest, AUsersOwnTargetsAreNoNegatives) {
  const Interactions log{{7, 5, 3}, {{0, 4, 6, 9}, {1, 2, 3, 4, 5, 6, 1, 2, 3}}, 9};
  const auto error = [&log](std::string_view content) {
    const TempFile file(content);
    const auto read = ReadNegatives(file.path(), log);
    return read.ok() ? "no error"
                     : "PATH" + std::string(read.status().message()).substr(file.path().size());
  };
  EXPECT_EQ(error("5 9\n3 9\n7 9 8 4\n"),
            "PATH:3: item id 4 (column 7) is what user 7 is tested on; negatives are other items");
  EXPECT_EQ(
      error("5 9\n3 9\n7 3\n"),
      "PATH:3: item id 3 (column 3) is what user 7 is validated on; negatives are other items");
  EXPECT_EQ(error("7 1 2\n3 1 9\n5 5 6\n"), "no error")
      << "what a user has seen may stand there, and user 5 is not evaluated";
}

TEST_F(NegativesTest, AnItemThatComesTwiceWouldCountTwice) {
  EXPECT_EQ(Error("5 3 4\n7 9 8 9\n"), "PATH:2: item id 9 comes twice (columns 3 and 7)");
}

TEST_F(NegativesTest, FilesAreToldApartByTheirBytes) {
  const TempFile file("5 3 4\n7 9 8\n"), other("5 3 4\n7 9 7\n");
  const auto one = ReadNegatives(file.path(), log_), two = ReadNegatives(other.path(), log_);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->source.num_bytes, 12u);
  EXPECT_EQ(two->source.num_bytes, 12u);
  EXPECT_NE(one->source.crc32c, two->source.crc32c);
  EXPECT_EQ(ReadSequences(file.path(), 0)->source.crc32c, one->source.crc32c);
  EXPECT_EQ(ReadPairs(TempFile("1 2\n").path(), 0)->source.num_bytes, 4u);
}

TEST_F(NegativesTest, MissingUserAndBadIdsAreErrors) {
  EXPECT_EQ(Error("7 3\n"), "PATH: no line for user 5 of the interaction log");
  EXPECT_EQ(Error("7 3\n5 10\n"),
            "PATH:2: item id 10 is above the catalogue's largest id 9 (column 3)");
  EXPECT_EQ(Error("7 3\n5 0\n"), "PATH:2: item id 0 is reserved for padding (column 3)");
  EXPECT_EQ(Error("7 3\n7 4\n"), "PATH:2: user 7 already has line 1");
}

}  // namespace
}  // namespace tandem::data
