// A fixed set of ranks that run the same collectives in the same order on array views. A group
// knows neither gradients nor tensors.
// A collective is launched and runs asynchronously; its Work reports the end. Launches run one
// after another in launch order. A failure (a lost peer, a deadline, Abort) fails this and every
// later collective of the group with the first reason, and those of the groups split from it. All
// arrays of a group lie in host memory, or all on the group's device.
// Thread rule: one thread launches; Abort from any thread.
// REQUIRES: views stay alive and untouched until the Work is done.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/base/array_view.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/stream.h"
#include "rpc/future.h"

namespace tandem::comm {

enum class ReduceOp { SUM, MAX, MIN };

// The order in which SUM adds. Both orders are fixed functions of (count, size) and give every rank
// the same bits.
enum class SumOrder {
  ANY,   // the fastest order: that of a ring (comm/ring_order.h), or NCCL's own
  TREE,  // one balanced binary tree over ranks
};

struct CollectiveArgs {
  Stream* stream = nullptr;
  ReduceOp op = ReduceOp::SUM;
  SumOrder order = SumOrder::ANY;
  // The purpose of the collective. Ranks compare tags; a mismatch is an Internal error naming both.
  uint64_t tag = 0;
  // For this operation, if a peer may come late; zero: the group's timeout.
  absl::Duration timeout = absl::ZeroDuration();
};

class Work {
 public:
  explicit Work(rpc::Future<rpc::Done> future) : future_(std::move(future)) {}
  // Returns Ok when this rank's part is complete and its buffers may be used.
  absl::Status Wait(absl::Time deadline) const { return future_.Wait(deadline).status(); }
  bool done() const { return future_.ready(); }

 private:
  rpc::Future<rpc::Done> future_;
};

// dtypes: f32 f64 bf16 i64 u64 u8. Groups on the host add bf16 in f32 and round each sum once. NCCL
// rounds as it likes, and adds no bf16 in TREE order.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place. Without elements it is a barrier: no rank's Work is done before all ranks have
  // launched.
  virtual Work AllReduce(const ArrayView& view, CollectiveArgs args) = 0;
  // output [size * n], input [n]: the input of rank r lands at r * n.
  virtual Work AllGather(const ArrayView& output, const ArrayView& input, CollectiveArgs args) = 0;
  // output [n], input [size * n]: rank r gets the reduction of part r of all inputs.
  virtual Work ReduceScatter(const ArrayView& output, const ArrayView& input,
                             CollectiveArgs args) = 0;
  virtual Work Broadcast(const ArrayView& view, int root, CollectiveArgs args) = 0;
  // send_counts[r] elements go to rank r; recv_counts[r] elements come from rank r. Both views hold
  // the parts in rank order without gaps.
  virtual Work AllToAllV(const ArrayView& output, absl::Span<const int64_t> recv_counts,
                         const ArrayView& input, absl::Span<const int64_t> send_counts,
                         CollectiveArgs args) = 0;
  // Point to point. Messages of each (sender, receiver) pair are matched in order.
  virtual Work Send(const ArrayView& view, int target, CollectiveArgs args) = 0;
  virtual Work Recv(const ArrayView& view, int source, CollectiveArgs args) = 0;
  // Sends to `target` and receives from `source` together, so that ranks in a ring, or two ranks
  // that exchange arrays of any size, cannot wait for each other. Each half is a message like those
  // of Send and Recv, and meets a peer's Send, Recv or SendRecv. One dtype.
  virtual Work SendRecv(const ArrayView& sent, int target, const ArrayView& received, int source,
                        CollectiveArgs args) = 0;

  // Makes a new group of the ranks that pass the same color, ordered by (key, rank). Collective
  // over this group.
  virtual absl::StatusOr<std::unique_ptr<ProcessGroup>> Split(int color, int key,
                                                              const std::string& name,
                                                              absl::Time deadline) = 0;
  // Allocates memory that this group's collectives read in place if possible. Collective.
  // REQUIRES: all ranks allocate the same sizes in the same order.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) = 0;
  // The bytes that Allocate could not give in such memory. Collectives copy them.
  virtual uint64_t private_bytes() const { return 0; }
  // Fails all operations in flight and to come, on this rank and on its peers.
  virtual void Abort(absl::Status reason) = 0;

  // The bytes of this rank's launches so far: of an all-reduce its array twice, of others the
  // larger array once. 0 for a group of one.
  virtual uint64_t bytes_moved() const { return 0; }

  // Waits for all ranks: an AllReduce without elements.
  Work Barrier(CollectiveArgs args) {
    return AllReduce(ArrayView(nullptr, DType::U8, Shape{0}), args);
  }

  // Waits for one of this group's launches. On failure, aborts the group and returns once nothing
  // touches the launch's views, so the views may be freed. A plain Work::Wait that times out does
  // not promise that.
  absl::Status Await(const Work& work, absl::Time deadline) {
    absl::Status status = work.Wait(deadline);
    if (status.ok()) return status;
    Abort(status);
    work.Wait(absl::InfiniteFuture()).IgnoreError();  // ends soon: the abort wakes the worker
    return status;
  }
};

}  // namespace tandem::comm
