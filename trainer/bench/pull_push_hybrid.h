// A client's share of the model that the hybrid modes of `tandem bench pull-push` train: a sample's rows are summed and go through a
// dense net of two layers, whose gradients all clients sum by DDP; binary cross entropy; SGD of rows and net. Made of the trainer's
// parts, in the order of its loop. What the rows' client and the group are is the caller's, so the same steps can be made again in one
// process, with the same bits. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "proto/bench.pb.h"
#include "trainer/comm/process_group.h"
#include "trainer/nn/layers.h"
#include "trainer/parallel/data_parallel/ddp.h"
#include "trainer/sparse/step_optimizer.h"
#include "trainer/sparse/pooled_embedding.h"
#include "trainer/sparse/remote_embedding.h"

namespace tandem::bench {

class HybridReplica {
 public:
  // Collective over `group`, of the case's clients. Client and group outlive the replica; `table` is there when a step is made.
  static absl::StatusOr<std::unique_ptr<HybridReplica>> Create(const PullPushCase& bench, uint32_t table, ps::Client* client,
                                                               comm::ProcessGroup* group);

  // Trains on the next batch and adds to `times`. Where another step follows its rows are pulled behind this step's commit; else
  // the commit is waited for. A failure aborts client and group.
  absl::Status Step(bool another_follows, PullPushRepetition* times);
  uint64_t num_steps() const { return num_steps_; }
  // Equal on all replicas.
  absl::uint128 DenseHash() const { return dense_.State().Hash(); }

 private:
  HybridReplica(const PullPushCase& bench, uint32_t table, ps::Client* client, comm::ProcessGroup* group);

  // What a step looks up: `rows`, in HYBRID, or `bags`.
  struct Lookup {
    std::vector<uint64_t> ids;  // distinct, until they are pulled
    Tensor places;              // of the batch's ids among them
    std::unique_ptr<sparse::PulledRows> rows;
    std::unique_ptr<sparse::PulledBags> bags;
    double bytes = 0;  // of ids and rows, one way
  };
  Lookup LookUp(uint64_t step) const;
  void Pull(uint64_t step, Lookup* lookup);
  // Waits for the rows, [ids, dim], or for the sums of the samples' rows, [samples, dim].
  Variable Enter(Context& context, sparse::StepPushes& autograd);
  void ForwardBackward(Context& context, const Variable& pulled);
  absl::Status Commit(Context& context, sparse::StepPushes& autograd, bool another_follows);

  const PullPushCase& bench_;
  ps::Client* const client_;
  comm::ProcessGroup* const group_;
  const std::vector<std::vector<uint64_t>> batches_;
  std::vector<uint64_t> offsets_;  // of samples in a batch
  Tensor offsets_tensor_;
  std::vector<Tensor> labels_;  // of a batch
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
  bool pulled_ahead_ = false;  // lookup_ is the next step's
  uint64_t num_steps_ = 0;
};

}  // namespace tandem::bench
