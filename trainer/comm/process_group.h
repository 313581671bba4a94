// A fixed set of ranks that run the same collectives in the same order on array views: no gradients, no tensors here.
// A collective is launched and goes on by itself; its Work says when. Launches run one after another in launch order.
// A failure (a peer gone, a deadline, Abort) fails this and every later collective of the group with the first reason.
// A group's arrays lie in the memory of the host, or all of them on its device.
// Thread rule: one thread launches; Abort from any thread. Views stay alive and untouched until the Work is done.
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

// The order in which SUM adds: both are fixed functions of (count, size) and give every rank the same bits.
enum class SumOrder {
  ANY,   // the order of a ring (comm/ring_order.h), or NCCL's own: the fastest
  TREE,  // one balanced binary tree over ranks
};

struct CollectiveArgs {
  Stream* stream = nullptr;
  ReduceOp op = ReduceOp::SUM;
  SumOrder order = SumOrder::ANY;
  uint64_t tag = 0;  // what the collective is for, compared between ranks: a mismatch is an Internal error naming both
  absl::Duration timeout = absl::ZeroDuration();  // of this operation, where a peer may come late; zero: the group's
};

class Work {
 public:
  explicit Work(rpc::Future<rpc::Done> future) : future_(std::move(future)) {}
  // Ok when this rank's part is complete and its buffers may be used.
  absl::Status Wait(absl::Time deadline) const { return future_.Wait(deadline).status(); }
  bool done() const { return future_.ready(); }

 private:
  rpc::Future<rpc::Done> future_;
};

// dtypes: f32 f64 i64 u64 u8 (bf16: copies only, until bf16 sums exist).
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual const std::string& name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place.
  virtual Work AllReduce(const ArrayView& view, CollectiveArgs args) = 0;
  // output [size * n], input [n]: rank r's input lands at r * n.
  virtual Work AllGather(const ArrayView& output, const ArrayView& input, CollectiveArgs args) = 0;
  // output [n], input [size * n]: rank r gets the reduction of everybody's part r.
  virtual Work ReduceScatter(const ArrayView& output, const ArrayView& input, CollectiveArgs args) = 0;
  virtual Work Broadcast(const ArrayView& view, int root, CollectiveArgs args) = 0;
  // send_counts[r] elements go to rank r, recv_counts[r] come from it; both lie in rank order without gaps.
  virtual Work AllToAllV(const ArrayView& output, absl::Span<const int64_t> recv_counts, const ArrayView& input,
                         absl::Span<const int64_t> send_counts, CollectiveArgs args) = 0;
  // Point to point, matched in order for each (sender, receiver).
  virtual Work Send(const ArrayView& view, int target, CollectiveArgs args) = 0;
  virtual Work Recv(const ArrayView& view, int source, CollectiveArgs args) = 0;
  virtual Work Barrier(CollectiveArgs args) = 0;

  // A new group of the ranks that pass the same color, ordered by (key, rank). Collective over this group.
  virtual absl::StatusOr<std::unique_ptr<ProcessGroup>> Split(int color, int key, const std::string& name,
                                                              absl::Time deadline) = 0;
  // Memory that this group's collectives read in place where they can. Collective: all ranks, same size, same order.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) = 0;
  // Fails what is in flight and to come, here and at the peers.
  virtual void Abort(absl::Status reason) = 0;

  // Waits for one of this group's launches. After a failure the group is aborted and nothing touches the launch's views any
  // more, so they may be freed: what a bare Work::Wait that ran out of time does not promise.
  absl::Status Await(const Work& work, absl::Time deadline) {
    absl::Status status = work.Wait(deadline);
    if (status.ok()) return status;
    Abort(status);
    work.Wait(absl::InfiniteFuture()).IgnoreError();  // ends soon: the abort wakes it
    return status;
  }
};

}  // namespace tandem::comm
