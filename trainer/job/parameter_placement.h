// Chooses the dense parameters of a job that live on parameter servers (Job.parameters), and the
// dense tables that hold them.
// Thread rule: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/parallel/placement.h"
#include "trainer/parallel/served/served_parameters.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::job {

// True if `name` matches `pattern`, in which * stands for any characters.
bool MatchesName(std::string_view pattern, std::string_view name);
// True if an entry of the job sends parameters to servers.
bool ServesParameters(const Job& job);
// Returns the placement of each parameter. InvalidArgument names an entry of the job that matches
// no parameter.
absl::StatusOr<parallel::Placements> PlacementsOf(const Job& job, const ParameterSet& parameters);
// Returns each dense table with its parameters.
std::vector<parallel::ServedParameters::Part> ServedPartsOf(const Job& job,
                                                            const ParameterSet& parameters,
                                                            const parallel::Placements& placements);

}  // namespace tandem::job
