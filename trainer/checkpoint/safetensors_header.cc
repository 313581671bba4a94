#include "trainer/checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace tandem::checkpoint {
namespace {

constexpr char kMetadata[] = "__metadata__";
constexpr struct {
  DType dtype;
  const char* name;
} kDTypes[] = {{DType::F32, "F32"}, {DType::F64, "F64"}, {DType::BF16, "BF16"},
               {DType::I64, "I64"}, {DType::U64, "U64"}, {DType::U8, "U8"}};

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c < 0x20)
      absl::StrAppendFormat(&out, "\\u%04x", c);
    else
      out += static_cast<char>(c);
  }
  return out + "\"";
}

void AppendUtf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
  } else {
    out += {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
            static_cast<char>(0x80 | (code & 0x3f))};
  }
}

// Reads the kinds of JSON values that a header has. After an error every method returns at once.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  const absl::Status& status() const { return status_; }
  bool failed() const { return !status_.ok(); }
  void Fail(std::string_view what) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(
          "malformed header, byte ", place_, ": ", absl::string_view(what.data(), what.size())));
    }
  }

  // Skips blanks, and takes `c` if it comes next.
  bool Take(char c) {
    while (place_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[place_]) != std::string_view::npos)
      ++place_;
    if (failed() || place_ == text_.size() || text_[place_] != c) return false;
    ++place_;
    return true;
  }
  void Expect(char c) {
    if (!Take(c)) Fail(std::string("expected ") + c);
  }
  void ExpectEnd() {
    Take('\0');  // skips the padding
    if (place_ != text_.size()) Fail("text after the header's end");
  }

  std::string String() {
    std::string out;
    Expect('"');
    while (!failed()) {
      if (place_ == text_.size())
        Fail("a string without an end");
      else if (text_[place_] == '"')
        return ++place_, out;
      else if (text_[place_] == '\\')
        Escape(out);
      else if (static_cast<unsigned char>(text_[place_]) < 0x20)
        Fail("a control character in a string");
      else
        out += text_[place_++];
    }
    return out;
  }

  uint64_t Number() {
    Take('\0');
    uint64_t value = 0;
    const size_t first = place_;
    for (; !failed() && place_ < text_.size() && text_[place_] >= '0' && text_[place_] <= '9';
         ++place_) {
      const uint64_t digit = static_cast<uint64_t>(text_[place_] - '0');
      if (value > (std::numeric_limits<uint64_t>::max() - digit) / 10)
        return Fail("a number beyond 64 bits"), 0;
      value = value * 10 + digit;
    }
    if (place_ == first) Fail("expected a whole number");
    return value;
  }

  std::vector<uint64_t> Numbers() {
    std::vector<uint64_t> values;
    Expect('[');
    if (Take(']')) return values;
    do {
      values.push_back(Number());
    } while (Take(','));
    Expect(']');
    return values;
  }

  // Calls member(key) after each key of an object. `member` reads the value.
  template <class Member>
  void Object(Member member) {
    Expect('{');
    if (Take('}')) return;
    std::set<std::string> keys;
    do {
      const std::string key = String();
      Expect(':');
      if (!keys.insert(key).second) Fail("key " + key + " comes twice");
      if (!failed()) member(key);
    } while (Take(','));
    Expect('}');
  }

 private:
  void Escape(std::string& out) {
    constexpr std::string_view kShort = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
    const char kind = place_ + 1 < text_.size() ? text_[place_ + 1] : '\0';
    if (const size_t which = kShort.find(kind); kind != '\0' && which != std::string_view::npos) {
      out += kMeaning[which];
      place_ += 2;
      return;
    }
    uint32_t code = 0;
    bool valid = kind == 'u' && place_ + 6 <= text_.size();
    for (size_t i = 2; valid && i < 6; ++i) {
      const size_t digit =
          std::string_view("0123456789abcdef").find(static_cast<char>(text_[place_ + i] | 0x20));
      valid = digit != std::string_view::npos;
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    if (!valid || (code >= 0xd800 && code < 0xe000))
      return Fail("an escape that is not allowed here");
    AppendUtf8(code, out);
    place_ += 6;
  }

  const std::string_view text_;
  size_t place_ = 0;
  absl::Status status_;
};

void ReadDType(Cursor& cursor, TensorEntry& entry) {
  const std::string name = cursor.String();
  for (const auto& known : kDTypes) {
    if (name == known.name) {
      entry.dtype = known.dtype;
      return;
    }
  }
  cursor.Fail("element type " + name + " is not known");
}

