// The limits, defaults and options of Job.model.sequence_rec (proto/job.proto).
// Thread rule: free functions.
#pragma once

#include "trainer/job/limits.h"
#include "trainer/models/sequence_rec.h"

namespace tandem {
class Job;          // proto/job.pb.h
class SequenceRec;  // proto/job.pb.h
}  // namespace tandem

namespace tandem::tasks {

// Adds one error for every limit that the model breaks. The task's other rules come before these.
void CheckSequenceRec(const Job& job, Limits* limits);
// Fills in the model's defaults. REQUIRES: CheckSequenceRec found nothing.
void ResolveSequenceRec(Job* job);
// The layers that a job's model has, as given or by default.
int SequenceRecLayers(const SequenceRec& model);
// Translates a resolved job.
models::SequenceRecOptions SequenceRecOptionsOf(const Job& job, const parallel::TensorGroup* tp);

}  // namespace tandem::tasks
