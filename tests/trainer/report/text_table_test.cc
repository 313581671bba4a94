#include "trainer/report/text_table.h"

#include <gtest/gtest.h>

namespace tandem::report {
namespace {

constexpr size_t kWide = 200;

TEST(TextTableTest, NamesStandLeftAndNumbersRight) {
  TextTable table({{"table", TextTable::LEFT}, {"rows"}, {"kind", TextTable::LEFT}});
  table.Add({"item", "22", "ADAM"});
  table.Add({"a longer name", "1,000,000", ""});
  table.Add({"sum"});
  EXPECT_EQ(table.TakeLines(kWide),
            "  table               rows  kind\n"
            "  item                  22  ADAM\n"
            "  a longer name  1,000,000\n"
            "  sum\n");
}

TEST(TextTableTest, ALineThatIsPrintedBeforeTheNextStandsUnderTheSameHeadings) {
  TextTable table({{"op", TextTable::LEFT, 6}, {"M rows/s", TextTable::RIGHT, 10}}, /*indent=*/0);
  EXPECT_EQ(table.TakeLines(kWide), "op        M rows/s\n");
  table.Add({"gather", "12.5"});
  EXPECT_EQ(table.TakeLines(kWide), "gather        12.5\n");
  table.Add({"sgd", "9.25"});
  EXPECT_EQ(table.TakeLines(kWide), "sgd           9.25\n");
  EXPECT_EQ(table.TakeLines(kWide), "");
}

TEST(TextTableTest, ColumnsMoveTogetherAndTheFirstIsShortenedWhereTheTerminalIsNarrow) {
  const auto table = [] {
    TextTable made({{"name", TextTable::LEFT}, {"a"}, {"b"}});
    made.Add({"blocks.0.attention.qkv.weight", "1", "2"});
    return made;
  };
  EXPECT_EQ(table().TakeLines(37),
            "  name                           a  b\n  blocks.0.attention.qkv.weight  1  2\n");
  EXPECT_EQ(table().TakeLines(36),
            "  name                          a b\n  blocks.0.attention.qkv.weight 1 2\n");
  EXPECT_EQ(table().TakeLines(34),
            "  name                        a  b\n  blocks.0.att..n.qkv.weight  1  2\n");
  EXPECT_EQ(table().TakeLines(10),
            "  name                    a  b\n  blocks.0.a..qkv.weight  1  2\n");
}

TEST(TextTableTest, AWidthIsThatOnTheTerminal) {
  EXPECT_EQ(ColumnsOf("caf\xc3\xa9"), 4u);
  EXPECT_EQ(ColumnsOf("cafe\xcc\x81"), 4u) << "a combining mark";
  EXPECT_EQ(ColumnsOf("\xe6\x97\xa5\xe6\x9c\xac"), 4u) << "two wide symbols";
  TextTable table({{"name", TextTable::LEFT}, {"n"}});
  table.Add({"\xe6\x97\xa5\xe6\x9c\xac", "1"});
  table.Add({"\x1b[31mred", "2"});
  table.Add({"\xff", "3"});
  EXPECT_EQ(table.TakeLines(kWide),
            "  name         n\n"
            "  \xe6\x97\xa5\xe6\x9c\xac         1\n"
            "  \\x1b[31mred  2\n"
            "  \\xff         3\n");
}

TEST(TextTableTest, AShortenedTextIsCutBetweenSymbols) {
  EXPECT_EQ(Shortened("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(Shortened("abcdefghij", 9), "abc..ghij");
  EXPECT_EQ(Shortened("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 4), "\xc3\xa9..\xc3\xa9");
  EXPECT_EQ(Shortened("\xe6\x97\xa5\xe6\x9c\xac\xe6\x97\xa5\xe6\x9c\xac", 7),
            "\xe6\x97\xa5..\xe6\x9c\xac");
}

}  // namespace
}  // namespace tandem::report
