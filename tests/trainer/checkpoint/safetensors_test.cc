#include "trainer/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/crc32c.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/checkpoint/file_damage.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace tandem::checkpoint {
namespace {

TEST(SafetensorsTest, EveryTypeShapeAndNameComesBackAsItWas) {
  const support::TempFolder folder;
  Safetensors written;
  written.metadata = {{"format", "tandem"}, {"quo\"te\\", "line\nbreak, \xc3\xa4"}};
  written.tensors = {
      {"blocks.0.weight", Tensor::FromVector<float>({1, -2, 3.5f, 0, 5, 6}, Shape{2, 3})},
      {"blocks.0.weight#m", Tensor::FromVector<double>({0.1, 0.2})},
      {"scalar", Tensor::FromVector<int64_t>({-7}, Shape{})},
      {"nothing", Tensor::Empty(Shape{0, 4}, DType::F32)},
      {"b\"ytes", Tensor::FromVector<uint8_t>({1, 2, 255}, Shape{1, 1, 3, 1, 1})},
      {"counts", Tensor::FromVector<uint64_t>({~uint64_t{0}})}};
  const auto digest = WriteSafetensors(folder / "x.safetensors", written);
  ASSERT_TRUE(digest.ok()) << digest.status();
  const std::string bytes = ReadBytes(folder / "x.safetensors");
  EXPECT_EQ(digest->num_bytes, bytes.size());
  EXPECT_EQ(digest->crc32c, Crc32c(0, bytes.data(), bytes.size()));
  const auto read = ReadSafetensors(folder / "x.safetensors");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata, written.metadata);
  ASSERT_EQ(read->tensors.size(), written.tensors.size());
  for (const NamedTensor& expected : written.tensors) {
    const auto found =
        std::find_if(read->tensors.begin(), read->tensors.end(),
                     [&](const NamedTensor& tensor) { return tensor.name == expected.name; });
    ASSERT_NE(found, read->tensors.end()) << expected.name;
    EXPECT_EQ(found->tensor.shape(), expected.tensor.shape());
    ASSERT_EQ(found->tensor.dtype(), expected.tensor.dtype());
    EXPECT_EQ(0,
              std::memcmp(found->tensor.raw(), expected.tensor.raw(), expected.tensor.num_bytes()));
  }
}

TEST(SafetensorsTest, LayoutIsTheFormatsOwn) {
  const support::TempFolder folder;
  ASSERT_TRUE(WriteSafetensors(folder / "x", {{{"a", Tensor::FromVector<float>({1})}}, {}}).ok());
  const std::string json = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  EXPECT_EQ(ReadBytes(folder / "x"), std::string("\x38\0\0\0\0\0\0\0", 8) + json +
                                         std::string(56 - json.size(), ' ') +
                                         std::string("\0\0\x80\x3f", 4));
}

TEST(SafetensorsTest, AnyTruncationAndAnyTailIsRefused) {
  const support::TempFolder folder;
  ASSERT_TRUE(
      WriteSafetensors(folder / "x", {{{"a", Tensor::FromVector<float>({1, 2})}}, {}}).ok());
  const std::string bytes = ReadBytes(folder / "x");
  for (size_t size = 0; size < bytes.size(); ++size) {
    WriteBytes(folder / "x", bytes.substr(0, size));
    EXPECT_TRUE(absl::IsFailedPrecondition(ReadSafetensors(folder / "x").status())) << size;
  }
  WriteBytes(folder / "x", bytes + "?");
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadSafetensors(folder / "x").status()));
  const absl::Status missing = ReadSafetensors(folder / "y").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
  EXPECT_NE(missing.message().find(folder / "y"), absl::string_view::npos) << missing;
}

TEST(SafetensorsTest, HugeHeaderLengthAllocatesNothing) {
  const support::TempFolder folder;
  for (const char* length : {"\xff\xff\xff\xff\xff\xff\xff\xff", "\x01\xe1\xf5\x05\0\0\0\0",
                             "\xf8\xff\xff\xff\xff\xff\xff\x7f"}) {
    WriteBytes(folder / "x", std::string(length, 8) + "{}");
    EXPECT_TRUE(absl::IsFailedPrecondition(ReadSafetensors(folder / "x").status()));
  }
}

