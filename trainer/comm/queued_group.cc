#include "trainer/comm/queued_group.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/device_queue.h"

namespace tandem::comm {

namespace {

void CheckDense(const ArrayView& view) {
  TANDEM_CHECK(view.is_dense()) << "collectives take dense views";
  TANDEM_CHECK(view.data != nullptr || view.num_elements() == 0);
}

int64_t Sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Work DoneWork(absl::Status status) {
  return Work(
      rpc::Future<rpc::Done>::Ready(status.ok() ? absl::StatusOr<rpc::Done>(rpc::Done{}) : status));
}

TraceSpan SpanOf(const Collective& collective, Tracer* tracer) {
  return TraceSpan(tracer, SpanKind::COLLECTIVE, SpanName(collective.description), 0,
                   static_cast<double>(NumBytes(collective)));
}

}  // namespace

QueuedGroup::QueuedGroup(std::string name, int rank, int size, absl::Duration timeout,
                         Device device)
    : name_(std::move(name)), rank_(rank), size_(size), timeout_(timeout), device_(device) {
  TANDEM_CHECK(rank >= 0 && rank < size) << "rank " << rank << " of " << size;
}

void QueuedGroup::Open() {
  if (size_ > 1) worker_ = std::thread([this] { Serve(); });
}

void QueuedGroup::Close() {
  if (siblings_ != nullptr) {
    absl::MutexLock lock(&siblings_->mutex);
    siblings_->groups.erase(this);
  }
  bool unfinished;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    unfinished = running_ || !queue_.empty();
  }
  if (unfinished)
    Abort(absl::CancelledError(
        absl::StrCat("rank ", rank_, " closed group '", name_, "' with work in flight")));
  if (worker_.joinable()) worker_.join();
}

Work QueuedGroup::AllReduce(const ArrayView& view, CollectiveArgs args) {
  CheckDense(view);
  return Launch(CollectiveKind::ALL_REDUCE, 0, view.num_elements(), view.dtype, args,
                {{}, view, view, {}, {}});
}

Work QueuedGroup::AllGather(const ArrayView& output, const ArrayView& input, CollectiveArgs args) {
  CheckDense(output);
  CheckDense(input);
  TANDEM_CHECK(output.dtype == input.dtype);
  TANDEM_CHECK_EQ(output.num_elements(), input.num_elements() * size_);
  return Launch(CollectiveKind::ALL_GATHER, 0, input.num_elements(), input.dtype, args,
                {{}, output, input, {}, {}});
}

Work QueuedGroup::ReduceScatter(const ArrayView& output, const ArrayView& input,
                                CollectiveArgs args) {
  CheckDense(output);
  CheckDense(input);
  TANDEM_CHECK(output.dtype == input.dtype);
  TANDEM_CHECK_EQ(output.num_elements() * size_, input.num_elements());
  return Launch(CollectiveKind::REDUCE_SCATTER, 0, output.num_elements(), input.dtype, args,
                {{}, output, input, {}, {}});
}

Work QueuedGroup::Broadcast(const ArrayView& view, int root, CollectiveArgs args) {
  CheckDense(view);
  TANDEM_CHECK(root >= 0 && root < size_) << "root " << root << " of " << size_;
  return Launch(CollectiveKind::BROADCAST, root, view.num_elements(), view.dtype, args,
                {{}, view, view, {}, {}});
}

Work QueuedGroup::AllToAllV(const ArrayView& output, absl::Span<const int64_t> recv_counts,
                            const ArrayView& input, absl::Span<const int64_t> send_counts,
                            CollectiveArgs args) {
  CheckDense(output);
  CheckDense(input);
  TANDEM_CHECK(output.dtype == input.dtype);
  Collective collective{{},
                        output,
                        input,
                        {recv_counts.begin(), recv_counts.end()},
                        {send_counts.begin(), send_counts.end()}};
  TANDEM_CHECK_EQ(collective.recv_counts.size(), static_cast<size_t>(size_));
  TANDEM_CHECK_EQ(collective.send_counts.size(), static_cast<size_t>(size_));
  TANDEM_CHECK_EQ(Sum(collective.recv_counts), output.num_elements());
  TANDEM_CHECK_EQ(Sum(collective.send_counts), input.num_elements());
  TANDEM_CHECK_EQ(collective.send_counts[rank_], collective.recv_counts[rank_]);
  return Launch(CollectiveKind::ALL_TO_ALL_V, 0, 0, input.dtype, args, std::move(collective));
}

Work QueuedGroup::Send(const ArrayView& view, int target, CollectiveArgs args) {
  CheckDense(view);
  TANDEM_CHECK(target >= 0 && target < size_ && target != rank_)
      << "rank " << rank_ << " sends to " << target << " of " << size_;
  return Launch(CollectiveKind::SEND, target, view.num_elements(), view.dtype, args,
                {{}, {}, view, {}, {}});
}

Work QueuedGroup::Recv(const ArrayView& view, int source, CollectiveArgs args) {
  CheckDense(view);
  TANDEM_CHECK(source >= 0 && source < size_ && source != rank_)
      << "rank " << rank_ << " receives from " << source << " of " << size_;
  return Launch(CollectiveKind::RECV, source, view.num_elements(), view.dtype, args,
                {{}, view, {}, {}, {}});
}

