#include "trainer/checkpoint/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::checkpoint {
namespace {

constexpr char kMetadata[] = "__metadata__";
constexpr struct {
  DType dtype;
  const char* name;
} kDTypes[] = {{DType::F32, "F32"}, {DType::F64, "F64"}, {DType::BF16, "BF16"},
               {DType::I64, "I64"}, {DType::U64, "U64"}, {DType::U8, "U8"}};

constexpr char kDTypeKey[] = "dtype", kShapeKey[] = "shape", kOffsetsKey[] = "data_offsets";

// A name of the file, for an error. A hostile name may be as long as the header.
std::string Short(const std::string& name) {
  constexpr size_t kShown = 100;
  return name.size() <= kShown ? name : absl::StrCat(name.substr(0, kShown), "...");
}

// Takes the parser's events. Keeps no tree and refuses every event that the format does not have at
// its place, so a hostile header costs little more than its bytes. The parser ends at the first
// method that returns false.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderEvents(SafetensorsHeader& header) : header_(header) {}

  const absl::Status& status() const { return status_; }

  bool start_object(std::size_t) override {
    if (place_ == Place::START) return Enter(Place::ROOT);
    if (place_ != Place::ROOT) return Unexpected("an object");
    if (key_ == kMetadata) return Enter(Place::METADATA);
    header_.tensors.emplace_back().name = key_;
    return Enter(Place::TENSOR);
  }

  bool key(std::string& key) override {
    std::set<std::string>& keys = place_ == Place::ROOT ? root_keys_ : inner_keys_;
    if (!keys.insert(key).second) return Fail("key ", Short(key), " comes twice");
    key_ = key;
    return place_ != Place::TENSOR || key == kDTypeKey || key == kShapeKey || key == kOffsetsKey ||
           Fail("key ", Short(key), " is not known");
  }

  bool end_object() override {
    if (place_ == Place::TENSOR && inner_keys_.size() != 3)
      return Fail("tensor ", Short(tensor().name), " needs dtype, shape and data_offsets");
    inner_keys_.clear();
    return Enter(place_ == Place::ROOT ? Place::END : Place::ROOT);
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::TENSOR || key_ == kDTypeKey) return Unexpected("a list");
    numbers_.clear();
    return Enter(Place::NUMBERS);
  }

  bool end_array() override {
    Enter(Place::TENSOR);
    return key_ == kShapeKey ? TakeShape() : TakeOffsets();
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::NUMBERS) return Unexpected("a number");
    if (numbers_.size() == kMaxNumbers)
      return Fail(key_, " has more than ", kMaxNumbers, " numbers");
    numbers_.push_back(value);
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::TENSOR && key_ == kDTypeKey) return TakeDType(text);
    if (place_ != Place::METADATA) return Unexpected("a string");
    header_.metadata[key_] = text;
    return true;
  }

  // The parser takes a whole number beyond 64 bits for a float.
  bool number_integer(int64_t) override { return Unexpected("a number below 0"); }
  bool number_float(double, const std::string&) override { return Unexpected("another number"); }
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool binary(binary_t&) override { return Unexpected("bytes"); }

  bool parse_error(std::size_t place, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[NAME] parse error at line 1, column 3: WHERE - WHY; last read: TOKEN". A hostile token may
    // be as long as the header.
    std::string why = error.what();
    why.resize(std::min({why.size(), why.find("; last read"), size_t{200}}));
    for (const char* end : {"] ", " - "}) {
      if (const size_t at = why.find(end); at != std::string::npos)
        why.erase(0, at + std::strlen(end));
    }
    return Fail("byte ", place, ": ", why);
  }

 private:
  enum class Place { START, ROOT, METADATA, TENSOR, NUMBERS, END };

  TensorEntry& tensor() { return header_.tensors.back(); }

  bool Enter(Place place) {
    place_ = place;
    return true;
  }

  template <class... Text>
  bool Fail(const Text&... text) {
    status_ = absl::InvalidArgumentError(absl::StrCat("malformed header, ", text...));
    return false;
  }

  bool Unexpected(const char* found) {
    if (place_ == Place::START) return Fail("expected an object, found ", found);
    const char* expected = place_ == Place::ROOT       ? "an object"
                           : place_ == Place::METADATA ? "a string"
                           : place_ == Place::NUMBERS  ? "a whole number"
                           : key_ == kDTypeKey         ? "an element type"
                                                       : "a list";
    return Fail("key ", Short(key_), ": expected ", expected, ", found ", found);
  }

  bool TakeDType(const std::string& name) {
    for (const auto& known : kDTypes) {
      if (name != known.name) continue;
      tensor().dtype = known.dtype;
      return true;
    }
    return Fail("element type ", Short(name), " is not known");
  }

  bool TakeShape() {
    const Shape ones[] = {{}, {1}, {1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1, 1}};
    tensor().shape = ones[numbers_.size()];
    uint64_t elements = 1;
    for (size_t i = 0; i < numbers_.size(); ++i) {
      const uint64_t limit = uint64_t{std::numeric_limits<int64_t>::max()} / 8;
      if (numbers_[i] > limit / std::max<uint64_t>(1, elements)) return Fail("a shape too large");
      elements *= numbers_[i];
      tensor().shape[static_cast<int>(i)] = static_cast<int64_t>(numbers_[i]);
    }
    return true;
  }

  bool TakeOffsets() {
    if (numbers_.size() != 2) return Fail("data_offsets must be two numbers");
    tensor().begin = numbers_[0];
    tensor().end = numbers_[1];
    return true;
  }

  static constexpr size_t kMaxNumbers = Shape::kMaxDims;

  SafetensorsHeader& header_;
  absl::Status status_;
  Place place_ = Place::START;
  std::string key_;                               // the last one
  std::set<std::string> root_keys_, inner_keys_;  // inner: of the metadata or of a tensor
  std::vector<uint64_t> numbers_;
};

