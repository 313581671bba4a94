// One client's run of a case of `tandem bench pull-push`: makes the rows, warms up, takes turns between the ceiling and timed
// steps, and compares rows with what the steps add up to, or with the same steps made again in one process. Clients meet through the
// master's store before each part. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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

  // Everything from making the rows to comparing them with what they must be. DeadlineExceeded if another client does not come
  // along.
  absl::StatusOr<PullPushFigures> Run();

 private:
  // Returns when every client has come as far.
  absl::Status Barrier();
  absl::Status MakeRows();
  void MakeReadyGradients();
  absl::Status MakeReplica();
  // What one step looks up, pulls and pushes.
  struct Lookup {
    std::vector<uint64_t> ids;  // distinct
    std::vector<uint32_t> counts;
    std::vector<rpc::Future<ps::ArrivedRows>> rows;  // of each part of the ids
  };

  // The distinct ids of a batch, ascending, and how often each occurs.
  void Merge(const std::vector<uint64_t>& batch, Lookup* lookup);
  using Gradients = std::shared_ptr<const float>;  // [ids, dim]
  // Of lookup_.ids from `begin` to `end`, whose rows these are.
  Gradients MakeGradients(size_t begin, size_t end, const float* row);
  // For step `step` of the tables.
  rpc::Future<ps::ArrivedRows> Pull(uint64_t step, absl::Span<const uint64_t> ids);
  void PullParts(uint64_t step, Lookup* lookup);
  using Calls = std::vector<rpc::Future<rpc::Done>>;
  rpc::Future<rpc::Done> Accumulate(absl::Span<const uint64_t> ids, const Gradients& gradients);
  // The whole step.
  rpc::Future<rpc::Done> AccumulateAndCommit(absl::Span<const uint64_t> ids, const Gradients& gradients);
  // Of the next step, which it begins.
  ps::CommitArgs NextCommit();
  // Commits the step whose pushes these are.
  Calls CommitBehind(Calls pushes);
  // PULL and PUSH: one behind others that are under way. Waits until there is room for the next or, where none follows, for all.
  absl::Status StepUnderWay(bool another_follows, PullPushRepetition* times);
  absl::Status StepPooled(PullPushRepetition* times);
  // PULL_PUSH: while a part's gradients are made and pushed the rows of those behind it are on their way.
  absl::Status StepInParts(bool another_follows, PullPushRepetition* times);
  // One timed step of the mode; adds to `times`. Where another follows its rows are pulled behind this step's commit, as the training
  // loop does: the servers hold the pull back until the commit is applied.
  absl::Status Step(bool another_follows, PullPushRepetition* times);
  absl::StatusOr<uint64_t> ChooseSteps();
  absl::StatusOr<PullPushRepetition> Repeat(PullPushFigures* figures);
  absl::Status MeasureRaw(PullPushRepetition* repetition);
  void RoundAsPulled(absl::Span<float> rows) const;
  // Some ids that were looked up and some drawn from all.
  std::vector<uint64_t> SampleIds() const;
  absl::StatusOr<std::string> FindWrongRow();
  // Of the hybrid modes: between replicas, and to the replay.
  absl::StatusOr<std::string> FindDifference();

  const PullPushCase& bench_;
  rpc::MasterClient& master_;
  const uint32_t rank_;
  const TableSpec table_;
  const std::vector<float> pattern_;
  std::unique_ptr<ps::RemoteClient> client_;
  std::unique_ptr<RawBytesClient> raw_;
  std::unique_ptr<comm::ProcessGroup> group_;  // HYBRID and HYBRID_POOLED, as is the replica
  std::unique_ptr<HybridReplica> replica_;
  int num_meetings_ = 0;
  uint64_t next_step_ = 1;  // of the tables
  uint64_t num_steps_ = 0;  // of this case, warm-up included
  std::vector<std::vector<uint64_t>> batches_;
  std::vector<Gradients> ready_gradients_;  // PUSH: of each batch, of sign 1 and -1; POOLED: of any batch's bags
  std::vector<uint64_t> offsets_;           // POOLED
  std::vector<uint64_t> sorted_, scratch_;
  Lookup lookup_, next_;
  bool pulled_ahead_ = false;                                 // lookup_ is on its way
  std::deque<rpc::Future<ps::ArrivedRows>> pulls_under_way_;  // PULL: of each step
  ps::ArrivedRows last_pulled_;                               // PULL
  std::deque<rpc::Future<rpc::Done>> pushes_under_way_;       // PUSH: of each step
  std::vector<float> pooled_;                                 // POOLED: [bags, dim]
};

}  // namespace tandem::bench
