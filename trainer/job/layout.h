// The layout of a job: how many trainers there are, and how they share the model and the batch. A
// job gives some of the numbers; the others follow.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "trainer/job/limits.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/pipeline/schedule.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::job {

// LoadOptions.num_trainers: the number follows from the job's layout.
inline constexpr int kTrainersOfLayout = -1;

// Refuses layouts that are impossible with `num_trainers` trainers (LoadOptions).
void CheckLayout(const Job& job, int num_trainers, Limits* limits);
// Refuses stages that are impossible with the `num_layers` layers of a model of kind `kind`. 0: its
// layers form no stages.
void CheckStages(const Job& job, const std::string& kind, int num_layers, Limits* limits);
// The number of data-parallel replicas; 0: the job and `num_trainers` do not say, or contradict
// each other.
int ReplicasOf(const Job& job, int num_trainers);
// The parts into which a replica's batch is cut, as given or by default.
int MicrobatchesOf(const Job& job, int batch_size, int num_replicas);
// Fills in what the job does not say. REQUIRES: the checks found nothing; train.batch_size is set.
void ResolveLayout(int num_trainers, Job* job);

// The rest take a resolved job.
parallel::MeshShape MeshShapeOf(const Job& job);
int NumTrainers(const Job& job);
parallel::ScheduleOptions ScheduleOptionsOf(const Job& job);
// A trainer's number as a client of the servers: by data-parallel replica, then by stage. The
// number of ranks that are no clients is that of one that is.
int ClientOf(const Job& job, int rank);
int NumClients(const Job& job);
// True for the first of the tensor-parallel ranks that work on the same rows, which pulls and
// pushes for all. Stages between the first and the last one need no rows.
bool IsClient(const Job& job, int rank);

}  // namespace tandem::job
