// The limits, defaults and options of Job.model.rec_llm (proto/job.proto).
// Thread rule: free functions.
#pragma once

#include "trainer/job/limits.h"
#include "trainer/models/rec_llm.h"

namespace tandem {
class Job;     // proto/job.pb.h
class RecLlm;  // proto/job.pb.h
}  // namespace tandem

namespace tandem::tasks {

// Places of the model's tables in Job.tables; -1: the job does not have the table.
struct RecLlmTables {
  int item = -1, title = -1, token = -1;
};
RecLlmTables RecLlmTablesOf(const Job& job);

// Adds one error for every limit that the model and its tables break.
void CheckRecLlm(const Job& job, Limits* limits);
// Fills in the defaults. REQUIRES: CheckRecLlm found nothing.
void ResolveRecLlm(Job* job);
// The layers that a job's model has, as given or by default.
int RecLlmLayers(const RecLlm& model);
// Translates a resolved job. `vocabulary_size` counts the symbols of titles.
models::RecLlmOptions RecLlmOptionsOf(const Job& job, int64_t vocabulary_size,
                                      const parallel::TensorGroup* tp);

}  // namespace tandem::tasks
