#include "trainer/job/settings.h"

#include <algorithm>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/job/field_path.h"

namespace tandem::job {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Settings = std::vector<std::pair<std::string, std::string>>;

void AddMessage(const Message& message, const std::string& path, Settings* settings);

// `index` is the place in a list; -1: the field is no list.
std::string ValueText(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* reflection = message.GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    return index < 0 ? reflection->GetString(message, field)
                     : reflection->GetRepeatedString(message, field, index);
  }
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, field, index, &text);
  return text;
}

// A message with free keys: each key is a setting.
void AddOptions(const Message& message, const std::string& path, const FieldDescriptor* options,
                Settings* settings) {
  const Reflection* reflection = message.GetReflection();
  Settings sorted;
  for (int i = 0; i < reflection->FieldSize(message, options); ++i) {
    const Message& entry = reflection->GetRepeatedMessage(message, options, i);
    const FieldDescriptor *key = options->message_type()->map_key(),
                          *value = options->message_type()->map_value();
    sorted.emplace_back(JoinPath(path, entry.GetReflection()->GetString(entry, key)),
                        entry.GetReflection()->GetString(entry, value));
  }
  std::sort(sorted.begin(), sorted.end());  // a map has no order
  settings->insert(settings->end(), sorted.begin(), sorted.end());
}

void AddList(const Message& message, const FieldDescriptor* field, const std::string& path,
             Settings* settings) {
  const Reflection* reflection = message.GetReflection();
  const int size = reflection->FieldSize(message, field);
  if (field->message_type() == nullptr) {
    std::vector<std::string> values;
    for (int i = 0; i < size; ++i) values.push_back(ValueText(message, field, i));
    if (size > 0) settings->emplace_back(path, absl::StrJoin(values, ","));
    return;
  }
  const std::vector<std::string> names = ElementNames(message, field);
  for (int i = 0; i < size; ++i) {
    AddMessage(reflection->GetRepeatedMessage(message, field, i),
               absl::StrCat(path, "[", names[static_cast<size_t>(i)], "]"), settings);
  }
}

void AddMessage(const Message& message, const std::string& path, Settings* settings) {
  const Reflection* reflection = message.GetReflection();
  if (const FieldDescriptor* options = OptionsOf(message.GetDescriptor()); options != nullptr) {
    AddOptions(message, path, options, settings);
    return;
  }
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const std::string inner = JoinPath(path, field->name());
    if (field->is_repeated()) {
      AddList(message, field, inner, settings);
    } else if (field->has_presence() && !reflection->HasField(message, field)) {
      continue;
    } else if (field->message_type() != nullptr) {
      AddMessage(reflection->GetMessage(message, field), inner, settings);
    } else if (const std::string text = ValueText(message, field, -1);
               !text.empty() && !absl::EndsWith(text, "_UNSPECIFIED")) {
      settings->emplace_back(inner, text);
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> SettingsOf(const Job& job) {
  Settings settings;
  AddMessage(job, "", &settings);
  return settings;
}

}  // namespace tandem::job
