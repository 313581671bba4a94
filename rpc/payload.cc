#include "rpc/payload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/memory/buffer.h"

namespace tandem::rpc {
namespace {

constexpr int kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

// Takes a varint off the front of `bytes`. Returns false if it is truncated or longer than ten
// bytes.
bool TakeVarint(std::string_view* bytes, uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < bytes->size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>((*bytes)[i]);
    *value |= uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      bytes->remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

// Takes one field's content off the front of `bytes`. `content` excludes the length of a
// length-delimited field.
bool TakeContent(int wire_type, std::string_view* bytes, std::string_view* content) {
  uint64_t size = 0;
  switch (wire_type) {
    case kVarint:
      return TakeVarint(bytes, &size);
    case kFixed64:
      size = 8;
      break;
    case kFixed32:
      size = 4;
      break;
    case kLengthDelimited:
      if (!TakeVarint(bytes, &size)) return false;
      break;
    default:  // proto3 has no groups
      return false;
  }
  if (size > bytes->size()) return false;
  *content = bytes->substr(0, size);
  bytes->remove_prefix(size);
  return true;
}

}  // namespace

Payload::Payload(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  Append(owner->data(), owner->size(), owner);
}

void Payload::Append(const void* data, size_t size, std::shared_ptr<const void> owner) {
  if (size == 0) return;
  slices_.push_back({static_cast<const char*>(data), size, std::move(owner)});
  size_ += size;
}

void Payload::Append(const Payload& other) {
  const std::vector<Slice> added = other.slices_;  // a copy, because `other` may be this object
  slices_.insert(slices_.end(), added.begin(), added.end());
  for (const Slice& slice : added) size_ += slice.size;
}

namespace {

// Joins the first `count` slices into one.
Payload::Slice Join(const std::vector<Payload::Slice>& slices, size_t count) {
  size_t size = 0;
  for (size_t i = 0; i < count; ++i) size += slices[i].size;
  auto whole = Buffer::Allocate(size);
  char* const data = static_cast<char*>(whole->data());
  size_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(data + offset, slices[i].data, slices[i].size);
    offset += slices[i].size;
  }
  return {data, size, std::move(whole)};
}

}  // namespace

std::string_view Payload::Flatten() {
  if (slices_.empty()) return {};
  if (slices_.size() > 1) slices_.assign(1, Join(slices_, slices_.size()));
  return {slices_[0].data, slices_[0].size};
}

void Payload::JoinFirst() {
  TANDEM_CHECK_GE(slices_.size(), 2u);
  slices_[1] = Join(slices_, 2);
  slices_.erase(slices_.begin());
}

void AppendBytesField(Payload& message, int field_number, const void* data, size_t size,
                      std::shared_ptr<const void> owner) {
  Payload content;
  content.Append(data, size, std::move(owner));
  AppendBytesField(message, field_number, content);
}

void AppendBytesField(Payload& message, int field_number, const Payload& content) {
  TANDEM_CHECK_GE(field_number, 1);
  if (content.size() == 0) return;  // proto3 omits default values
  std::string prefix;
  AppendVarint(static_cast<uint64_t>(field_number) << 3 | kLengthDelimited, &prefix);
  AppendVarint(content.size(), &prefix);
  message.Append(Payload(std::move(prefix)));
  message.Append(content);
}

bool ForEachField(std::string_view message, absl::FunctionRef<bool(const MessageField&)> visit) {
  while (!message.empty()) {
    const char* const begin = message.data();
    uint64_t tag = 0;
    if (!TakeVarint(&message, &tag) || tag > 0xffffffffu || tag >> 3 == 0) return false;
    MessageField field{.number = static_cast<int>(tag >> 3),
                       .is_length_delimited = (tag & 7) == kLengthDelimited,
                       .bytes = {},
                       .content = {}};
    if (!TakeContent(static_cast<int>(tag & 7), &message, &field.content)) return false;
    field.bytes = {begin, static_cast<size_t>(message.data() - begin)};
    if (!visit(field)) return false;
  }
  return true;
}

bool SplitBytesFields(std::string_view message, const std::vector<int>& field_numbers,
                      SplitMessage* split, size_t max_small_bytes) {
  split->small_fields.clear();
  split->bytes_fields.assign(field_numbers.size(), {});
  return ForEachField(message, [&](const MessageField& field) {
    const auto wanted = std::find(field_numbers.begin(), field_numbers.end(), field.number);
    if (field.is_length_delimited && wanted != field_numbers.end()) {
      // The last one counts, as in protobuf.
      split->bytes_fields[static_cast<size_t>(wanted - field_numbers.begin())] = field.content;
      return true;
    }
    if (field.bytes.size() > max_small_bytes - split->small_fields.size()) return false;
    split->small_fields.append(field.bytes);
    return true;
  });
}

namespace {

// Finds the large field's content and the bytes before the field. Returns false unless its tag and
// length are in the first slice and it ends with the message.
bool FindLastField(const Payload& message, int field_number, std::string_view* front,
                   std::vector<std::string_view>* pieces) {
  if (message.slices().empty()) return false;
  const std::string_view whole(message.slices()[0].data, message.slices()[0].size);
  const size_t behind_first = message.size() - whole.size();
  for (std::string_view first = whole; !first.empty();) {
    std::string_view field = first;
    uint64_t tag = 0, size = 0;
    if (!TakeVarint(&field, &tag)) return false;
    if (tag == (static_cast<uint64_t>(field_number) << 3 | kLengthDelimited)) {
      if (!TakeVarint(&field, &size) || size != field.size() + behind_first) return false;
      *front = whole.substr(0, whole.size() - first.size());
      if (!field.empty()) pieces->push_back(field);
      for (size_t i = 1; i < message.slices().size(); ++i) {
        pieces->emplace_back(message.slices()[i].data, message.slices()[i].size);
      }
      return true;
    }
    std::string_view content;
    if (tag > 0xffffffffu || tag >> 3 == 0 ||
        !TakeContent(static_cast<int>(tag & 7), &field, &content))
      return false;
    first = field;
  }
  return false;
}

}  // namespace

bool SplitBytesFields(Payload& message, const std::vector<int>& field_numbers, int large_field,
                      SplitMessage* split, std::vector<std::string_view>* pieces,
                      size_t max_small_bytes) {
  // A message may begin anywhere in a slice, and few bytes precede the large field.
  constexpr int kMaxJoins = 4;
  pieces->clear();
  std::string_view front;
  for (int joins = 0; joins <= kMaxJoins; ++joins) {
    if (FindLastField(message, large_field, &front, pieces))
      return SplitBytesFields(front, field_numbers, split, max_small_bytes);
    if (message.slices().size() < 2) break;
    message.JoinFirst();
  }
  std::vector<int> all = field_numbers;
  all.push_back(large_field);
  if (!SplitBytesFields(message.Flatten(), all, split, max_small_bytes)) return false;
  if (!split->bytes_fields.back().empty()) pieces->push_back(split->bytes_fields.back());
  split->bytes_fields.pop_back();
  return true;
}

bool FindBytesField(Payload& message, int field_number, std::vector<std::string_view>* pieces) {
  SplitMessage rest;
  return SplitBytesFields(message, {}, field_number, &rest, pieces);
}

}  // namespace tandem::rpc
