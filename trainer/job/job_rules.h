// The limits and defaults in job.proto's comments that hold for every model, as code. The rest is
// in the rules of each kind of model (model_rules.h). A comment there and its line here change
// together. Check first, then resolve: a check must see what the user wrote, not a default.
// Thread rule: free functions.
#pragma once

#include <string>

namespace tandem {

class Job;
class Table;
class TextReader;
namespace job {
class Models;
}

// Adds one error to `reader` for every limit that `job` breaks. `num_trainers` is 0 if the layout
// does not matter.
void CheckJob(const Job& job, int num_trainers, const job::Models& models, TextReader* reader);

// Fills in the defaults. REQUIRES: CheckJob found nothing.
void ResolveJob(const std::string& default_name, int num_trainers, const job::Models& models,
                Job* job);

// The width of a table's rows, which may be the default.
int TableDimOf(const Table& table);

}  // namespace tandem
