#include "trainer/job/model_rules.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"

namespace tandem::job {

std::string KindOf(const Model& model) {
  const auto* field = model.GetReflection()->GetOneofFieldDescriptor(
      model, Model::descriptor()->FindOneofByName("kind"));
  return field == nullptr ? "" : field->name();
}

Models::Models(std::vector<ModelRules> rules) : rules_(std::move(rules)) {
  std::set<std::string> names;
  for (const ModelRules& kind : rules_)
    TANDEM_CHECK(names.insert(kind.name).second) << "two kinds of model named " << kind.name;
}

absl::StatusOr<const ModelRules*> Models::Find(const Model& model) const {
  const std::string name = KindOf(model);
  std::vector<std::string> known;
  for (const ModelRules& kind : rules_) {
    if (kind.name == name) return &kind;
    known.push_back(absl::StrCat("model { ", kind.name, " { } }"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name.empty() ? "model has no kind" : absl::StrCat("no kind of model is ", name),
                   "; allowed: ", absl::StrJoin(known, ", ")));
}

}  // namespace tandem::job
