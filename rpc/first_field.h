// The first look at a request. Its field 1 says who sends it (RequestHeader, or Caller with one inside), comes first and once, and is read and
// checked alone: whoever has no right to call costs the server nothing but the bytes that came. Then the fields are counted, before a
// parser makes an object of each. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "rpc/payload.h"

namespace google::protobuf {
class MessageLite;
}

namespace tandem::rpc {

// What field 1 may take, with its tag.
inline constexpr size_t kMaxFirstFieldBytes = 4096;

// Parses field 1 of `message` into `first` and reads nothing behind it. InvalidArgument unless the message begins with this field. A message
// without any bytes has an empty one.
absl::Status ReadFirstField(const Payload& message, google::protobuf::MessageLite* first);

// InvalidArgument if a message, or what is left of it without its large fields, is not well-formed, has field 1 twice or more than
// `max_fields` fields.
absl::Status CheckFields(std::string_view message, size_t max_fields);

}  // namespace tandem::rpc
