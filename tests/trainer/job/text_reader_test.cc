// The reader alone, on well-known messages with features that a Job lacks: oneofs with several
// members, bools, plain lists.
#include "trainer/job/text_reader.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace tandem {
namespace {

using Errors = std::vector<std::string>;

template <typename M>
struct Reading {
  M message;
  TextReader reader{"f", &message};
};

TEST(TextReaderTest, ReadsWhatProtobufsOwnParserReads) {
  const std::string text = R"(
    # every form of punctuation
    name: "a\tb" 'c' seed: 0x10; data { path: "x", num_items: 0XA }
    model: < sequence_rec { dropout: .5 norm_epsilon: 1e-12 loss: BCE } >
    tables { name: "one" dim: -3 } tables: [ { name: "two" }, < name: "three" learning_rate: - 2 > ]
    optimizer { kind: ADAGRAD learning_rate: 1 })";
  Job expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expected));
  Reading<Job> read;
  EXPECT_TRUE(read.reader.Read(text));
  EXPECT_EQ(read.reader.errors(), Errors{});
  EXPECT_EQ(read.message.DebugString(), expected.DebugString());
  EXPECT_EQ(read.message.tables_size(), 3);
}

TEST(TextReaderTest, AByteOrderMarkIsPassedOver) {
  Reading<Job> read;
  EXPECT_TRUE(read.reader.Read("\xEF\xBB\xBFseed: 1"));
  EXPECT_EQ(read.reader.errors(), Errors{});
  EXPECT_EQ(read.message.seed(), 1u);
  EXPECT_EQ(read.reader.Place("seed"), "f:1:1");
}

TEST(TextReaderTest, ALeadingZeroIsRefusedInEveryNumber) {
  for (const char* number : {"010", "-010", "00"}) {
    Reading<Job> read;
    EXPECT_TRUE(read.reader.Read(std::string("train { patience: ") + number +
                                 " } optimizer { beta1: " + number + " }"));
    ASSERT_EQ(read.reader.errors().size(), 2u) << number;
    EXPECT_EQ(read.reader.errors()[0], std::string("f:1:19: train.patience takes a whole number of "
                                                   "32 bits without leading zeros; found ") +
                                           number);
  }
  Reading<Job> nine;
  EXPECT_FALSE(nine.reader.Read("seed: 09"));
  EXPECT_EQ(nine.reader.errors(),
            Errors{"f:1:8: Numbers starting with leading zero must be in octal."});
  Reading<Job> set;
  set.reader.Set("seed=010");
  EXPECT_EQ(
      set.reader.errors(),
      Errors{
          "--set seed: seed takes a whole number of at least 0 without leading zeros; found 010"});
  Reading<Job> read;
  EXPECT_TRUE(
      read.reader.Read("seed: 0 train { patience: 0x10 } optimizer { beta1: 0.5 beta2: 0 }"));
  EXPECT_EQ(read.reader.errors(), Errors{});
  EXPECT_EQ(read.message.train().patience(), 16);
}

TEST(TextReaderTest, SymbolsOutsideOfQuotesThatAreNoAsciiAreShown) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"seed:\xC2\xA0"
       "1",
       "f:1:6: found \\u00a0 (U+00a0); outside of quotes all is ASCII"},
      {"\tname: \xE2\x80\x9Cn\xE2\x80\x9D",
       "f:1:15: found \xE2\x80\x9C (U+201c); outside of quotes all is ASCII"},
      {"seed: 1\ns\xE9"
       "ed: 1",
       "f:2:2: found the byte \\xe9, which is not UTF-8"},
      {"\xFF\xFEs", "f:1:1: found the byte \\xff, which is not UTF-8"},
  };
  for (const auto& [text, error] : cases) {
    Reading<Job> read;
    EXPECT_FALSE(read.reader.Read(text)) << text;
    ASSERT_FALSE(read.reader.errors().empty()) << text;
    EXPECT_EQ(read.reader.errors().back(), error) << text;
  }
}

TEST(TextReaderTest, StringsAreUtf8WithoutNul) {
  for (const char* text : {"name: \"caf\xE9\"", "name: \"caf\\351\"", "name: \"caf\\xe9\""}) {
    Reading<Job> read;
    EXPECT_TRUE(read.reader.Read(text));
    EXPECT_EQ(read.reader.errors(),
              Errors{"f:1:7: name takes UTF-8 text without NUL; found \"caf\\xe9\""});
  }
  Reading<Job> read;
  EXPECT_TRUE(read.reader.Read("data { path: \"a\\0b\" }"));
  EXPECT_EQ(read.reader.errors(),
            Errors{"f:1:14: data.path takes UTF-8 text without NUL; found \"a\\x00b\""});
  Reading<Job> accented;
  EXPECT_TRUE(accented.reader.Read("name: \"caf\xC3\xA9\""));
  EXPECT_EQ(accented.reader.errors(), Errors{});
  accented.reader.Set("name=\xE9");
  EXPECT_EQ(accented.reader.errors(),
            Errors{"--set name: name takes UTF-8 text without NUL; found \\xe9"});
}

TEST(TextReaderTest, PlacesNameTheFieldOrTheMessageAroundIt) {
  Reading<Job> read;
  ASSERT_TRUE(read.reader.Read("seed: 1\ntables {\n  dim: 2\n}\ntables { name: \"b\" }"));
  EXPECT_EQ(read.reader.Place("seed"), "f:1:1");
  EXPECT_EQ(read.reader.Place("tables[0].dim"), "f:3:3");
  EXPECT_EQ(read.reader.Place("tables[0].name"), "f:2:1");
  EXPECT_EQ(read.reader.Place("tables[1].name"), "f:5:10");
  EXPECT_EQ(read.reader.Place("train.batch_size"), "f");
  read.reader.Set("tables[b].dim=4");
  EXPECT_EQ(read.reader.Place("tables[1].dim"), "--set tables[b].dim");
}

