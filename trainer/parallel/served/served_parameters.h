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

#include "ps/client/row_client.h"
#include "ps/client/table_admin.h"
#include "kernels/base/check.h"
#include "trainer/optim/dense_state.h"
#include "trainer/parallel/gradient_buckets.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::parallel {

// Large enough that ids and row headers are 2 % of a chunk and its record, small enough that a small model's spread over servers.
inline constexpr uint32_t kChunk = 1024;

class ServedParameters final : public GradientSync {
 public:
  // One dense table and what lies in it, in order.
  struct Part {
    uint32_t table = 0;
    std::vector<Parameter*> parameters;
  };
  // `parameters` has those of all parts. Pushes go where `pushes` collects those of the step. All pointers outlive the object.
  static absl::StatusOr<std::unique_ptr<ServedParameters>> Create(ps::RowClient* rows, ps::TableAdmin* admin, ParameterSet* parameters,
                                                                  const std::vector<Part>& parts, sparse::StepPushes* pushes, Stream* stream);
  ~ServedParameters() override;  // waits for a pull, which writes into its memory

  void BeginStep(int num_passes) override;
  void BeginPass(int pass) override;
  void Finish(Context& context) override;
  std::optional<std::string> KeptBack() const override;
  // Passes with served parameters are not recorded.
  void OnBucket(std::function<void(size_t)> on_bucket) override { TANDEM_CHECK(on_bucket == nullptr); }
  void Replay() override { TANDEM_CHECK(false); }
  void Reduce(size_t) override { TANDEM_CHECK(false); }

  void PullWeights(uint64_t step) override;
  absl::Status AwaitWeights(absl::Time deadline) override;

  void AddEntries(optim::DenseState* state) const override;
  absl::Status ReadState(optim::DenseState* state, absl::Time deadline) const override;
  absl::Status WriteState(const optim::DenseState* state, absl::Time deadline) const override;

 private:
  struct Table {
    uint32_t number;
    std::unique_ptr<GradientBuckets> gradients;
    std::vector<std::shared_ptr<const std::vector<uint64_t>>> bucket_ids;
    std::vector<uint64_t> ids;     // of all buckets, in order
    std::shared_ptr<Buffer> weights;  // [ids, kChunk], as they arrive
  };

  ServedParameters(ps::RowClient* rows, ps::TableAdmin* admin, sparse::StepPushes* pushes, Stream* stream)
      : rows_(rows), admin_(admin), pushes_(pushes), stream_(stream) {}
  void Push(Context& context, const Table& table, size_t bucket);
  // Calls visit(table, bucket number) for all buckets, up to the first error.
  template <class Visit>
  absl::Status ForEachBucket(const Visit& visit) const;
  // The value and the slots of an entry, in the order of a row's numbers.
  static std::vector<float*> ArraysOf(const optim::DenseState::Entry& entry);
  // The place of a parameter in the set.
  size_t PlaceOf(const Parameter* parameter) const;
  // Makes the weights that have arrived the parameters' values, shadows included.
  void ShowWeights();

  ps::RowClient* const rows_;
  ps::TableAdmin* const admin_;
  sparse::StepPushes* const pushes_;
  Stream* const stream_;
  ParameterSet* parameters_ = nullptr;
  std::vector<std::unique_ptr<Table>> tables_;
  rpc::Future<rpc::Done> pulled_;
  bool finite_ = true;  // of all gradients of this step
};

}  // namespace tandem::parallel
