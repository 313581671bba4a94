// The limits, defaults and options of Job.model.gpt (proto/job.proto).
// Thread rule: free functions.
#pragma once

#include "trainer/job/limits.h"
#include "trainer/models/gpt.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::tasks {

// Adds one error for every limit that the model, its table or its selection breaks.
void CheckGpt(const Job& job, Limits* limits);
// Fills in the defaults of the model, its placement, its table and its selection. REQUIRES:
// CheckGpt found nothing.
void ResolveGpt(Job* job);
// Translates a resolved job.
models::GptOptions GptOptionsOf(const Job& job, int64_t vocabulary_size);

}  // namespace tandem::tasks
