// A sparse layer whose rows live on parameter servers: forward is a pull, backward is a push. Each
// distinct id is pulled once, and the rows enter the graph as one leaf. All uses of an id add to
// the same row of the gradient, so the push is merged per id. Pulls start before the step that
// needs them, which hides their latency. Rows for a CUDA device are uploaded on arrival, beside its
// computation; gradients are merged on the device.
// Thread rule: the step's thread; MergeIds from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/memory/upload.h"
#include "ps/client/row_client.h"
#include "trainer/autograd/variable.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::sparse {

struct MergedIds {
  std::vector<uint64_t> ids;   // distinct, ascending
  std::vector<Tensor> places;  // for each list, i64 [its size]: the places of its ids in `ids`
};
MergedIds MergeIds(absl::Span<const absl::Span<const uint64_t>> lists);

// Rows in flight. The destructor waits for the pull, which writes into their memory.
class PulledRows {
 public:
  ~PulledRows();
  const std::shared_ptr<const std::vector<uint64_t>>& ids() const { return ids_; }
  // Waits for the rows, f32 [ids, dim], on the device of the embedding's stream.
  absl::StatusOr<Tensor> Await(absl::Time deadline);

 private:
  friend class RemoteEmbedding;
  // `uploads` is null if the stream computes on a CPU.
  PulledRows(std::shared_ptr<const std::vector<uint64_t>> ids, int64_t dim, Uploads* uploads);
  float* memory() const;  // where the pull writes
  void Arrive(rpc::Future<rpc::Done> pulled);

  const std::shared_ptr<const std::vector<uint64_t>> ids_;
  const Shape shape_;
  const std::unique_ptr<Upload> upload_;  // null on a CPU
  Tensor rows_;                           // undefined until taken from the upload
  rpc::Future<rpc::Done> done_;
};

class RemoteEmbedding {
 public:
  // `stream` computes with the rows.
  // REQUIRES: client and stream outlive the embedding; the embedding outlives all rows.
  RemoteEmbedding(ps::RowClient* client, uint32_t table, int64_t dim, Stream* stream);

  // Pulls the rows for step `step` (0: their present values). `create` is false for evaluation.
  std::unique_ptr<PulledRows> Pull(uint64_t step, bool create, std::vector<uint64_t> ids);
  // Waits for the rows and returns them as a leaf. The leaf's gradient is pushed at the end of pass
  // number `last_pass` (from 0).
  Variable Enter(Context& context, PulledRows& rows, StepPushes& autograd, int last_pass);

  int64_t dim() const { return dim_; }

 private:
  ps::RowClient* client_;
  const uint32_t table_;
  const int64_t dim_;
  const std::unique_ptr<Uploads> uploads_;  // null on a CPU
};

}  // namespace tandem::sparse
