// A sparse layer whose rows live on parameter servers: forward is a pull, backward is a push. Rows are pulled once per
// distinct id and enter the graph as one leaf; every use of an id adds to the same row of its gradient, so the push is
// merged per id. Pulls start before the step that needs them (core decision 5); rows for a CUDA device go there as soon as they have
// arrived, beside what it computes, and gradients are merged before they leave it.
// Thread rule: the step's thread; MergeIds from any.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/memory/upload.h"
#include "ps/client/client.h"
#include "trainer/autograd/variable.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::sparse {

struct MergedIds {
  std::vector<uint64_t> ids;   // distinct, ascending
  std::vector<Tensor> places;  // of each list, i64 [its size]: where its ids are among `ids`
};
MergedIds MergeIds(absl::Span<const absl::Span<const uint64_t>> lists);

// Rows on their way. Destruction waits for the pull, which writes into its memory.
class PulledRows {
 public:
  ~PulledRows();
  const std::shared_ptr<const std::vector<uint64_t>>& ids() const { return ids_; }
  // Waits; f32 [ids, dim], where the embedding's stream computes.
  absl::StatusOr<Tensor> Await(absl::Time deadline);

 private:
  friend class RemoteEmbedding;
  // `uploads` is null where the stream computes on a CPU.
  PulledRows(std::shared_ptr<const std::vector<uint64_t>> ids, int64_t dim, Uploads* uploads);
  float* memory() const;             // for the pull
  void Arrive(rpc::Future<rpc::Done> pulled);

  const std::shared_ptr<const std::vector<uint64_t>> ids_;
  const Shape shape_;
  const std::unique_ptr<Upload> upload_;  // null on a CPU
  Tensor rows_;                           // undefined until they are taken from the upload
  rpc::Future<rpc::Done> done_;
};

class RemoteEmbedding {
 public:
  // `stream` computes with the rows. Client and stream outlive the embedding, which outlives all rows.
  RemoteEmbedding(ps::Client* client, uint32_t table, int64_t dim, Stream* stream);

  // The rows as step `step` will use them (0: as they are now). `create` is false for evaluation.
  std::unique_ptr<PulledRows> Pull(uint64_t step, bool create, std::vector<uint64_t> ids);
  // Waits for the rows and returns them as a leaf. At the end of pass number `last_pass` (from 0) its gradient is pushed.
  Variable Enter(Context& context, PulledRows& rows, StepPushes& autograd, int last_pass);

  int64_t dim() const { return dim_; }

 private:
  ps::Client* client_;
  const uint32_t table_;
  const int64_t dim_;
  const std::unique_ptr<Uploads> uploads_;  // null on a CPU
};

}  // namespace tandem::sparse
