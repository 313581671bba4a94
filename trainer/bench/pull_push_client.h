// One client's run of a case of `tandem bench pull-push`. The client makes the rows, warms up, and
// alternates between the ceiling and timed steps. Then it compares rows with the expected sums, or
// with the same steps repeated in one process. Clients meet through the master's store before each
// part.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/memory/buffer.h"
#include "proto/bench.pb.h"
#include "ps/client/remote_client.h"
#include "rpc/future.h"
#include "rpc/master/client.h"
#include "trainer/bench/pull_push_hybrid.h"
#include "trainer/bench/raw_bytes.h"
#include "trainer/comm/process_group.h"

namespace tandem::bench {

class PullPushClient {
 public:
  PullPushClient(const PullPushCase& bench, rpc::MasterClient& master);

  // Runs everything, from making the rows to comparing them with their expected values.
  // DeadlineExceeded if another client is missing.
  absl::StatusOr<PullPushFigures> Run();

 private:
  // Returns when every client has reached this call.
  absl::Status Barrier();
  absl::Status MakeRows();
  void MakeReadyGradients();
  absl::Status MakeReplica();
  // Rows in flight, f32 [ids, dim]. The pull keeps its memory until it completes.
  struct PulledRows {
    std::shared_ptr<Buffer> memory;
    rpc::Future<rpc::Done> done;

    const float* rows() const { return static_cast<const float*>(memory->data()); }
  };
  // The ids and rows that one step looks up, pulls and pushes.
  struct Lookup {
    std::vector<uint64_t> ids;  // distinct
    std::vector<uint32_t> counts;
    std::vector<PulledRows> rows;  // for each part of the ids
  };

  // Finds the distinct ids of a batch, ascending, and the number of occurrences of each.
  void Merge(const std::vector<uint64_t>& batch, Lookup* lookup);
  using Gradients = std::shared_ptr<const float>;  // [ids, dim]
  // Makes the gradients of lookup_.ids from `begin` to `end`. `row` points at their rows.
  Gradients MakeGradients(size_t begin, size_t end, const float* row);
  // Pulls rows for step `step` of the tables.
  PulledRows Pull(uint64_t step, absl::Span<const uint64_t> ids);
  void PullParts(uint64_t step, Lookup* lookup);
  using Calls = std::vector<rpc::Future<rpc::Done>>;
  rpc::Future<rpc::Done> Push(absl::Span<const uint64_t> ids, const Gradients& gradients);
  // Begins the next step and returns its commit arguments.
  ps::CommitArgs NextCommit();
  // Commits the step of these pushes.
  Calls CommitBehind(Calls pushes);
  // PULL and PUSH: starts a step behind others in flight. Waits for room for the next step, or for
  // all steps if none follows.
  absl::Status StepUnderWay(bool another_follows, PullPushRepetition* times);
  absl::Status StepPooled(PullPushRepetition* times);
  // PULL_PUSH: while a part's gradients are made and pushed, the rows of later parts are in flight.
  absl::Status StepInParts(bool another_follows, PullPushRepetition* times);
  // Runs one timed step of the mode and adds to `times`. If another step follows, its rows are
  // pulled behind this step's commit, like in the training loop. The servers hold that pull back
  // until the commit is applied.
  absl::Status Step(bool another_follows, PullPushRepetition* times);
  absl::StatusOr<uint64_t> ChooseSteps();
  absl::StatusOr<PullPushRepetition> Repeat(PullPushFigures* figures);
  absl::Status MeasureRaw(PullPushRepetition* repetition);
  void RoundAsPulled(absl::Span<float> rows) const;
  // Some ids that were looked up, and some drawn from all ids.
  std::vector<uint64_t> SampleIds() const;
  absl::StatusOr<std::string> FindWrongRow();
  // The hybrid modes: compares the replicas with each other and with the replay.
  absl::StatusOr<std::string> FindDifference();

  const PullPushCase& bench_;
  rpc::MasterClient& master_;
  const uint32_t rank_;
  const TableSpec table_;
  const std::vector<float> pattern_;
  std::unique_ptr<ps::RemoteClient> client_;
  std::unique_ptr<RawBytesClient> raw_;
  std::unique_ptr<comm::ProcessGroup> group_;  // HYBRID and HYBRID_POOLED, like replica_
  std::unique_ptr<HybridReplica> replica_;
  int num_meetings_ = 0;
  uint64_t next_step_ = 1;  // in the numbering of the tables
  uint64_t num_steps_ = 0;  // in this case, including warm-up
  std::vector<std::vector<uint64_t>> batches_;
  // PUSH: for each batch, of sign 1 and -1; POOLED: for any batch's bags.
  std::vector<Gradients> ready_gradients_;
  std::vector<uint64_t> offsets_;  // POOLED
  std::vector<uint64_t> sorted_, scratch_;
  Lookup lookup_, next_;
  bool pulled_ahead_ = false;               // lookup_ is in flight
  std::deque<PulledRows> pulls_under_way_;  // PULL: of each step
  PulledRows last_pulled_;                  // PULL
  std::deque<Calls> pushes_under_way_;      // PUSH: of each step
  std::vector<float> pooled_;               // POOLED: [bags, dim]
};

}  // namespace tandem::bench
