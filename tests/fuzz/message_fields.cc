#include "google/protobuf/unknown_field_set.h"
#include "kernels/base/check.h"
#include "proto/embedding.pb.h"
#include "rpc/payload.h"
#include "tests/fuzz/memory_use.h"
#include "tests/fuzz/target.h"

namespace tandem::fuzz {
namespace {

constexpr int kIds = 14, kGradients = 15;  // PushRequest's field numbers

// Returns true if the message has groups, which protobuf's parser still reads and ours does not.
bool HasGroups(const PushRequest& message) {
  const google::protobuf::UnknownFieldSet& fields =
      message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).type() == google::protobuf::UnknownField::TYPE_GROUP) return true;
  }
  return false;
}

std::string Known(PushRequest message) {
  message.DiscardUnknownFields();
  return message.SerializeAsString();
}

std::string Join(const std::vector<std::string_view>& pieces) {
  std::string joined;
  for (std::string_view piece : pieces) joined += piece;
  return joined;
}

void Run(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const size_t step = static_cast<unsigned char>(bytes[0]) + 1u,
               first = static_cast<unsigned char>(bytes[1]);
  const std::string_view message = bytes.substr(2);
  rpc::SplitMessage split;
  const bool good = Within(message.size(), kRowsFactor, [&] {
    return rpc::SplitBytesFields(message, {kIds, kGradients}, &split);
  });

  PushRequest whole, small;
  const bool read = whole.ParseFromArray(message.data(), static_cast<int>(message.size()));
  if (read && !HasGroups(whole)) {  // as protobuf writes it; as it came, it may have tags that
                                    // protobuf cuts to 32 bits
    rpc::SplitMessage written;
    TANDEM_CHECK(rpc::SplitBytesFields(whole.SerializeAsString(), {kIds, kGradients}, &written));
  }
  if (good && read) {
    TANDEM_CHECK(small.ParseFromString(split.small_fields));
    TANDEM_CHECK(small.ids().empty() && small.gradients().empty());
    TANDEM_CHECK(whole.ids() == split.bytes_fields[0] &&
                 whole.gradients() == split.bytes_fields[1]);
    whole.clear_ids();
    whole.clear_gradients();
    TANDEM_CHECK(Known(whole) == Known(small));
  }

  rpc::Payload sliced;
  for (size_t begin = 0; begin < message.size();) {
    const size_t size = std::min(message.size() - begin, begin == 0 && first != 0 ? first : step);
    sliced.Append(rpc::Payload(std::string(message.substr(begin, size))));
    begin += size;
  }
  rpc::Payload copy = sliced;
  std::vector<std::string_view> pieces;
  TANDEM_CHECK_EQ(rpc::FindBytesField(copy, kGradients, &pieces), good);
  TANDEM_CHECK(!good || Join(pieces) == split.bytes_fields[1]);
  rpc::SplitMessage in_pieces;
  const bool good_in_pieces = Within(message.size(), kRowsFactor, [&] {
    return rpc::SplitBytesFields(sliced, {kIds}, kGradients, &in_pieces, &pieces);
  });
  TANDEM_CHECK_EQ(good_in_pieces, good);
  if (!good) return;
  TANDEM_CHECK(Join(pieces) == split.bytes_fields[1] &&
               in_pieces.bytes_fields[0] == split.bytes_fields[0]);
  TANDEM_CHECK(in_pieces.small_fields == split.small_fields);
}

std::vector<std::string> Seeds() {
  PushRequest push;
  push.mutable_header()->set_protocol_version(1);
  push.mutable_header()->set_job_epoch(7);
  push.set_sequence(300);
  push.set_payload_crc32c(5);
  push.add_segments()->set_table(1);
  push.mutable_segments(0)->set_count(2);
  push.set_ids(std::string(16, 'i'));
  push.set_gradients(std::string(200, 'g'));
  const std::string message = push.SerializeAsString();
  // One slice; slices of 7 bytes; the large field first.
  return {std::string("\xff\0", 2) + message, std::string("\x06\x09") + message,
          std::string("\x0f\0", 2) + "\x7a\x03ggg" + message.substr(0, message.size() - 203)};
}

}  // namespace

Target MessageFields() { return {"message_fields", Run, Seeds}; }

}  // namespace tandem::fuzz
