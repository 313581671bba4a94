#include "trainer/parallel/holder_groups.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

absl::StatusOr<std::unique_ptr<HolderGroups>> HolderGroups::Create(const ParameterSet& parameters,
                                                                   comm::ProcessGroup* tp,
                                                                   absl::Time deadline) {
  auto made = std::make_unique<HolderGroups>();
  if (tp->size() == 1) return made;
  for (const auto& parameter : parameters.all()) {
    const int holders = parameter->record.holders;
    if (holders == 0 || tp->size() % holders != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parallel.tp is ", tp->size(), ", but the model does not say which ranks hold ",
          parameter->name, ": its gradient record has ", holders,
          " holders; allowed: a divisor of tp"));
    }
    if (holders == 1 || made->groups_.contains(holders)) continue;
    comm::ProcessGroup* group = tp;
    if (holders < tp->size()) {
      const int first = tp->rank() / holders * holders;
      ASSIGN_OR_RETURN(made->owned_.emplace_back(),
                       tp->Split(first, tp->rank() - first,
                                 absl::StrCat("copies from tp rank ", first), deadline));
      group = made->owned_.back().get();
    }
    made->groups_.emplace(holders, group);
  }
  return made;
}

}  // namespace tandem::parallel
