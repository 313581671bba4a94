#include "trainer/job/model_rules.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"
#include "trainer/job/nearest_name.h"

namespace tandem::job {

namespace {

const google::protobuf::FieldDescriptor* ChosenKind(const Model& model) {
  return model.GetReflection()->GetOneofFieldDescriptor(
      model, Model::descriptor()->FindOneofByName("kind"));
}

// True if job.proto has a field for the kind. Other kinds are custom models.
bool HasField(const std::string& kind) {
  return Model::descriptor()->FindFieldByName(kind) != nullptr;
}

std::string Shown(const std::string& kind) {
  return HasField(kind) ? absl::StrCat("model { ", kind, " { } }")
                        : absl::StrCat("model { custom { name: \"", kind, "\" } }");
}

}  // namespace

std::string KindOf(const Model& model) {
  if (model.has_custom()) return model.custom().name();
  const auto* field = ChosenKind(model);
  return field == nullptr ? "" : field->name();
}

Models::Models(std::vector<ModelRules> rules) : rules_(std::move(rules)) {
  std::set<std::string> names{Model::descriptor()->FindFieldByName("custom")->name(), ""};
  for (const ModelRules& kind : rules_) {
    TANDEM_CHECK(names.insert(kind.name).second)
        << "two kinds of model named \"" << kind.name << "\", or a name that none may have";
  }
}

absl::StatusOr<const ModelRules*> Models::Find(const Model& model) const {
  const std::string name = KindOf(model);
  std::vector<std::string> custom, all;
  for (const ModelRules& kind : rules_) {
    if (kind.name == name && HasField(name) != model.has_custom()) return &kind;
    all.push_back(Shown(kind.name));
    if (!HasField(kind.name)) custom.push_back(kind.name);
  }
  if (ChosenKind(model) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("model has no kind; allowed: ", absl::StrJoin(all, ", ")));
  }
  const std::string nearest = Nearest(name, custom);
  return absl::InvalidArgumentError(absl::StrCat(
      "model.custom.name is \"", Printable(name), "\"; allowed: ",
      custom.empty() ? "none, for this program adds no model: run the program that adds it"
                     : absl::StrJoin(custom, ", "),
      nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?")));
}

}  // namespace tandem::job
