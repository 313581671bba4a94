// Checks the sender of a request before parsing the rest. Field 1 names the sender (a
// RequestHeader, or a Caller that holds one) and must come first and once. So a caller without the
// right to call costs the server only the received bytes. CheckFields then counts the fields before
// a parser allocates an object for each.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "rpc/payload.h"

namespace google::protobuf {
class MessageLite;
}

namespace tandem::rpc {

// The most bytes that field 1 may take, with its tag.
inline constexpr size_t kMaxFirstFieldBytes = 4096;

// Parses field 1 of `message` into `first` and reads nothing behind the field. InvalidArgument
// unless the message begins with field 1. An empty message has an empty field 1.
absl::Status ReadFirstField(const Payload& message, google::protobuf::MessageLite* first);

// InvalidArgument if `message` is not well-formed, has field 1 twice, or has more than `max_fields`
// fields. `message` may lack its large fields.
absl::Status CheckFields(std::string_view message, size_t max_fields);

}  // namespace tandem::rpc
