#include "trainer/job/field_value.h"

#include <algorithm>
#include <cstdint>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"
#include "trainer/job/nearest_name.h"
#include "trainer/job/number_text.h"

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
    if (OptionsOf(field->message_type()) != nullptr) continue;
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

const FieldDescriptor* OptionsOf(const Descriptor* type) {
  if (type->field_count() != 1 || !type->field(0)->is_map()) return nullptr;
  const Descriptor* entry = type->field(0)->message_type();
  const bool of_texts = entry->map_key()->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
                        entry->map_value()->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  return of_texts ? type->field(0) : nullptr;
}

std::string AssignOption(const std::string& path, const std::string& key, const WrittenValue& value,
                         Message* message) {
  const FieldDescriptor* options = OptionsOf(message->GetDescriptor());
  TANDEM_CHECK(options != nullptr) << path;
  const FieldDescriptor *key_field = options->message_type()->map_key(),
                        *value_field = options->message_type()->map_value();
  const Reflection* reflection = message->GetReflection();
  Message* entry = nullptr;
  for (int i = 0; i < reflection->FieldSize(*message, options) && entry == nullptr; ++i) {
    Message* other = reflection->MutableRepeatedMessage(message, options, i);
    if (other->GetReflection()->GetString(*other, key_field) == key) entry = other;
  }
  const bool is_new = entry == nullptr;
  if (is_new) entry = reflection->AddMessage(message, options);
  entry->GetReflection()->SetString(entry, key_field, key);
  WrittenValue text = value;
  text.quoted = true;  // every value is kept as text
  std::string complaint = AssignScalar(path, value_field, text, entry);
  // A refused value must not be complained of again when the model reads the option.
  if (is_new && !complaint.empty()) reflection->RemoveLast(message, options);
  return complaint;
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
