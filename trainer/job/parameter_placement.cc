#include "trainer/job/parameter_placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/embedding.pb.h"
#include "proto/job.pb.h"
#include "trainer/job/job_options.h"

namespace tandem::job {

bool MatchesName(std::string_view pattern, std::string_view name) {
  // `star` is the place behind the last *, and `taken` the end of the text that the * stands for. A
  // mismatch resumes there with one character more for the *.
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool ServesParameters(const Job& job) {
  return std::any_of(job.parameters().begin(), job.parameters().end(),
                     [](const Parameters& entry) { return entry.placement() == Job::PS; });
}

absl::StatusOr<parallel::Placements> PlacementsOf(const Job& job, const ParameterSet& parameters) {
  parallel::Placements placements;
  std::vector<bool> matches(static_cast<size_t>(job.parameters_size()));
  for (const auto& parameter : parameters.all()) {
    parallel::Placement& placement = placements.emplace_back(parallel::Placement::REPLICATED);
    bool decided = false;
    for (int i = 0; i < job.parameters_size(); ++i) {
      if (!MatchesName(job.parameters(i).match(), parameter->name)) continue;
      matches[static_cast<size_t>(i)] = true;
      if (!decided && job.parameters(i).placement() == Job::PS)
        placement = parallel::Placement::SERVED;
      decided = true;
    }
  }
  const auto unused = std::find(matches.begin(), matches.end(), false);
  if (unused == matches.end()) return placements;
  const auto i = unused - matches.begin();
  std::string names;
  for (const auto& parameter : parameters.all())
    absl::StrAppend(&names, names.empty() ? "" : ", ", parameter->name);
  return absl::InvalidArgumentError(
      absl::StrCat("parameters[", i, "].match is \"", job.parameters(static_cast<int>(i)).match(),
                   "\", which no parameter of the model is; it has ", names));
}

std::vector<parallel::ServedParameters::Part> ServedPartsOf(
    const Job& job, const ParameterSet& parameters, const parallel::Placements& placements) {
  std::vector<parallel::ServedParameters::Part> parts;
  for (const TableSpec& spec : DenseTableSpecsOf(job)) {
    parallel::ServedParameters::Part& part = parts.emplace_back();
    part.table = spec.number();
    for (Parameter* parameter : PlacedAs(parameters, placements, parallel::Placement::SERVED)) {
      const bool decays =
          job.optimizer().weight_decay() > 0 && (parameter->decay || job.optimizer().decay_all());
      if (decays == (spec.weight_decay() > 0)) part.parameters.push_back(parameter);
    }
  }
  return parts;
}

}  // namespace tandem::job
