// The limits and defaults that job.proto's comments state, as code. A comment and its line here change together.
// Check first, then resolve: a check must see what the user wrote, not what we filled in.
#pragma once

#include <string>

namespace tandem {

class Job;
class TextReader;

// Adds one error to `reader` for every limit that `job` breaks. `num_trainers` is 0 when the layout does not matter.
void CheckJob(const Job& job, int num_trainers, TextReader* reader);

// Fills in the defaults. REQUIRES: CheckJob found nothing.
void ResolveJob(const std::string& default_name, int num_trainers, Job* job);

}  // namespace tandem
