#include "trainer/loop/checkpointing.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/comm/text.h"
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
  if (replica.world.rank() == 0)
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

// Writes this rank's elements into the file that rank 0 has made and named, and waits for the other
// ranks. Does nothing if rank 0 has named none. DataLoss if not every element was written once.
absl::Status WriteTogether(const Replica& replica, const optim::DenseState& owned,
                           const std::string& dense) {
  const comm::CollectiveArgs args{.tag = StableHash("dense file"),
                                  .timeout = CheckpointTimeout(replica)};
  comm::ProcessGroup& world = replica.world;
  ASSIGN_OR_RETURN(const std::string path, comm::BroadcastText(world, dense, 0, args));
  if (path.empty()) return absl::OkStatus();  // the run has no folder
  if (world.rank() != 0) RETURN_IF_ERROR(checkpoint::WriteEntries(path, owned));
  int64_t written = owned.num_elements();
  RETURN_IF_ERROR(world.Await(world.AllReduce(DenseView(&written, Shape{1}), args),
                              absl::Now() + args.timeout + absl::Seconds(1)));
  const int64_t all = replica.num_elements() * (1 + static_cast<int64_t>(owned.slot_names.size()));
  if (written == all) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("ranks have written ", written, " of ", all,
                                          " elements of the dense parameters"));
}

// Rank 0's part. No other replica may commit meanwhile.
absl::Status Write(const Replica& replica) {
  const absl::Time deadline = absl::Now() + CheckpointTimeout(replica);
  optim::DenseState state = replica.OwnedState();
  RETURN_IF_ERROR(ReadElsewhere(replica, &state, deadline));
  const absl::Status written =
      checkpoint::WriteCheckpoint({.folder = replica.output->folder() + "/checkpoints",
                                   .manifest = ManifestOf(replica),
                                   .state = &state,
                                   .parameters = replica.whole_model,
                                   .tables = replica.clients.tables,
                                   .item_ids = replica.data.ItemIds(),
                                   .catalogue = replica.data.Catalogue(),
                                   .keep = replica.job.checkpoint().keep(),
                                   .deadline = deadline,
                                   .await_others = [&](const std::string& dense) {
                                     return WriteTogether(replica, state, dense);
                                   }});
  if (absl::IsOutOfRange(written))
    return replica.divergence.End(replica.state.step(), std::string(written.message()));
  return written;
}

// Ends the run on all ranks alike if a number that some rank is to write is not finite.
absl::Status CheckFinite(const Replica& replica) {
  if (!replica.is_cut()) return absl::OkStatus();  // rank 0 writes all, and checks
  ASSIGN_OR_RETURN(const std::string mine, checkpoint::FirstNonFinite(replica.OwnedState()));
  ASSIGN_OR_RETURN(const std::string wrong, replica.FoundByAny(mine));
  if (wrong.empty()) return absl::OkStatus();
  return replica.divergence.End(replica.state.step(),
                                absl::StrCat("parameter ", wrong, " is not finite"));
}

}  // namespace

absl::Status RestoreOrInitialize(Replica& replica) {
  if (replica.environment.resume == nullptr) return FillOwners(replica, nullptr, replica.Timeout());
  const checkpoint::Checkpoint& saved = *replica.environment.resume;
  optim::DenseState state = replica.dense.State();
  replica.sync->AddEntries(&state);
  RETURN_IF_ERROR(checkpoint::LoadState(saved, state, replica.whole_model));
  replica.state.Restore(saved.manifest);
  replica.divergence.set_saved_step(replica.state.step());
  const absl::Time deadline = absl::Now() + CheckpointTimeout(replica);
  if (replica.world.rank() == 0)
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
  RETURN_IF_ERROR(CheckFinite(replica));
  RETURN_IF_ERROR(replica.output != nullptr ? Write(replica)
                                            : WriteTogether(replica, replica.OwnedState(), ""));
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
