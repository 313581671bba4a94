#include "rpc/first_field.h"

#include <algorithm>
#include <google/protobuf/message_lite.h>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::rpc {
namespace {

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message: ", what));
}

// The message's first bytes, up to the limit of field 1: in place, or joined in `joined` if slices
// divide them.
std::string_view Front(const Payload& message, std::string* joined) {
  const size_t size = std::min(message.size(), kMaxFirstFieldBytes);
  if (size == 0) return {};
  const Payload::Slice& first = message.slices()[0];
  if (first.size >= size) return {first.data, size};
  for (const Payload::Slice& slice : message.slices()) {
    joined->append(slice.data, std::min(slice.size, size - joined->size()));
    if (joined->size() == size) break;
  }
  return *joined;
}

}  // namespace

absl::Status ReadFirstField(const Payload& message, google::protobuf::MessageLite* first) {
  first->Clear();
  if (message.size() == 0) return absl::OkStatus();
  std::string joined;
  MessageField field;
  ForEachField(Front(message, &joined), [&field](const MessageField& found) {
    field = found;
    return false;
  });
  if (field.number != 1 || !field.is_length_delimited) {
    return Malformed(
        absl::StrCat("field 1, which says who sends it, must be the first field and take at most ",
                     kMaxFirstFieldBytes, " bytes"));
  }
  // A copy, because the sender may still write to shared memory.
  if (first->ParseFromString(std::string(field.content))) return absl::OkStatus();
  return Malformed("its field 1, which says who sends it, cannot be read");
}

absl::Status CheckFields(std::string_view message, size_t max_fields) {
  size_t num_fields = 0, num_first = 0;
  const bool good = ForEachField(message, [&](const MessageField& field) {
    num_first += field.number == 1;
    return ++num_fields <= max_fields && num_first <= 1;
  });
  if (good) return absl::OkStatus();
  if (num_first > 1) return Malformed("field 1, which says who sends it, comes twice");
  if (num_fields <= max_fields) return Malformed("not a protobuf message");
  return absl::InvalidArgumentError(
      absl::StrCat("more than ", max_fields, " fields in one message; cut it into several"));
}

}  // namespace tandem::rpc
