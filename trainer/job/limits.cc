#include "trainer/job/limits.h"

#include <cmath>
#include <cstdint>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <limits>
#include <optional>

#include "kernels/base/check.h"

namespace tandem {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct Given {
  double value = 0;
  std::string text;
};

double ValueOf(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(reflection->GetInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(reflection->GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->GetFloat(message, field);
    default:
      break;
  }
  TANDEM_CHECK_EQ(field->cpp_type(), FieldDescriptor::CPPTYPE_DOUBLE) << " " << field->full_name();
  return reflection->GetDouble(message, field);
}

std::optional<Given> GivenNumber(const Message& message, const char* name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  TANDEM_CHECK(field != nullptr) << message.GetDescriptor()->full_name() << " has no field "
                                 << name;
  if (!message.GetReflection()->HasField(message, field)) return std::nullopt;
  Given given{ValueOf(message, field), ""};
  google::protobuf::TextFormat::PrintFieldValueToString(message, field, -1, &given.text);
  return given;
}

std::string Text(double limit) {
  return limit == std::floor(limit) ? absl::StrCat(static_cast<int64_t>(limit))
                                    : absl::StrCat(limit);
}

}  // namespace

void Limits::Between(const Message& message, const std::string& prefix, const char* field,
                     double low, double high) {
  const std::optional<Given> given = GivenNumber(message, field);
  if (!given || (low <= given->value && given->value <= high)) return;
  Refuse(prefix + field, given->text, absl::StrCat(Text(low), " .. ", Text(high)));
}

void Limits::AtLeast(const Message& message, const std::string& prefix, const char* field,
                     double low) {
  const std::optional<Given> given = GivenNumber(message, field);
  if (given && given->value < low)
    Refuse(prefix + field, given->text, absl::StrCat("at least ", Text(low)));
}

void Limits::Positive(const Message& message, const std::string& prefix, const char* field) {
  const std::optional<Given> given = GivenNumber(message, field);
  if (!given || given->value >= std::numeric_limits<float>::min()) return;
  Refuse(prefix + field, given->text, given->value > 0 ? "at least 1.2e-38" : "greater than 0");
}

void Limits::BelowOne(const Message& message, const std::string& prefix, const char* field) {
  const std::optional<Given> given = GivenNumber(message, field);
  if (given && !(0 <= given->value && given->value < 1))
    Refuse(prefix + field, given->text, "at least 0 and below 1");
}

void Limits::InsideOne(const Message& message, const std::string& prefix, const char* field) {
  const std::optional<Given> given = GivenNumber(message, field);
  if (given && !(0 < given->value && given->value < 1))
    Refuse(prefix + field, given->text, "greater than 0 and below 1");
}

}  // namespace tandem