// Checks that the places follow each other without gaps and that each is as long as its tensor.
absl::Status CheckPlaces(const std::vector<TensorEntry>& tensors, uint64_t data_bytes) {
  uint64_t next = 0;
  for (const TensorEntry& entry : tensors) {
    const uint64_t bytes = static_cast<uint64_t>(entry.shape.num_elements()) * SizeOf(entry.dtype);
    if (entry.begin != next || entry.end < entry.begin || entry.end - entry.begin != bytes) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Short(entry.name), " of ", bytes,
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
  // Appends to the list of members, because operator[] looks through all names.
  nlohmann::ordered_json::object_t members;
  if (!header.metadata.empty()) members.emplace_back(kMetadata, header.metadata);
  for (const TensorEntry& entry : header.tensors) {
    const auto* dtype = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                     [&](const auto& known) { return known.dtype == entry.dtype; });
    std::vector<int64_t> dims;
    for (int i = 0; i < entry.shape.num_dims(); ++i) dims.push_back(entry.shape[i]);
    members.emplace_back(
        entry.name,
        nlohmann::ordered_json{
            {kDTypeKey, dtype->name}, {kShapeKey, dims}, {kOffsetsKey, {entry.begin, entry.end}}});
  }
  std::string json = nlohmann::ordered_json(std::move(members))
                         .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

absl::StatusOr<SafetensorsHeader> ParseHeader(std::string_view json, uint64_t data_bytes) {
  // The parser takes a zero byte for the end of the text, and passes over a byte order mark.
  if (json.find('\0') != std::string_view::npos || json.substr(0, 3) == "\xef\xbb\xbf")
    return absl::InvalidArgumentError("malformed header, a byte that JSON does not have");
  SafetensorsHeader header;
  HeaderEvents events(header);
  nlohmann::json::sax_parse(json, &events);
  RETURN_IF_ERROR(events.status());
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  RETURN_IF_ERROR(CheckPlaces(header.tensors, data_bytes));
  return header;
}

}  // namespace tandem::checkpoint
