#include "rpc/first_field.h"

#include <gtest/gtest.h>

#include "proto/master.pb.h"

namespace tandem::rpc {
namespace {

StoreSetRequest Request() {
  StoreSetRequest request;
  request.mutable_header()->set_protocol_version(1);
  request.mutable_header()->set_job_epoch(7);
  request.set_key("key");
  request.set_value("value");
  return request;
}

TEST(FirstFieldTest, IsReadWhereverTheMessageIsCut) {
  const std::string bytes = Request().SerializeAsString();
  for (size_t step = 1; step <= bytes.size(); ++step) {
    Payload sliced;
    for (size_t begin = 0; begin < bytes.size(); begin += step)
      sliced.Append(Payload(bytes.substr(begin, step)));
    RequestHeader header;
    ASSERT_TRUE(ReadFirstField(sliced, &header).ok()) << step;
    EXPECT_EQ(header.job_epoch(), 7u);
  }
}

TEST(FirstFieldTest, NothingBehindItIsRead) {
  RequestHeader header;
  EXPECT_TRUE(ReadFirstField(Payload(Request().SerializeAsString() + "\xff\xff"), &header).ok());
  EXPECT_EQ(header.protocol_version(), 1u);
}

TEST(FirstFieldTest, AnotherFieldInItsPlaceIsRefused) {
  StoreSetRequest request = Request();
  request.clear_header();
  RequestHeader header;
  EXPECT_TRUE(
      absl::IsInvalidArgument(ReadFirstField(Payload(request.SerializeAsString()), &header)));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFirstField(Payload(std::string("\x08\x01")), &header)))
      << "no message";
  EXPECT_TRUE(ReadFirstField(Payload(), &header).ok()) << "an empty one";
  EXPECT_EQ(header.protocol_version(), 0u);
}

TEST(FirstFieldTest, OneThatIsCutShortOrTooLongIsRefused) {
  const std::string bytes = Request().SerializeAsString();
  RequestHeader header;
  for (size_t size = 1; size < 2 + static_cast<size_t>(bytes[1]); ++size) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReadFirstField(Payload(bytes.substr(0, size)), &header)))
        << size;
  }
  for (const auto& [size, good] :
       {std::pair(kMaxFirstFieldBytes - 10, true), std::pair(kMaxFirstFieldBytes, false)}) {
    RegisterRequest names;
    names.set_host(std::string(size, 'x'));
    std::string field = names.SerializeAsString();
    field[0] = 1 << 3 | 2;
    StoreSetRequest unknown;  // any message that has no field in its way
    const absl::Status status = ReadFirstField(Payload(field), &unknown);
    EXPECT_EQ(status.message().find("at most") == absl::string_view::npos, good) << status;
  }
}

TEST(CheckFieldsTest, CountsFieldsAndFindsASecondFirstOne) {
  const std::string bytes = Request().SerializeAsString();
  EXPECT_TRUE(CheckFields(bytes, 3).ok());
  EXPECT_NE(CheckFields(bytes, 2).message().find("more than 2 fields"), absl::string_view::npos);
  EXPECT_NE(CheckFields(bytes + bytes, 9).message().find("comes twice"), absl::string_view::npos);
  EXPECT_NE(CheckFields(bytes + "\x0b", 9).message().find("not a protobuf message"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace tandem::rpc
