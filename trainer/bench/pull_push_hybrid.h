// A client's replica of the model that the hybrid modes of `tandem bench pull-push` train. The rows
// of a sample are summed and go through a dense net of two layers. All clients sum the net's
// gradients by DDP. Binary cross entropy; SGD for rows and net. The replica uses the trainer's
// parts in the order of its loop. The caller chooses the row client and the group. So the same
// steps can be repeated in one process with the same bits.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "ps/client/clients.h"
#include "trainer/comm/process_group.h"
#include "trainer/nn/layers.h"
#include "trainer/parallel/data_parallel/ddp.h"
#include "trainer/sparse/pooled_embedding.h"
#include "trainer/sparse/remote_embedding.h"
#include "trainer/sparse/step_optimizer.h"

namespace tandem {
class PullPushCase;        // proto/bench.pb.h
class PullPushRepetition;  // proto/bench.pb.h
}  // namespace tandem

namespace tandem::bench {

class HybridReplica {
 public:
  // Collective over `group`, the group of the case's clients.
  // REQUIRES: clients and group outlive the replica; the table exists when a step is made.
  static absl::StatusOr<std::unique_ptr<HybridReplica>> Create(const PullPushCase& bench,
                                                               uint32_t table,
                                                               const ps::Clients& clients,
                                                               comm::ProcessGroup* group);

  // Trains on the next batch and adds to `times`. If another step follows, its rows are pulled
  // behind this step's commit; else waits for the commit. A failure aborts client and group.
  absl::Status Step(bool another_follows, PullPushRepetition* times);
  uint64_t num_steps() const { return num_steps_; }
  // Equal on all replicas.
  absl::uint128 DenseHash() const { return dense_.State().Hash(); }

 private:
  HybridReplica(const PullPushCase& bench, uint32_t table, const ps::Clients& clients,
                comm::ProcessGroup* group);

  // The lookup of a step: `rows` in HYBRID, `bags` in HYBRID_POOLED.
  struct Lookup {
    std::vector<uint64_t> ids;  // distinct, until pulled
    Tensor places;              // the places of the batch's ids among them
    std::unique_ptr<sparse::PulledRows> rows;
    std::unique_ptr<sparse::PulledBags> bags;
    double bytes = 0;  // ids and rows, one way
  };
  Lookup LookUp(uint64_t step) const;
  void Pull(uint64_t step, Lookup* lookup);
  // Waits for the rows, [ids, dim], or for the sums of the samples' rows, [samples, dim].
  Variable Enter(Context& context, sparse::StepPushes& autograd);
  void ForwardBackward(Context& context, const Variable& pulled);
  absl::Status Commit(Context& context, sparse::StepPushes& autograd, bool another_follows);

  const PullPushCase& bench_;
  const ps::Clients clients_;
  comm::ProcessGroup* const group_;
  const std::vector<std::vector<uint64_t>> batches_;
  std::vector<uint64_t> offsets_;  // offsets of the samples in a batch
  Tensor offsets_tensor_;
  std::vector<Tensor> labels_;  // for each batch
  ThreadPool pool_{1};
  Stream stream_{&pool_};
  ParameterSet parameters_;
  const nn::Linear hidden_, output_;
  optim::DenseOptimizer dense_;
  std::unique_ptr<parallel::Ddp> ddp_;
  sparse::RemoteEmbedding rows_;
  sparse::PooledEmbedding bags_;
  sparse::StepOptimizer optimizer_;
  Lookup lookup_;
  bool pulled_ahead_ = false;  // lookup_ holds the next step's rows
  uint64_t num_steps_ = 0;
};

}  // namespace tandem::bench
