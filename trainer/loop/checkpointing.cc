#include "trainer/loop/checkpointing.h"

#include <string>

#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/job/job_options.h"
#include "trainer/loop/replica/precision.h"

namespace tandem::loop {

namespace {

// The time limit of rank 0's reading and writing, which may take longer than a wait for a peer.
absl::Duration CheckpointTimeout(const Replica& replica) {
  return absl::Seconds(replica.job.checkpoint().timeout_seconds());
}

// Gives owners elsewhere their first state: `restored` or, if null, the initial values. Collective.
absl::Status FillOwners(Replica& replica, const optim::DenseState* restored,
                        absl::Duration timeout) {
  if (replica.group.rank() == 0)
    RETURN_IF_ERROR(replica.sync->WriteState(restored, absl::Now() + timeout));
  return replica.Barrier("assigned", timeout);  // no replica pulls before rank 0 has written
}

CheckpointManifest ManifestOf(const Replica& replica) {
  CheckpointManifest manifest;
  *manifest.mutable_job() = replica.job;
  replica.state.Save(&manifest);
  manifest.set_epoch(static_cast<uint64_t>(replica.calendar.EpochOf(replica.state.step())));
  manifest.set_seed(replica.job.seed());
  manifest.set_symbols(replica.data.Symbols());
  manifest.set_num_items(replica.data.num_items());
  for (const SavedFile& file : replica.data.Files()) *manifest.add_data() = file;
  SavePrecision(replica.job, replica.compute, &manifest);
  for (const TableSpec& spec : job::TableSpecsOf(replica.job))
    *manifest.add_tables() = replica.clients.tables->StoredSpec(spec);
  return manifest;
}

// Rank 0's part. No other replica may commit meanwhile.
absl::Status Write(const Replica& replica) {
  const absl::Time deadline = absl::Now() + CheckpointTimeout(replica);
  optim::DenseState state = replica.dense.State();
  RETURN_IF_ERROR(ReadElsewhere(replica, &state, deadline));
  const absl::Status written =
      checkpoint::WriteCheckpoint({.folder = replica.output->folder() + "/checkpoints",
                                   .manifest = ManifestOf(replica),
                                   .state = &state,
                                   .tables = replica.clients.tables,
                                   .item_ids = replica.data.ItemIds(),
                                   .catalogue = replica.data.Catalogue(),
                                   .keep = replica.job.checkpoint().keep(),
                                   .deadline = deadline});
  if (absl::IsOutOfRange(written))
    return replica.divergence.End(replica.state.step(), std::string(written.message()));
  return written;
}

}  // namespace

absl::Status RestoreOrInitialize(Replica& replica) {
  if (replica.environment.resume == nullptr) return FillOwners(replica, nullptr, replica.Timeout());
  const checkpoint::Checkpoint& saved = *replica.environment.resume;
  optim::DenseState state = replica.dense.State();
  replica.sync->AddEntries(&state);
  RETURN_IF_ERROR(checkpoint::LoadState(saved, state));
  replica.state.Restore(saved.manifest);
  replica.divergence.set_saved_step(replica.state.step());
  const absl::Time deadline = absl::Now() + CheckpointTimeout(replica);
  if (replica.group.rank() == 0)
    RETURN_IF_ERROR(checkpoint::LoadRows(saved, *replica.clients.tables, deadline));
  return FillOwners(replica, &state, CheckpointTimeout(replica));
}

absl::Status SaveCheckpoint(Replica& replica, Batches& batches) {
  RETURN_IF_ERROR(replica.optimizer.AwaitCommit(replica.Deadline()));
  // No server answers a pull while writing. So every replica first receives the next steps' weights
  // and rows. The barrier also proves that every replica's commits are applied.
  RETURN_IF_ERROR(replica.sync->AwaitWeights(replica.Deadline()));
  RETURN_IF_ERROR(batches.AwaitRows(replica.Deadline()));
  RETURN_IF_ERROR(replica.Barrier("rows", replica.Timeout()));
  if (replica.output != nullptr) RETURN_IF_ERROR(Write(replica));
  // No server may apply a commit of the next step before it has written. Waiting here also keeps
  // the writing out of the next step's deadline.
  RETURN_IF_ERROR(replica.Barrier("checkpoint", CheckpointTimeout(replica)));
  replica.divergence.set_saved_step(replica.state.step());
  return absl::OkStatus();
}

absl::Status ReadElsewhere(const Replica& replica, optim::DenseState* state, absl::Time deadline) {
  replica.sync->AddEntries(state);
  return replica.sync->ReadState(state, deadline);
}

}  // namespace tandem::loop