Work QueuedGroup::SendRecv(const ArrayView& sent, int target, const ArrayView& received, int source,
                           CollectiveArgs args) {
  CheckDense(sent);
  CheckDense(received);
  TANDEM_CHECK(sent.dtype == received.dtype);
  for (const int peer : {target, source})
    TANDEM_CHECK(peer >= 0 && peer < size_ && peer != rank_)
        << "rank " << rank_ << " exchanges with " << peer << " of " << size_;
  Collective collective{{}, received, sent, {}, {}};
  collective.description.source = source;
  return Launch(CollectiveKind::SEND_RECV, target, sent.num_elements(), sent.dtype, args,
                std::move(collective));
}

Work QueuedGroup::Launch(CollectiveKind kind, int root, int64_t count, DType dtype,
                         const CollectiveArgs& args, Collective collective) {
  const uint64_t sequence = IsPointToPoint(kind) ? num_messages_++ : num_collectives_++;
  const bool reduces = kind == CollectiveKind::ALL_REDUCE || kind == CollectiveKind::REDUCE_SCATTER;
  collective.description = {sequence,
                            args.tag,
                            count,
                            root,
                            collective.description.source,
                            kind,
                            dtype,
                            reduces ? args.op : ReduceOp::SUM,
                            reduces ? args.order : SumOrder::ANY};
  if (device_.is_cuda() && args.stream != nullptr && args.stream->on_cuda()) {
    auto ready = std::make_shared<Event>(device_);
    if (absl::Status recorded = ready->Record(args.stream->queue()); !recorded.ok())
      return DoneWork(Fail(std::move(recorded)));
    collective.ready = std::move(ready);
  }
  Tracer* const tracer = args.stream != nullptr ? args.stream->tracer() : nullptr;
  if (size_ == 1) {
    absl::Status failed = status();
    const TraceSpan span = SpanOf(collective, tracer);
    if (failed.ok()) failed = CopyToSelf(collective);
    return DoneWork(std::move(failed));
  }
  bytes_moved_ += NumBytes(collective) * (kind == CollectiveKind::ALL_REDUCE ? 2 : 1);
  const absl::Duration own = args.timeout > absl::ZeroDuration() ? args.timeout : timeout_;
  Pending pending{std::move(collective), tracer, own, 0, {}};
  pending.log_number = log_.Launch(pending.collective.description);
  Work work(pending.promise.future());
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return DoneWork(status_);
  queue_.push_back(std::move(pending));
  return work;
}

// In a group of one, the output is the input.
absl::Status QueuedGroup::CopyToSelf(const Collective& collective) const {
  const ArrayView &to = collective.output, &from = collective.input;
  if (from.data == nullptr || to.data == nullptr || from.data == to.data) return absl::OkStatus();
  if (!device_.is_cuda()) {
    std::memmove(to.data, from.data, from.num_bytes());
    return absl::OkStatus();
  }
  DeviceQueue queue(device_);
  RETURN_IF_ERROR(queue.After(collective.ready.get()));
  RETURN_IF_ERROR(queue.Copy(to.data, from.data, from.num_bytes()));
  return queue.Await(absl::Now() + timeout_);
}

void QueuedGroup::Serve() {
  NameThisThread(absl::StrCat("group ", name_));
  auto has_work = [this]()
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closing_ || !queue_.empty(); };
  while (true) {
    mutex_.LockWhen(absl::Condition(&has_work));
    if (queue_.empty()) {
      mutex_.Unlock();
      return;
    }
    Pending pending = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    mutex_.Unlock();
    RunOne(std::move(pending));
  }
}

void QueuedGroup::RunOne(Pending pending) {
  log_.Start(pending.log_number);
  absl::Status result = status();
  if (result.ok()) {
    const TraceSpan span = SpanOf(pending.collective, pending.tracer);
    running_timeout_ = pending.timeout;
    result = Run(pending.collective, absl::Now() + running_timeout_);
    if (!result.ok()) result = Fail(InContext(pending.collective, result));
  }
  log_.Finish(pending.log_number, result.ok());
  {
    // Before the promise: a waiting thread may close the group at once, and must not find the group
    // busy.
    absl::MutexLock lock(&mutex_);
    running_ = false;
  }
  pending.promise.Set(result.ok() ? absl::StatusOr<rpc::Done>(rpc::Done{}) : result);
}

absl::Status QueuedGroup::Fail(absl::Status reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    status_ = reason;
  }
  AbortPeers(reason);
  absl::MutexLock lock(&splits_->mutex);
  for (QueuedGroup* const split : splits_->groups) split->Abort(reason);
  return reason;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> QueuedGroup::Split(int color, int key,
                                                                 const std::string& name,
                                                                 absl::Time deadline) {
  ASSIGN_OR_RETURN(std::unique_ptr<QueuedGroup> split, SplitOff(color, key, name, deadline));
  {
    absl::MutexLock lock(&splits_->mutex);
    splits_->groups.insert(split.get());
  }
  split->siblings_ = splits_;
  if (const absl::Status failed = status(); !failed.ok()) split->Abort(failed);
  return split;
}

void QueuedGroup::Abort(absl::Status reason) {
  TANDEM_CHECK(!reason.ok()) << "Abort needs a reason";
  (void)Fail(std::move(reason));
}

absl::Status QueuedGroup::InContext(const Collective& collective,
                                    const absl::Status& status) const {
  return absl::Status(status.code(), absl::StrCat("group '", name_, "' rank ", rank_, ": ",
                                                  collective.description.ToString(), ": ",
                                                  std::string(status.message())));
}

absl::Status QueuedGroup::TimeoutError(const std::string& missing) const {
  return absl::DeadlineExceededError(
      absl::StrCat(missing, " did not arrive within ", absl::FormatDuration(running_timeout_),
                   "; is that process alive? last operations here: ", log_.Last(4)));
}

absl::Status QueuedGroup::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

}  // namespace tandem::comm
