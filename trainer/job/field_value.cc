#include "trainer/job/field_value.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"
#include "trainer/job/nearest_name.h"

namespace tandem {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The largest allowed value of a real field. Most are used as f32, where a larger value is an
// infinity.
constexpr double kMostReal = std::numeric_limits<float>::max();

std::vector<std::string> FieldNames(const Descriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  return names;
}

// The path of the field inside `type` whose own name is closest to `name`. The depth is limited,
// because types may contain themselves.
std::string NearestInside(const Descriptor* type, const std::string& prefix, std::string_view name,
                          int depth, int* best_distance) {
  std::string best;
  for (int i = 0; i < type->field_count() && depth > 0; ++i) {
    const FieldDescriptor* field = type->field(i);
    const std::string path = absl::StrCat(prefix, field->name());
    if (const int distance = EditDistance(name, field->name()); distance < *best_distance) {
      best = path;
      *best_distance = distance;
    }
    if (field->message_type() == nullptr || field->is_repeated()) continue;
    const std::string inner =
        NearestInside(field->message_type(), path + ".", name, depth - 1, best_distance);
    if (!inner.empty()) best = inner;
  }
  return best;
}

std::string Found(const WrittenValue& value) {
  if (value.quoted) return absl::StrCat("found \"", Printable(value.text), "\"");
  return absl::StrCat("found ", value.text.empty() ? "nothing" : Printable(value.text));
}

// True for a number with a leading zero: 010 is 8 in text format and 10 to most readers.
bool HasLeadingZero(std::string_view text) {
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && absl::ascii_isdigit(text[1]);
}

// Parses decimal or 0x...; returns nothing unless it is a whole number of at most `high`.
std::optional<uint64_t> ParseMagnitude(std::string_view digits, uint64_t high) {
  if (digits.empty() || !absl::ascii_isdigit(digits[0]) || HasLeadingZero(digits))
    return std::nullopt;
  const std::string text(digits);
  char* end = nullptr;
  errno = 0;
  const uint64_t magnitude = std::strtoull(text.c_str(), &end, 0);
  if (errno != 0 || *end != '\0' || magnitude > high) return std::nullopt;
  return magnitude;
}

std::optional<int64_t> ParseSigned(std::string_view text, int64_t high) {
  const bool negative = !text.empty() && text[0] == '-';
  const std::optional<uint64_t> magnitude = ParseMagnitude(
      text.substr(negative ? 1 : 0), static_cast<uint64_t>(high) + (negative ? 1 : 0));
  if (!magnitude.has_value()) return std::nullopt;
  return static_cast<int64_t>(negative ? 0 - *magnitude : *magnitude);
}

std::optional<double> ParseReal(const std::string& text, double high) {
  double number = 0;
  if (HasLeadingZero(text) || !absl::SimpleAtod(text, &number) || !(std::fabs(number) <= high))
    return std::nullopt;
  return number;
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

// A first value with this ending stands for an absent field.
bool IsUnspecified(const std::string& name) { return absl::EndsWith(name, "UNSPECIFIED"); }

// The names that a user may choose.
std::vector<std::string> EnumNames(const EnumDescriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i) {
    if (!IsUnspecified(type->value(i)->name())) names.push_back(type->value(i)->name());
  }
  return names;
}

std::string UnknownEnumValue(const std::string& path, const EnumDescriptor* type,
                             const WrittenValue& value) {
  const std::vector<std::string> names = EnumNames(type);
  const std::string nearest = Nearest(value.text, names);
  return absl::StrCat(path, " takes one of ", absl::StrJoin(names, ", "), "; ", Found(value),
                      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"));
}

template <typename T, typename Value>
bool Store(Message* message, const FieldDescriptor* field, const std::optional<Value>& value,
           void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
           void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
  if (!value.has_value()) return false;
  (message->GetReflection()->*(field->is_repeated() ? add : set))(message, field,
                                                                  static_cast<T>(*value));
  return true;
}

bool StoreUnquoted(const FieldDescriptor* field, const std::string& text, Message* message) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return Store(message, field, ParseSigned(text, std::numeric_limits<int32_t>::max()),
                   &Reflection::SetInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return Store(message, field, ParseSigned(text, std::numeric_limits<int64_t>::max()),
                   &Reflection::SetInt64, &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return Store(message, field, ParseMagnitude(text, std::numeric_limits<uint32_t>::max()),
                   &Reflection::SetUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return Store(message, field, ParseMagnitude(text, std::numeric_limits<uint64_t>::max()),
                   &Reflection::SetUInt64, &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Store(message, field, ParseReal(text, kMostReal), &Reflection::SetFloat,
                   &Reflection::AddFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Store(message, field, ParseReal(text, kMostReal), &Reflection::SetDouble,
                   &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return Store(message, field, ParseBool(text), &Reflection::SetBool, &Reflection::AddBool);
    default:
      return false;
  }
}

}  // namespace

std::string TakesWhat(const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return "a whole number of 32 bits";
    case FieldDescriptor::CPPTYPE_INT64:
      return "a whole number";
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return "a whole number of at least 0";
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a number between -3.4e38 and 3.4e38";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return "a quoted string";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrCat("one of ", absl::StrJoin(EnumNames(field->enum_type()), ", "));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "fields in braces";
  }
  return "";
}

std::string AssignScalar(const std::string& path, const FieldDescriptor* field,
                         const WrittenValue& value, Message* message) {
  TANDEM_CHECK(field->message_type() == nullptr) << path;
  const Reflection* reflection = message->GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && (value.quoted || value.argument)) {
    if (!IsUtf8(value.text) || value.text.find('\0') != std::string::npos) {
      return absl::StrCat(path, " takes UTF-8 text without NUL; ", Found(value));
    }
    field->is_repeated() ? reflection->AddString(message, field, value.text)
                         : reflection->SetString(message, field, value.text);
    return "";
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const auto* number = value.quoted ? nullptr : field->enum_type()->FindValueByName(value.text);
    if (number == nullptr || IsUnspecified(value.text))
      return UnknownEnumValue(path, field->enum_type(), value);
    field->is_repeated() ? reflection->AddEnum(message, field, number)
                         : reflection->SetEnum(message, field, number);
    return "";
  }
  if (!value.quoted && StoreUnquoted(field, value.text, message)) return "";
  const bool zero = !value.quoted && field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL &&
                    HasLeadingZero(value.text);
  return absl::StrCat(path, " takes ", TakesWhat(field), zero ? " without leading zeros; " : "; ",
                      Found(value));
}

std::string UnknownField(const Descriptor* type, std::string_view name) {
  const std::vector<std::string> names = FieldNames(type);
  std::string nearest = Nearest(name, names);
  int best_distance = TooFar(name);
  if (nearest.empty()) nearest = NearestInside(type, "", name, 4, &best_distance);
  return absl::StrCat("unknown field \"", Printable(name), "\" in ", type->name(),
                      nearest.empty()
                          ? absl::StrCat("; ", type->name(), " has ", absl::StrJoin(names, ", "))
                          : absl::StrCat("; did you mean \"", nearest, "\"?"));
}

}  // namespace tandem