void ReadShape(Cursor& cursor, TensorEntry& entry) {
  const std::vector<uint64_t> dims = cursor.Numbers();
  if (dims.size() > static_cast<size_t>(Shape::kMaxDims))
    return cursor.Fail("a shape of more than 5 extents");
  const int num_dims = static_cast<int>(dims.size());
  Shape shape;
  if (num_dims == 1) shape = Shape{0};
  if (num_dims == 2) shape = Shape{0, 0};
  if (num_dims == 3) shape = Shape{0, 0, 0};
  if (num_dims == 4) shape = Shape{0, 0, 0, 0};
  if (num_dims == 5) shape = Shape{0, 0, 0, 0, 0};
  uint64_t elements = 1;
  for (int i = 0; i < num_dims; ++i) {
    const uint64_t limit = uint64_t{std::numeric_limits<int64_t>::max()} / 8;
    if (dims[static_cast<size_t>(i)] > limit / std::max<uint64_t>(1, elements))
      return cursor.Fail("a shape too large");
    elements *= dims[static_cast<size_t>(i)];
    shape[i] = static_cast<int64_t>(dims[static_cast<size_t>(i)]);
  }
  entry.shape = shape;
}

TensorEntry ReadTensor(Cursor& cursor, const std::string& name) {
  TensorEntry entry;
  entry.name = name;
  int members = 0;
  cursor.Object([&](const std::string& key) {
    ++members;
    if (key == "dtype") return ReadDType(cursor, entry);
    if (key == "shape") return ReadShape(cursor, entry);
    if (key != "data_offsets") return cursor.Fail("key " + key + " is not known");
    const std::vector<uint64_t> offsets = cursor.Numbers();
    if (offsets.size() != 2) return cursor.Fail("data_offsets must be two numbers");
    entry.begin = offsets[0];
    entry.end = offsets[1];
  });
  if (members != 3) cursor.Fail("tensor " + name + " needs dtype, shape and data_offsets");
  return entry;
}

// Checks that the places follow each other without gaps and that each is as long as its tensor.
absl::Status CheckPlaces(const std::vector<TensorEntry>& tensors, uint64_t data_bytes) {
  uint64_t next = 0;
  for (const TensorEntry& entry : tensors) {
    const uint64_t bytes = static_cast<uint64_t>(entry.shape.num_elements()) * SizeOf(entry.dtype);
    if (entry.begin != next || entry.end < entry.begin || entry.end - entry.begin != bytes) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", entry.name, " of ", bytes,
                                                     " bytes lies at [", entry.begin, ", ",
                                                     entry.end, "), must begin at ", next));
    }
    next = entry.end;
  }
  if (next == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensors end at byte ", next, ", the data at ", data_bytes));
}

}  // namespace

std::string PrintHeader(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty()) {
    absl::StrAppend(&json, Quoted(kMetadata), ":");
    for (char separator = '{'; const auto& [key, value] : header.metadata) {
      json += separator + Quoted(key) + ":" + Quoted(value);
      separator = ',';
    }
    json += "}";
  }
  for (const TensorEntry& entry : header.tensors) {
    const auto* dtype = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                     [&](const auto& known) { return known.dtype == entry.dtype; });
    absl::StrAppend(&json, json.size() > 1 ? "," : "", Quoted(entry.name), ":{\"dtype\":\"",
                    dtype->name, "\",\"shape\":[");
    for (int i = 0; i < entry.shape.num_dims(); ++i)
      absl::StrAppend(&json, i > 0 ? "," : "", entry.shape[i]);
    absl::StrAppend(&json, "],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

absl::StatusOr<SafetensorsHeader> ParseHeader(std::string_view json, uint64_t data_bytes) {
  SafetensorsHeader header;
  Cursor cursor(json);
  cursor.Object([&](const std::string& key) {
    if (key == kMetadata) {
      cursor.Object([&](const std::string& name) { header.metadata[name] = cursor.String(); });
    } else {
      header.tensors.push_back(ReadTensor(cursor, key));
    }
  });
  cursor.ExpectEnd();
  RETURN_IF_ERROR(cursor.status());
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  RETURN_IF_ERROR(CheckPlaces(header.tensors, data_bytes));
  return header;
}

}  // namespace tandem::checkpoint
