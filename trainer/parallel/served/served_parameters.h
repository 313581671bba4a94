// Served parameters: dense ones whose gradients are summed and which are updated on parameter servers. Flattened side by side
// (GradientBuckets) and cut into chunks of kChunk numbers they are the rows 1, 2, ... of dense tables, so that they spread over all
// servers, and steps, exactness and order of sums are those of rows. A step's weights are pulled behind the commit of the step before
// and take the place of the old ones when they are awaited; a bucket's gradients are pushed as soon as the backward pass has completed
// it. Names, shapes and files know nothing of chunks: values and slots are read back by parameter.
// Thread rule: the step's thread. Parameters lie in the host's memory, in f32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ps/client/client.h"
#include "trainer/parallel/gradient_buckets.h"
#include "trainer/optim/dense_optimizer.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::parallel {

// Large enough that ids and row headers are 2 % of a chunk and its record, small enough that a small model's spread over servers.
inline constexpr uint32_t kChunk = 1024;

class ServedParameters {
 public:
  // One dense table and what lies in it, in order.
  struct Part {
    uint32_t table = 0;
    std::vector<Parameter*> parameters;
  };
  // `parameters` has those of all parts. Client, parameters and stream outlive it.
  static absl::StatusOr<std::unique_ptr<ServedParameters>> Create(ps::Client* client, ParameterSet* parameters,
                                                                  const std::vector<Part>& parts, Stream* stream);
  ~ServedParameters();  // waits for a pull, which writes into its memory

  // Gives the servers this replica's values; `optimizer`, if not null, holds the slots to go with them, else they begin anew.
  absl::Status Assign(const optim::DenseOptimizer* optimizer, absl::Time deadline) const;
  // Takes values, shadows included, and slots from the servers, as they are now. REQUIRES: `optimizer` holds the slots.
  absl::Status Read(optim::DenseOptimizer& optimizer, absl::Time deadline) const;

  // Asks for the weights that step `step` will use.
  void Pull(uint64_t step);
  // Waits for what Pull asked for, and makes it the parameters' values, shadows included.
  absl::Status AwaitWeights(absl::Time deadline);
  // Likewise once more, after a Read, whose values have not been rounded on the wire. REQUIRES: AwaitWeights.
  void ShowWeights();

  // A step: its weights are there and its gradients go where `autograd` collects pushes.
  void Enter(Context& context, sparse::StepPushes& autograd);
  // As GradientBuckets.
  void BeginStep(int num_passes);
  void BeginPass(int pass);
  // After the last pass: the rest is pushed.
  void Finish(Context& context);
  // False if gradients of this step are not finite: such a bucket stays here, and no replica may apply the step.
  bool finite() const { return finite_; }
  // Names a parameter whose gradient on this replica is not finite. REQUIRES: finite() is false.
  std::string FirstNonFinite() const;

 private:
  struct Table {
    uint32_t number;
    std::unique_ptr<GradientBuckets> gradients;
    std::vector<std::shared_ptr<const std::vector<uint64_t>>> bucket_ids;
    std::vector<uint64_t> ids;     // of all buckets, in order
    std::shared_ptr<Buffer> weights;  // [ids, kChunk], as they arrive
  };

  ServedParameters(ps::Client* client, Stream* stream) : client_(client), stream_(stream) {}
  void Push(Context& context, const Table& table, size_t bucket);
  // Calls visit(table, bucket number) for all buckets, up to the first error.
  template <class Visit>
  absl::Status ForEachBucket(const Visit& visit) const;
  // A parameter's value and slots, in the order of a row's numbers.
  std::vector<float*> ArraysOf(const Parameter* parameter, const optim::DenseOptimizer* optimizer) const;

  ps::Client* const client_;
  Stream* const stream_;
  ParameterSet* parameters_ = nullptr;
  std::vector<std::unique_ptr<Table>> tables_;
  rpc::Future<rpc::Done> pulled_;
  sparse::StepPushes* autograd_ = nullptr;  // of the step
  bool finite_ = true;
};

}  // namespace tandem::parallel
