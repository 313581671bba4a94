#include "ps/server/table_specs.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "proto/embedding.pb.h"
#include "ps/store/spec_check.h"
#include "ps/wire/message_limits.h"

namespace tandem::ps {

namespace {
bool SameSpec(const TableSpec& a, const TableSpec& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}
}  // namespace

absl::Status TableSpecs::Check(const std::vector<TableSpec>& tables) const {
  std::set<uint32_t> numbers;
  std::set<std::string> names;
  size_t num_tables = by_number_.size();
  for (const TableSpec& spec : tables) {
    RETURN_IF_ERROR(CheckTableSpec(spec));
    if (!numbers.insert(spec.number()).second || !names.insert(spec.name()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", spec.number(), " (", spec.name(), ") comes twice"));
    }
    for (const auto& [number, other] : by_number_) {
      if (number == spec.number() || other->name() != spec.name()) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("table ", spec.name(), " exists as number ", number));
    }
    const auto known = by_number_.find(spec.number());
    if (known == by_number_.end() && ++num_tables > kMaxTables) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxTables, " tables"));
    }
    if (known != by_number_.end() && !SameSpec(*known->second, spec)) {
      return absl::FailedPreconditionError(
          absl::StrCat("table ", spec.number(), " exists as {", known->second->ShortDebugString(),
                       "}, this request says {", spec.ShortDebugString(), "}"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::shared_ptr<const TableSpec>> TableSpecs::Add(
    const std::vector<TableSpec>& tables) {
  std::vector<std::shared_ptr<const TableSpec>> added;
  for (const TableSpec& spec : tables) {
    auto shared = std::make_shared<const TableSpec>(spec);
    if (by_number_.emplace(spec.number(), shared).second) added.push_back(shared);
  }
  return added;
}

absl::StatusOr<std::shared_ptr<const TableSpec>> TableSpecs::Find(uint32_t table) const {
  const auto found = by_number_.find(table);
  if (found == by_number_.end())
    return absl::InvalidArgumentError(absl::StrCat("there is no table ", table));
  return found->second;
}

absl::Status TableSpecs::CheckRates(const CommitArgs& args) const {
  if (!std::isfinite(args.gradient_scale))
    return absl::InvalidArgumentError("commit: gradient_scale is not finite");
  std::set<uint32_t> rated;
  for (const TableRateValue& rate : args.rates) {
    // Optimizers compute with floats.
    const bool finite = std::isfinite(static_cast<float>(rate.learning_rate));
    if (by_number_.count(rate.table) == 0 || !rated.insert(rate.table).second || !finite) {
      return absl::InvalidArgumentError(absl::StrCat("commit: the rate ", rate.learning_rate,
                                                     " for table ", rate.table,
                                                     ": unknown table, second rate or not finite"));
    }
  }
  for (const auto& [number, spec] : by_number_) {
    if (!args.skip && rated.count(number) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("commit: no learning rate for table ", spec->name()));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::ps
