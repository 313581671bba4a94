#include "rpc/payload.h"

#include <gtest/gtest.h>

#include "proto/embedding.pb.h"

namespace tandem::rpc {
namespace {

PullRequest SmallPullRequest() {
  PullRequest request;
  request.mutable_header()->set_protocol_version(1);
  request.mutable_header()->set_job_epoch(0x1234567890abcdefULL);
  request.set_step(300);
  request.set_create(true);
  auto* segment = request.add_segments();
  segment->set_table(1);
  segment->set_count(3);
  return request;
}

std::shared_ptr<const std::string> Shared(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

TEST(PayloadTest, EmptyPayloadFlattensToNothing) {
  Payload payload;
  EXPECT_EQ(payload.size(), 0u);
  EXPECT_TRUE(payload.Flatten().empty());
  payload.Append("x", 0, nullptr);
  EXPECT_TRUE(payload.slices().empty());
}

TEST(PayloadTest, OneSliceIsFlattenedWithoutCopying) {
  auto owner = Shared("0123456789");
  Payload payload;
  payload.Append(owner->data() + 2, 5, owner);
  EXPECT_EQ(payload.Flatten().data(), owner->data() + 2);
  EXPECT_EQ(payload.Flatten(), "23456");
}

TEST(PayloadTest, SlicesKeepTheirOwnersUntilFlattened) {
  auto owner = Shared("abc");
  Payload payload;
  payload.Append(owner->data(), 3, owner);
  payload.Append(Payload(std::string("def")));
  payload.Append(payload);  // itself
  EXPECT_EQ(owner.use_count(), 3);
  EXPECT_EQ(payload.size(), 12u);
  EXPECT_EQ(payload.Flatten(), "abcdefabcdef");
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(payload.slices().size(), 1u);
}

TEST(BytesFieldTest, ProtobufReadsWhatWeWrite) {
  for (size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{100003}}) {
    const PullRequest small = SmallPullRequest();
    auto ids = Shared(std::string(count * 8, '\x7f'));
    Payload message(small.SerializeAsString());
    AppendBytesField(message, 15, ids->data(), ids->size(), ids);
    PullRequest parsed;
    const std::string_view whole = message.Flatten();
    ASSERT_TRUE(parsed.ParseFromArray(whole.data(), static_cast<int>(whole.size())));
    PullRequest expected = small;
    expected.set_ids(*ids);
    EXPECT_EQ(parsed.SerializeAsString(), expected.SerializeAsString());
  }
}

TEST(BytesFieldTest, WeReadWhatProtobufWrites) {
  PushRequest request;
  request.mutable_header()->set_protocol_version(1);
  request.set_sequence(1ULL << 40);
  request.set_payload_crc32c(77);
  request.set_ids(std::string(8, 'i'));
  request.set_gradients(std::string(400, 'g'));
  const std::string bytes = request.SerializeAsString();
  SplitMessage split;
  ASSERT_TRUE(SplitBytesFields(bytes, {14, 15}, &split));
  EXPECT_EQ(split.bytes_fields[0], request.ids());
  EXPECT_EQ(split.bytes_fields[1], request.gradients());
  EXPECT_GE(split.bytes_fields[1].data(), bytes.data());
  PushRequest small;
  ASSERT_TRUE(small.ParseFromString(split.small_fields));
  request.clear_ids();
  request.clear_gradients();
  EXPECT_EQ(small.SerializeAsString(), request.SerializeAsString());
}

TEST(BytesFieldTest, AbsentFieldIsEmptyAndRepeatedFieldTakesTheLast) {
  PullReply reply;
  reply.set_shard_map_version(9);
  SplitMessage split;
  ASSERT_TRUE(SplitBytesFields(reply.SerializeAsString(), {15}, &split));
  EXPECT_TRUE(split.bytes_fields[0].empty());
  Payload twice;
  AppendBytesField(twice, 15, "one", 3, nullptr);
  AppendBytesField(twice, 15, "two", 3, nullptr);
  ASSERT_TRUE(SplitBytesFields(twice.Flatten(), {15}, &split));
  EXPECT_EQ(split.bytes_fields[0], "two");
}

TEST(BytesFieldTest, EveryTruncationIsRefusedOrIsAWholeNumberOfFields) {
  PullRequest request = SmallPullRequest();
  request.set_ids(std::string(200, 'i'));
  const std::string bytes = request.SerializeAsString();
  for (size_t size = 0; size <= bytes.size(); ++size) {
    SplitMessage split;
    PullRequest parsed;
    EXPECT_EQ(SplitBytesFields(std::string_view(bytes).substr(0, size), {15}, &split),
              parsed.ParseFromArray(bytes.data(), static_cast<int>(size)))
        << size;
  }
}

// Finds the field however the message is sliced and wherever the field stands.
TEST(BytesFieldTest, TheFieldIsFoundInPieces) {
  const std::string small = SmallPullRequest().SerializeAsString(), ids = "0123456789abcdef";
  Payload field;
  AppendBytesField(field, 15, ids.data(), ids.size(), nullptr);
  const std::string last(field.Flatten());
  for (const std::string& bytes : {small + last, last + small, small + last + last, small}) {
    for (size_t first = 0; first <= bytes.size(); ++first) {
      for (size_t second = first; second <= bytes.size(); second += 5) {
        Payload message;
        message.Append(bytes.data(), first, nullptr);
        message.Append(bytes.data() + first, second - first, nullptr);
        message.Append(bytes.data() + second, bytes.size() - second, nullptr);
        std::vector<std::string_view> pieces{"old"};
        ASSERT_TRUE(FindBytesField(message, 15, &pieces));
        std::string found;
        for (const std::string_view piece : pieces) found += piece;
        EXPECT_EQ(found, bytes == small ? "" : ids) << first << " " << second;
      }
    }
  }
  Payload whole;
  whole.Append(last.data(), 2, nullptr);
  whole.Append(last.data() + 2, last.size() - 2, nullptr);
  std::vector<std::string_view> pieces;
  ASSERT_TRUE(FindBytesField(whole, 15, &pieces));
  EXPECT_EQ(pieces[0].data(), last.data() + 2);  // nothing was copied
}

TEST(BytesFieldTest, AFieldCutShortIsNotFound) {
  const std::string ids(200, 'i');
  Payload field;
  AppendBytesField(field, 15, ids.data(), ids.size(), nullptr);
  const std::string bytes = std::string(field.Flatten());
  for (size_t size = 1; size < bytes.size(); ++size) {
    Payload cut;
    cut.Append(bytes.data(), std::min<size_t>(size, 3), nullptr);
    if (size > 3) cut.Append(bytes.data() + 3, size - 3, nullptr);
    std::vector<std::string_view> pieces;
    EXPECT_FALSE(FindBytesField(cut, 15, &pieces)) << size;
  }
}

TEST(BytesFieldTest, MalformedInputIsRefused) {
  const std::string ten(10, '\xff');
  for (const std::string& bytes : {
           std::string("\x80", 1),              // tag cut short
           std::string("\x00", 1),              // field 0
           std::string("\x78\x80", 2),          // varint cut short
           "\x78" + ten + "\x01",               // varint of eleven bytes
           std::string("\x79\x01\x02", 3),      // fixed64 cut short
           std::string("\x7d\x01\x02\x03", 4),  // fixed32 cut short
           std::string("\x7a\x05"
                       "abcd",
                       6),                            // bytes cut short
           "\x7a" + std::string(9, '\xff') + "\x01",  // length 2^64 - 1
           std::string("\x7b", 1),                    // a group
           std::string("\x7e", 1),                    // wire type 6
           std::string(4, '\xff') + "\x7f\x00",       // tag above 32 bits
       }) {
    SplitMessage split;
    EXPECT_FALSE(SplitBytesFields(bytes, {15}, &split)) << testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace tandem::rpc