struct Hostile {
  const char* json;
  const char* word;  // of the message
};

TEST(SafetensorsHeaderTest, HostileHeadersAreRefusedWithAReason) {
  constexpr uint64_t kDataBytes = 8;
  const Hostile cases[] = {
      {"", "byte 1: "},
      {"[]", "expected an object, found a list"},
      {"{", "byte 2: "},
      {"{}", "tensors end at byte 0"},
      {"{} x", "byte 4: "},
      {"{} {}", "expected end of input"},
      {"{}{\"a", "expected end of input"},
      {"[[[[[[[[", "found a list"},
      {"\xef\xbb\xbf{}", "that JSON does not have"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})", "expected '}'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},})", "expected string"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "needs dtype"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", "not known"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "twice"},
      {R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", "F33"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "whole number"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "whole number"},
      {R"({"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,8]}})", "overflow"},
      {R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "found a list"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "expected a list"},
      {R"({"a":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})", "element type"},
      {R"({"a":null})", "expected an object, found null"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,2],"data_offsets":[0,8]}})", "more than 5"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
       "too large"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775809],"data_offsets":[0,8]}})", "too large"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551618],"data_offsets":[0,8]}})",
       "expected a whole number"},
      {R"({"a":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,8]}})",
       "too large"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "must begin at 0"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "two numbers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "the data at 8"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "must begin at 0"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "must begin at 8"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})",
       "twice"},
      {R"({"__metadata__":{"k":1},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "expected a string"},
      {R"({"a\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "surrogate"},
      {R"({"a\u00)", "4 hex digits"},
      {R"({"a\)", "backslash"},
      {R"({"a)", "missing closing quote"},
      {"{\"a\n\":{}}", "control character"},
      {"{\"a\xe9\":{}}", "UTF-8"}};
  for (const Hostile& hostile : cases) {
    const absl::Status status = ParseHeader(hostile.json, kDataBytes).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << hostile.json;
    EXPECT_NE(status.message().find(hostile.word), absl::string_view::npos) << hostile.json << "\n"
                                                                            << status;
  }
}

TEST(SafetensorsTest, AHostileNameIsCutInTheError) {
  const std::string name(100000, 'n');
  const auto header = ParseHeader(absl::StrCat("{\"", name, "\":3}"), 0);
  EXPECT_FALSE(header.ok());
  EXPECT_LT(header.status().message().size(), 300);
}

TEST(SafetensorsHeaderTest, NothingHidesBehindAZeroByte) {
  for (const std::string& json : {std::string("{}\0", 3), std::string("{}\0{}", 5)})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseHeader(json, 0).status())) << json;
}

TEST(SafetensorsHeaderTest, AHostileTokenIsNotRepeatedInTheError) {
  const absl::Status status = ParseHeader("{\"" + std::string(100000, 'a'), 0).status();
  EXPECT_LT(status.message().size(), 300u) << status.message().substr(0, 1000);
}

TEST(SafetensorsHeaderTest, OtherWritersJsonIsRead) {
  const auto header = ParseHeader(
      " { \"b\" : { \"data_offsets\" : [ 4 , 8 ] , \"shape\" : [ ] , \"dtype\" : \"F32\" } ,\n"
      "\t\"\\u0061\\u00e4\\ud83d\\ude00\\/"
      "\\n\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"__metadata__\":{}}   ",
      8);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a\xc3\xa4\xf0\x9f\x98\x80/\n");
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_EQ(header->tensors[1].shape.num_dims(), 0);
}

TEST(SafetensorsHeaderTest, EveryFlippedBitOfAHeaderIsAnErrorOrAnotherHeader) {
  const std::string json =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  for (size_t bit = 0; bit < json.size() * 8; ++bit) {
    std::string damaged = json;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    const auto header = ParseHeader(damaged, 8);  // must neither crash nor read past its end
    EXPECT_TRUE(!header.ok() || header->tensors.size() <= 2);
  }
}

}  // namespace
}  // namespace tandem::checkpoint
