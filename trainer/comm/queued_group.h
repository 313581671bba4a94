// The common part of all process groups here. QueuedGroup checks and logs launches and queues them.
// Its worker thread runs them strictly in launch order. QueuedGroup keeps the first failure, fails
// every later operation with it, and tells the peers. A subclass defines how one collective runs
// and how peers learn of a failure.
// A device group takes arrays on its device. An operation waits, on the device, for earlier work on
// args.stream.
// Thread rule: one thread launches; Abort from any thread. A group of one rank has no worker and
// completes at once.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rpc/traffic.h"
#include "trainer/comm/collective.h"
#include "trainer/comm/flight_log.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

class QueuedGroup : public ProcessGroup {
 public:
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  uint64_t bytes_moved() const final { return bytes_moved_; }
  // The bytes of arrays that this rank's operations have exchanged with other ranks. TCP counts
  // bytes of its connections, groups of shared memory those that one rank reads or writes in the
  // other's place. 0 for groups of a device.
  rpc::Traffic traffic() const { return traffic_.total(); }

  Work AllReduce(const ArrayView& view, CollectiveArgs args) final;
  Work AllGather(const ArrayView& output, const ArrayView& input, CollectiveArgs args) final;
  Work ReduceScatter(const ArrayView& output, const ArrayView& input, CollectiveArgs args) final;
  Work Broadcast(const ArrayView& view, int root, CollectiveArgs args) final;
  Work AllToAllV(const ArrayView& output, absl::Span<const int64_t> recv_counts,
                 const ArrayView& input, absl::Span<const int64_t> send_counts,
                 CollectiveArgs args) final;
  Work Send(const ArrayView& view, int target, CollectiveArgs args) final;
  Work Recv(const ArrayView& view, int source, CollectiveArgs args) final;
  Work SendRecv(const ArrayView& sent, int target, const ArrayView& received, int source,
                CollectiveArgs args) final;
  absl::StatusOr<std::unique_ptr<ProcessGroup>> Split(int color, int key, const std::string& name,
                                                      absl::Time deadline) final;
  void Abort(absl::Status reason) final;

 protected:
  QueuedGroup(std::string name, int rank, int size, absl::Duration timeout, Device device = {});

  // A subclass calls Open once it can run collectives. It calls Close first in its destructor:
  // Close cancels unfinished operations, which fail at the peers.
  void Open();
  void Close();

  // Makes the group that Split returns.
  virtual absl::StatusOr<std::unique_ptr<QueuedGroup>> SplitOff(int color, int key,
                                                                const std::string& name,
                                                                absl::Time deadline) = 0;
  // Runs one operation on the worker thread, until it ends, `deadline` passes, or the group fails.
  virtual absl::Status Run(const Collective& collective, absl::Time deadline) = 0;
  // Tells all peers, and this rank's own waits, that the group has failed. The first reason over
  // all ranks counts.
  virtual void AbortPeers(const absl::Status& reason) = 0;

  void CountTraffic(const rpc::Traffic& more) { traffic_.Count(more); }
  // Prepends the group, this rank and the operation to the status message of Run's error.
  absl::Status InContext(const Collective& collective, const absl::Status& status) const;
  // Returns DeadlineExceeded that names the missing ranks and this rank's last operations.
  absl::Status TimeoutError(const std::string& missing) const;
  absl::Status status() const;  // the first failure, or Ok
  absl::Duration timeout() const { return timeout_; }
  const std::string& name() const { return name_; }
  Device device() const { return device_; }
  // The timeout of the operation that runs or ran last. Worker thread only.
  absl::Duration running_timeout() const { return running_timeout_; }

 private:
  struct Pending {
    Collective collective;
    Tracer* tracer;
    absl::Duration timeout;
    uint64_t log_number;
    rpc::Promise<rpc::Done> promise;
  };

  Work Launch(CollectiveKind kind, int root, int64_t count, DType dtype, const CollectiveArgs& args,
              Collective collective);
  // The living groups that were split from one group.
  struct Splits {
    absl::Mutex mutex;
    std::set<QueuedGroup*> groups ABSL_GUARDED_BY(mutex);
  };

  void Serve();
  void RunOne(Pending pending);
  absl::Status Fail(absl::Status reason);  // keeps the first failure and returns it
  absl::Status CopyToSelf(const Collective& collective) const;

  const std::string name_;
  const int rank_;
  const int size_;
  const absl::Duration timeout_;
  const Device device_;
  absl::Duration running_timeout_;  // belongs to the operation that runs; worker thread
  const std::shared_ptr<Splits> splits_ = std::make_shared<Splits>();
  std::shared_ptr<Splits> siblings_;  // lists this group; null if the group is not split off
  FlightLog log_;
  uint64_t num_collectives_ = 0, num_messages_ = 0, bytes_moved_ = 0;  // launching thread

  rpc::TrafficCounter traffic_;

  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::deque<Pending> queue_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread worker_;
};

}  // namespace tandem::comm
