// The layout of a job: how many trainers there are, and how they share the model and the batch. A
// job gives some of the numbers; the others follow.
// Thread rule: pure functions.
#pragma once

#include "trainer/job/limits.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::job {

// LoadOptions.num_trainers: the number follows from the job's layout.
inline constexpr int kTrainersOfLayout = -1;

// Refuses layouts that are impossible with `num_trainers` trainers (LoadOptions).
void CheckLayout(const Job& job, int num_trainers, Limits* limits);
// The number of data-parallel replicas; 0: the job and `num_trainers` do not say, or contradict
// each other.
int ReplicasOf(const Job& job, int num_trainers);
// Fills in what the job does not say. REQUIRES: CheckLayout found nothing.
void ResolveLayout(int num_trainers, Job* job);
// The number of trainers of a resolved job.
int NumTrainers(const Job& job);

}  // namespace tandem::job
