// The bytes of one message: a list of reference-counted slices, sent and received without copies. A
// slice of a receive buffer keeps the buffer alive.
// Thread rule: a value; slices are immutable once shared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tandem::rpc {

class Payload {
 public:
  struct Slice {
    const char* data = nullptr;
    size_t size = 0;
    std::shared_ptr<const void> owner;  // keeps data alive
  };

  Payload() = default;
  explicit Payload(std::string bytes);  // takes the string without a copy
  // `owner` keeps [data, data + size) alive until the last copy of the slice is gone. For a message
  // being sent, that is when the transport has written it.
  void Append(const void* data, size_t size, std::shared_ptr<const void> owner);
  void Append(const Payload& other);

  size_t size() const { return size_; }
  const std::vector<Slice>& slices() const { return slices_; }
  // All bytes in one piece. Copies nothing if there is one slice; otherwise copies once and keeps
  // the copy.
  std::string_view Flatten();
  // Merges the first two slices.
  // REQUIRES: at least two slices.
  void JoinFirst();

 private:
  std::vector<Slice> slices_;
  size_t size_ = 0;
};

// A Payload message (`proto/`) is a protobuf message. Its large `bytes` fields come last, with tags
// and lengths written by hand. Any protobuf library can read and write it. AppendBytesField adds
// one such field after the serialised small fields.
void AppendBytesField(Payload& message, int field_number, const void* data, size_t size,
                      std::shared_ptr<const void> owner);
// Like AppendBytesField, for content in several pieces.
void AppendBytesField(Payload& message, int field_number, const Payload& content);

// A top-level field of a received message.
struct MessageField {
  int number = 0;
  bool is_length_delimited = false;
  std::string_view bytes;    // with the tag
  std::string_view content;  // length-delimited fields only
};
// Visits the top-level fields of `message` in order until `visit` returns false. Returns false if
// `visit` did, or if the message is not well-formed. Allocates no memory.
bool ForEachField(std::string_view message, absl::FunctionRef<bool(const MessageField&)> visit);

// A received message, split into the serialised small fields and views of the requested bytes
// fields.
struct SplitMessage {
  std::string small_fields;  // parse this with the generated class
  // One per requested field number, empty if absent; points into the message.
  std::vector<std::string_view> bytes_fields;
};
inline constexpr size_t kAnySmallBytes = ~size_t{0};
// Scans the top-level fields of `message` (flattened). Returns false if `message` is not a
// well-formed protobuf message, or if the small fields take more than `max_small_bytes`.
bool SplitBytesFields(std::string_view message, const std::vector<int>& field_numbers,
                      SplitMessage* split, size_t max_small_bytes = kAnySmallBytes);
// Like above, for a message with one large field. The large field's content (empty if absent) stays
// in the pieces in which it came. If the large field is last, as in our messages, only the bytes
// before it are joined; otherwise `message` is flattened.
bool SplitBytesFields(Payload& message, const std::vector<int>& field_numbers, int large_field,
                      SplitMessage* split, std::vector<std::string_view>* pieces,
                      size_t max_small_bytes = kAnySmallBytes);
// Like SplitBytesFields, but only finds the content of one large field.
bool FindBytesField(Payload& message, int field_number, std::vector<std::string_view>* pieces);

}  // namespace tandem::rpc
