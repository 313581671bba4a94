// The bytes of one message: a list of reference-counted slices that are sent and received without being copied. A
// slice of a receive buffer keeps that buffer alive. Thread rule: a value; slices are immutable once shared.
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
  explicit Payload(std::string bytes);  // takes the string, copies nothing
  // `owner` keeps [data, data + size) alive until the last copy of the slice is gone (for a message being sent: until
  // the transport has written it).
  void Append(const void* data, size_t size, std::shared_ptr<const void> owner);
  void Append(const Payload& other);

  size_t size() const { return size_; }
  const std::vector<Slice>& slices() const { return slices_; }
  // All bytes in one piece: no copy when there is one slice, one copy (kept in this object) otherwise.
  std::string_view Flatten();
  // Makes one slice of the first two. REQUIRES: there are two.
  void JoinFirst();

 private:
  std::vector<Slice> slices_;
  size_t size_ = 0;
};

// What Payload messages look like inside (`proto/`, core.md 2): the bytes of a protobuf message whose large `bytes`
// fields come last and whose tags and lengths are written by hand, so that any protobuf library reads and writes it.
// AppendBytesField adds one such field after the already serialised small fields.
void AppendBytesField(Payload& message, int field_number, const void* data, size_t size,
                      std::shared_ptr<const void> owner);
// The same for content that lies in several pieces.
void AppendBytesField(Payload& message, int field_number, const Payload& content);

// A field of a received message, at its top level.
struct MessageField {
  int number = 0;
  bool is_length_delimited = false;
  std::string_view bytes;    // with its tag
  std::string_view content;  // of a length-delimited field
};
// Visits the top-level fields of `message` in their order until `visit` returns false. False if the visit ended so, or where the message is not
// well-formed. Takes no memory.
bool ForEachField(std::string_view message, absl::FunctionRef<bool(const MessageField&)> visit);

// A received message split into the serialised small fields and views of the bytes fields asked for.
struct SplitMessage {
  std::string small_fields;                    // parse this with the generated class
  std::vector<std::string_view> bytes_fields;  // one per requested field number, empty if absent; points into the message
};
inline constexpr size_t kAnySmallBytes = ~size_t{0};
// Scans the top-level fields of `message` (flattened). False if it is not a well-formed protobuf message, or if its small fields take more
// than `max_small_bytes`.
bool SplitBytesFields(std::string_view message, const std::vector<int>& field_numbers, SplitMessage* split,
                      size_t max_small_bytes = kAnySmallBytes);
// The same for a message with a large field, whose content, empty if absent, stays in as many pieces as it came in: where it is the
// last field, as ours are, only what stands before it is put together; elsewhere `message` is flattened.
bool SplitBytesFields(Payload& message, const std::vector<int>& field_numbers, int large_field, SplitMessage* split,
                      std::vector<std::string_view>* pieces, size_t max_small_bytes = kAnySmallBytes);
// Only the content of such a field.
bool FindBytesField(Payload& message, int field_number, std::vector<std::string_view>* pieces);

}  // namespace tandem::rpc
