#include "trainer/job/field_path.h"

#include <algorithm>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/utf8.h"

namespace tandem {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string JoinPath(const std::string& path, const std::string& name) {
  return path.empty() ? name : absl::StrCat(path, ".", name);
}

std::vector<PathStep> SplitPath(const std::string& path) {
  std::vector<PathStep> steps;
  for (size_t at = 0; at <= path.size();) {
    const size_t name_end = std::min(path.find_first_of(".[", at), path.size());
    PathStep step{.name = path.substr(at, name_end - at), .key = std::nullopt};
    at = name_end;
    if (at < path.size() && path[at] == '[') {
      const size_t close = path.find(']', at);
      if (close == std::string::npos) return {};
      step.key = path.substr(at + 1, close - at - 1);
      at = close + 1;
    }
    if (step.name.empty() || (at < path.size() && path[at] != '.')) return {};
    steps.push_back(std::move(step));
    ++at;
  }
  return steps;
}

std::vector<std::string> ElementNames(const Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  const FieldDescriptor* label = field->message_type()->FindFieldByName("name");
  std::vector<std::string> names;
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    std::string name;
    if (label != nullptr && label->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      const Message& element = reflection->GetRepeatedMessage(message, field, i);
      name = element.GetReflection()->GetString(element, label);
    }
    names.push_back(name.empty() ? absl::StrCat(i) : name);
  }
  return names;
}

std::string PathWalk::Follow(const std::vector<PathStep>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i > 0) Enter();
    if (OptionsOf(message_->GetDescriptor()) != nullptr) return TakeOption(steps, i);
    std::string complaint = Find(steps[i].name);
    if (complaint.empty()) complaint = Select(steps[i].key);
    if (complaint.empty() && i + 1 < steps.size() && field_->message_type() == nullptr) {
      complaint = absl::StrCat(path_, " takes ", TakesWhat(field_), "; it has no field ",
                               steps[i + 1].name);
    }
    if (!complaint.empty()) return complaint;
  }
  if (field_->message_type() == nullptr) return "";
  const bool is_free = OptionsOf(field_->message_type()) != nullptr;
  return absl::StrCat(path_, " is a group of fields; set one of them, as in ", path_, ".",
                      is_free ? "NAME" : field_->message_type()->field(0)->name());
}

std::string PathWalk::Assign(const WrittenValue& value) const {
  if (option_.has_value()) return AssignOption(path_, *option_, value, message_);
  if (!field_->is_repeated()) return AssignScalar(path_, field_, value, message_);
  message_->GetReflection()->ClearField(message_, field_);
  for (const absl::string_view element : absl::StrSplit(value.text, ',')) {
    WrittenValue one = value;
    one.text = std::string(absl::StripAsciiWhitespace(element));
    const std::string complaint = AssignScalar(path_, field_, one, message_);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string PathWalk::Find(const std::string& name) {
  const auto* type = message_->GetDescriptor();
  field_ = type->FindFieldByName(name);
  for (int i = 0; field_ == nullptr && i < type->real_oneof_decl_count(); ++i) {
    const FieldDescriptor* chosen =
        message_->GetReflection()->GetOneofFieldDescriptor(*message_, type->oneof_decl(i));
    if (chosen == nullptr || chosen->message_type() == nullptr) continue;
    const FieldDescriptor* inner = chosen->message_type()->FindFieldByName(name);
    if (inner == nullptr) continue;
    field_ = chosen;
    path_ = JoinPath(path_, chosen->name());
    Enter();
    field_ = inner;
  }
  if (field_ == nullptr) return UnknownField(type, name);
  path_ = JoinPath(path_, name);
  return "";
}

std::string PathWalk::TakeOption(const std::vector<PathStep>& steps, size_t at) {
  path_ = JoinPath(path_, steps[at].name);
  option_ = steps[at].name;
  const bool is_name = std::all_of(option_->begin(), option_->end(),
                                   [](char c) { return absl::ascii_isalnum(c) || c == '_'; }) &&
                       !absl::ascii_isdigit(option_->front());
  if (!is_name) return absl::StrCat(Printable(path_), " is no name of an option");
  if (at + 1 == steps.size() && !steps[at].key.has_value()) return "";
  return absl::StrCat(path_, " takes a word, a number or a quoted string; it has no parts");
}

std::string PathWalk::Select(const std::optional<std::string>& key) {
  if (!field_->is_repeated())
    return key.has_value() ? absl::StrCat(path_, " is no list; leave out [", Printable(*key), "]")
                           : "";
  if (field_->message_type() == nullptr) {
    return key.has_value()
               ? absl::StrCat(path_, " is a list of plain values; set all of them, as in ", path_,
                              "=A,B,C")
               : "";
  }
  const std::vector<std::string> names = ElementNames(*message_, field_);
  const std::string there =
      names.empty() ? "it is empty" : absl::StrCat("it has ", absl::StrJoin(names, ", "));
  if (!key.has_value())
    return absl::StrCat(path_, " is a list; select an element, as in ", path_, "[0]; ", there);
  int index = 0;
  if (!absl::SimpleAtoi(*key, &index)) {
    while (index < static_cast<int>(names.size()) && names[index] != *key) ++index;
  }
  if (index < 0 || index >= static_cast<int>(names.size()))
    return absl::StrCat(path_, " has no element \"", Printable(*key), "\"; ", there);
  index_ = index;
  path_ = absl::StrCat(path_, "[", index, "]");
  return "";
}

void PathWalk::Enter() {
  const Reflection* reflection = message_->GetReflection();
  message_ = field_->is_repeated() ? reflection->MutableRepeatedMessage(message_, field_, index_)
                                   : reflection->MutableMessage(message_, field_);
}

}  // namespace tandem
