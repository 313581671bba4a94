// Dense parameters whose gradients are summed on parameter servers, which also update them.
// Parameters lie flattened side by side (GradientBuckets), cut into chunks of kChunk numbers. The
// chunks are rows 1, 2, ... of dense tables, so that they spread over all servers. Steps, exactness
// and the order of sums are the same as for rows.
// A step's weights are pulled behind the previous step's commit and replace the old weights in
// AwaitWeights. A bucket's gradients are pushed when the backward pass completes the bucket. Names,
// shapes and files are independent of chunks: values and slots are read back by parameter.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "ps/client/row_client.h"
#include "ps/client/table_admin.h"
#include "trainer/optim/dense_state.h"
#include "trainer/parallel/gradient_buckets.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::parallel {

// Numbers in a chunk. Large enough that ids and row headers are 2 % of a chunk and its record.
// Small enough that a small model's chunks spread over servers.
inline constexpr uint32_t kChunk = 1024;

class ServedParameters final : public GradientSync {
 public:
  // One dense table and its parameters, in order.
  struct Part {
    uint32_t table = 0;
    std::vector<Parameter*> parameters;
  };
  // Makes the sync for the parameters of `parts`. `pushes` collects the pushes of the step.
  // REQUIRES: parameters lie in host memory, in f32.
  // REQUIRES: `parameters` contains all parts' parameters, and all pointers outlive the object.
  static absl::StatusOr<std::unique_ptr<ServedParameters>> Create(
      ps::RowClient* rows, ps::TableAdmin* admin, ParameterSet* parameters,
      const std::vector<Part>& parts, sparse::StepPushes* pushes, Stream* stream);
  ~ServedParameters() override;  // waits for a pull, which writes into this object's memory

  void BeginStep(int num_passes) override;
  void BeginPass(Context& context, int pass) override;
  void Finish(Context& context) override;
  std::optional<std::string> KeptBack() const override;
  // Accepts only null, because passes with served parameters are not recorded.
  void OnBucket(std::function<void(size_t)> on_bucket) override {
    TANDEM_CHECK(on_bucket == nullptr);
  }
  void Replay() override { TANDEM_CHECK(false); }
  void Reduce(size_t) override { TANDEM_CHECK(false); }

  uint64_t gradient_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& table : tables_) bytes += table->gradients->num_bytes();
    return bytes;
  }
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
    std::vector<uint64_t> ids;        // of all buckets, in order
    std::shared_ptr<Buffer> weights;  // [ids, kChunk], the pulled weights
  };

  ServedParameters(ps::RowClient* rows, ps::TableAdmin* admin, sparse::StepPushes* pushes,
                   Stream* stream)
      : rows_(rows), admin_(admin), pushes_(pushes), stream_(stream) {}
  void Push(Context& context, const Table& table, size_t bucket);
  // Calls visit(table, bucket number) for all buckets, up to the first error.
  template <class Visit>
  absl::Status ForEachBucket(const Visit& visit) const;
  // Returns the value and the slots of an entry, in the order of a row's numbers.
  static std::vector<float*> ArraysOf(const optim::DenseState::Entry& entry);
  // Returns the index of a parameter in the set.
  size_t PlaceOf(const Parameter* parameter) const;
  // Makes the pulled weights the parameters' values, shadows included.
  void ShowWeights();

  ps::RowClient* const rows_;
  ps::TableAdmin* const admin_;
  sparse::StepPushes* const pushes_;
  Stream* const stream_;
  ParameterSet* parameters_ = nullptr;
  std::vector<std::unique_ptr<Table>> tables_;
  rpc::Future<rpc::Done> pulled_;
  bool finite_ = true;  // all gradients of this step so far are finite
};

}  // namespace tandem::parallel
