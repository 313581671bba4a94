// A sparse layer whose rows live in tables on parameter servers: forward is a pull, backward is a
// push, each of one message for all tables. Each distinct id is pulled once, and a table's rows
// enter the graph as one leaf. All uses of an id add to the same row of the gradient, so the push
// is merged per id. Pulls start before the step that needs them, which hides their latency. Rows
// for a CUDA device are uploaded on arrival, beside its computation; gradients are merged on the
// device.
// Tensor-parallel ranks need the same rows. The first one pulls and shares them; the gradients are
// equal, and the first one pushes them.
// Thread rule: the step's thread; MergeIds from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/memory/upload.h"
#include "ps/client/row_client.h"
#include "trainer/autograd/variable.h"
#include "trainer/comm/process_group.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::sparse {

struct MergedIds {
  std::vector<uint64_t> ids;   // distinct, ascending
  std::vector<Tensor> places;  // for each list, i64 [its size]: the places of its ids in `ids`
};
MergedIds MergeIds(absl::Span<const absl::Span<const uint64_t>> lists);

struct RemoteTable {
  uint32_t number = 0;
  int64_t dim = 0;
};

using Ids = std::shared_ptr<const std::vector<uint64_t>>;

// Rows in flight. The destructor waits for the pull, which writes into their memory.
class PulledRows {
 public:
  ~PulledRows();
  // Waits for the rows of each table, f32 [ids, dim], on the device of the embedding's stream.
  // Collective over the ranks that share rows, which await their pulls in one order.
  absl::StatusOr<std::vector<Tensor>> Await(absl::Time deadline);

 private:
  friend class RemoteEmbedding;
  // The rows of one table.
  struct Part {
    Ids ids;
    Shape shape;
    std::unique_ptr<Upload> upload;  // null on a CPU
    Tensor rows;                     // undefined until taken from the upload

    float* memory() const;  // where the pull writes
  };

  explicit PulledRows(comm::ProcessGroup* sharers) : sharers_(sharers) {}
  // Brings the first sharer's rows to the others.
  absl::Status Share(absl::Time deadline);
  void Arrive(rpc::Future<rpc::Done> pulled);

  comm::ProcessGroup* const sharers_;  // null: nobody shares
  bool shared_ = false;
  std::vector<Part> parts_;
  rpc::Future<rpc::Done> done_;
};

class RemoteEmbedding {
 public:
  // `stream` computes with the rows. `sharers` are the ranks that need the same rows, of which the
  // first one has a client; null: this rank alone.
  // REQUIRES: all arguments outlive the embedding, which outlives all rows. Rows that are shared
  // lie in the host's memory.
  RemoteEmbedding(ps::RowClient* client, std::vector<RemoteTable> tables, Stream* stream,
                  comm::ProcessGroup* sharers = nullptr);

  // Pulls rows of each table, by its ids, for step `step` (0: their present values). `create` is
  // false for evaluation. REQUIRES: one list of ids per table; a list may be empty.
  std::unique_ptr<PulledRows> Pull(uint64_t step, bool create,
                                   std::vector<std::vector<uint64_t>> ids);
  // Waits for the rows and returns them as one leaf per table. The leaves' gradients are pushed
  // together in pass number `last_pass` (from 0), once all are complete. A leaf that no loss
  // reaches is left out; the push is then sent by StepPushes::AwaitPushes.
  std::vector<Variable> Enter(Context& context, PulledRows& rows, StepPushes& pushes,
                              int last_pass);

  const std::vector<RemoteTable>& tables() const { return tables_; }
  uint64_t num_pulled() const { return num_pulled_; }  // rows asked of servers by this rank

 private:
  // True if this rank pulls and pushes.
  bool leads() const { return sharers_ == nullptr || sharers_->rank() == 0; }

  ps::RowClient* client_;
  comm::ProcessGroup* const sharers_;
  const std::vector<RemoteTable> tables_;
  const std::unique_ptr<Uploads> uploads_;  // null on a CPU
  uint64_t num_pulled_ = 0;
};

}  // namespace tandem::sparse