TEST(TextReaderTest, BoolsAndPlainListsAreRead) {
  Reading<google::protobuf::FieldOptions> options;
  EXPECT_TRUE(options.reader.Read("packed: true lazy: false"));
  EXPECT_TRUE(options.message.packed());
  EXPECT_TRUE(options.message.has_lazy());
  Reading<google::protobuf::FileDescriptorProto> file;
  EXPECT_TRUE(
      file.reader.Read("dependency: [\"a\", \"b\"] dependency: \"c\" public_dependency: [0, -2] "
                       "weak_dependency: []"));
  EXPECT_EQ(file.message.dependency_size(), 3);
  EXPECT_EQ(file.message.public_dependency(1), -2);
  EXPECT_EQ(file.reader.errors(), Errors{});
}

TEST(TextReaderTest, BoolsAreSetByName) {
  Reading<google::protobuf::FieldOptions> options;
  options.reader.Set("packed=true");
  options.reader.Set("lazy=yes");
  EXPECT_TRUE(options.message.packed());
  EXPECT_EQ(options.reader.errors(), Errors{"--set lazy: lazy takes true or false; found yes"});
}

TEST(TextReaderTest, PlainListsAreSetWhole) {
  Reading<google::protobuf::FileDescriptorProto> file;
  ASSERT_TRUE(file.reader.Read("dependency: \"a\" public_dependency: 3"));
  file.reader.Set("dependency=b, c");
  file.reader.Set("public_dependency=1,2");
  EXPECT_TRUE(file.reader.errors().empty());
  EXPECT_EQ(file.message.dependency_size(), 2);
  EXPECT_EQ(file.message.dependency(1), "c");
  EXPECT_EQ(file.message.public_dependency_size(), 2);
  file.reader.Set("dependency[0]=b");
  EXPECT_EQ(file.reader.errors(), Errors{"--set dependency[0]: dependency is a list of plain "
                                         "values; set all of them, as in dependency=A,B,C"});
}

TEST(TextReaderTest, AnElementOfAPlainListIsChecked) {
  Reading<google::protobuf::FileDescriptorProto> file;
  file.reader.Set("public_dependency=1,x");
  EXPECT_EQ(file.reader.errors(), Errors{"--set public_dependency: public_dependency takes a whole "
                                         "number of 32 bits; found x"});
}

TEST(TextReaderTest, TwoMembersOfAOneofAreAnError) {
  Reading<google::protobuf::Value> value;
  EXPECT_TRUE(value.reader.Read("number_value: 1\nbool_value: true"));
  EXPECT_EQ(value.reader.errors(),
            Errors{"f:2:1: bool_value is given beside number_value; allowed: one of the two"});
  EXPECT_EQ(value.message.number_value(), 1);
}

TEST(TextReaderTest, ListWhereOneValueBelongsIsAnError) {
  Reading<Job> read;
  EXPECT_TRUE(read.reader.Read("seed: [1, 2]\nname: \"n\""));
  EXPECT_EQ(read.reader.errors(),
            Errors{"f:1:7: seed takes a whole number of at least 0; found a list"});
  EXPECT_EQ(read.message.name(), "n");
}

TEST(TextReaderTest, SyntaxErrorsEndTheReading) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"train {\n  batch_size 3", "f:2:14: expected \":\" or \"{\" after batch_size, found 3"},
      {"train {\n  batch_size: 3", "f:2:16: expected a field name, found the end of the file"},
      {"train { batch_size: }", "f:1:21: expected a value, found }"},
      {"}", "f:1:1: expected a field name, found }"},
      {"unheard { a: { b",
       "f:1:1: unknown field \"unheard\" in Job; Job has name, seed, device, numerics, data, "
       "model, train, "
       "optimizer, tables, parallel, ps, checkpoint, runtime, placement, trace, "
       "parameters, eval\nf:1:17: expected a closing bracket, "
       "found the end of the file"},
      {"tables: [ { } { } ]", "f:1:15: expected \",\" or \"]\", found {"},
  };
  for (const auto& [text, error] : cases) {
    Reading<Job> read;
    EXPECT_FALSE(read.reader.Read(text)) << text;
    std::string all;
    for (const std::string& line : read.reader.errors()) all += (all.empty() ? "" : "\n") + line;
    EXPECT_EQ(all, error) << text;
  }
}

TEST(TextReaderTest, UnfinishedStringIsOneError) {
  Reading<Job> read;
  EXPECT_FALSE(read.reader.Read("name: \"abc\nseed: 1"));
  EXPECT_EQ(read.reader.errors(), Errors{"f:1:11: String literals cannot cross line boundaries."});
}

TEST(TextReaderTest, BinaryFileIsASyntaxError) {
  Reading<Job> read;
  EXPECT_FALSE(
      read.reader.Read(std::string("\x7f"
                                   "ELF\x02\x01\0\0",
                                   8)));
  EXPECT_EQ(read.reader.errors().size(), 1u);
}

TEST(TextReaderTest, SelfContainingTypesEndTheSearchForNames) {
  Reading<google::protobuf::Value> value;
  EXPECT_TRUE(value.reader.Read("zzzzzzzzzzzz: 1"));
  EXPECT_EQ(value.reader.errors().size(), 1u);
}

}  // namespace
}  // namespace tandem
