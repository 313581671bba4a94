#include "trainer/parallel/holder_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

absl::StatusOr<std::unique_ptr<HolderGroups>> HolderGroups::Create(const ParameterSet& parameters,
                                                                   comm::ProcessGroup* tp,
                                                                   comm::ProcessGroup* pp,
                                                                   absl::Time deadline) {
  auto made = std::make_unique<HolderGroups>();
  if (tp->size() > 1) RETURN_IF_ERROR(made->MakeCopies(parameters, tp, deadline));
  if (pp->size() > 1) RETURN_IF_ERROR(made->MakeTied(parameters, pp, deadline));
  return made;
}

absl::Status HolderGroups::MakeCopies(const ParameterSet& parameters, comm::ProcessGroup* tp,
                                      absl::Time deadline) {
  for (const auto& parameter : parameters.all()) {
    const int holders = parameter->record.holders;
    if (holders == 0 || tp->size() % holders != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parallel.tp is ", tp->size(), ", but the model does not say which ranks hold ",
          parameter->name, ": its gradient record has ", holders,
          " holders; allowed: a divisor of tp"));
    }
    if (holders == 1 || groups_.contains(holders)) continue;
    comm::ProcessGroup* group = tp;
    if (holders < tp->size()) {
      const int first = tp->rank() / holders * holders;
      ASSIGN_OR_RETURN(owned_.emplace_back(),
                       tp->Split(first, tp->rank() - first,
                                 absl::StrCat("copies from tp rank ", first), deadline));
      group = owned_.back().get();
    }
    groups_.emplace(holders, group);
  }
  return absl::OkStatus();
}

absl::Status HolderGroups::MakeTied(const ParameterSet& parameters, comm::ProcessGroup* pp,
                                    absl::Time deadline) {
  const bool is_here =
      std::any_of(parameters.all().begin(), parameters.all().end(),
                  [](const auto& parameter) { return parameter->record.tied_over_pp; });
  const bool is_end = pp->rank() == 0 || pp->rank() + 1 == pp->size();
  if (is_here && !is_end) return absl::InternalError("a stage inside holds a tied parameter");
  if (pp->size() == 2) {
    if (is_here) tied_ = pp;
    return absl::OkStatus();
  }
  // Stages inside do not know of the ends' parameters, so a group is made in any case.
  ASSIGN_OR_RETURN(
      auto group, pp->Split(is_end ? 0 : pp->rank(), pp->rank(), "first and last stage", deadline));
  if (!is_here) return absl::OkStatus();
  tied_ = group.get();
  owned_.push_back(std::move(group));
  return absl::OkStatus();
}

}  // namespace tandem::parallel
