// Which dense parameters of a job live on parameter servers (Job.parameters), and the dense tables that hold them there.
// Thread rule: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "trainer/parallel/placement.h"
#include "trainer/parallel/served/served_parameters.h"

namespace tandem::job {

// Whether `name` is `pattern`, in which * stands for any characters.
bool MatchesName(std::string_view pattern, std::string_view name);
// Whether an entry of the job sends parameters to servers.
bool ServesParameters(const Job& job);
// Where each parameter lives. InvalidArgument names an entry of the job that matches none.
absl::StatusOr<parallel::Placements> PlacementsOf(const Job& job, const ParameterSet& parameters);
// What lies in which dense table.
std::vector<parallel::ServedParameters::Part> ServedPartsOf(const Job& job, const ParameterSet& parameters,
                                                            const parallel::Placements& placements);

}  // namespace tandem::job
