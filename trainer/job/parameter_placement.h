// Which dense parameters of a job live on parameter servers (Job.parameters), and the dense tables that hold them there.
// Thread rule: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "trainer/parallel/served/served_parameters.h"

namespace tandem::job {

// Whether `name` is `pattern`, in which * stands for any characters.
bool MatchesName(std::string_view pattern, std::string_view name);
// Whether an entry of the job sends parameters to servers.
bool ServesParameters(const Job& job);
// Marks the parameters that are served. InvalidArgument names an entry that matches none.
absl::Status PlaceParameters(const Job& job, ParameterSet* parameters);
// What lies in which dense table. REQUIRES: PlaceParameters.
std::vector<parallel::ServedParameters::Part> ServedPartsOf(const Job& job, const ParameterSet& parameters);

}  // namespace tandem::job
