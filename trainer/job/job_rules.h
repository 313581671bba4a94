// The limits and defaults in job.proto's comments, as code. A comment there and its line here
// change together. Check first, then resolve: a check must see what the user wrote, not a default.
// Thread rule: free functions.
#pragma once

#include <string>

namespace tandem {

class Job;
class TextReader;

// Adds one error to `reader` for every limit that `job` breaks. `num_trainers` is 0 if the layout
// does not matter.
void CheckJob(const Job& job, int num_trainers, TextReader* reader);

// Fills in the defaults. REQUIRES: CheckJob found nothing.
void ResolveJob(const std::string& default_name, int num_trainers, Job* job);

}  // namespace tandem
