#include "trainer/comm/nccl_group.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/cuda_runtime_calls.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/device_queue.h"
#include "trainer/comm/failure_board.h"
#include "trainer/comm/nccl_communicator.h"

namespace tandem::comm {

namespace {

constexpr absl::Duration kWatchPeriod = absl::Milliseconds(250);
constexpr absl::Duration kInquiry = absl::Seconds(1);     // for peers' watches to answer
constexpr absl::Duration kFarewell = absl::Seconds(10);   // for the last kernels of a group that ends well
constexpr absl::Duration kAfterAbort = absl::Seconds(10);  // for kernels of an aborted communicator to leave the device: they look often

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::F32: return ncclFloat32;
    case DType::F64: return ncclFloat64;
    case DType::I64: return ncclInt64;
    case DType::U64: return ncclUint64;
    case DType::U8: return ncclUint8;
    case DType::BF16: return ncclBfloat16;
  }
  return ncclUint8;
}

ncclRedOp_t OperationOf(ReduceOp op) {
  return op == ReduceOp::SUM ? ncclSum : op == ReduceOp::MAX ? ncclMax : ncclMin;
}

class NcclGroup final : public QueuedGroup {
 public:
  NcclGroup(const NcclGroupOptions& options, std::string name, std::unique_ptr<NcclCommunicator> communicator)
      : QueuedGroup(std::move(name), options.rank, options.size, options.timeout, options.device), options_(options),
        communicator_(std::move(communicator)), board_(options.store, options.name, options.rank, options.size) {
    if (size() > 1) {
      nothing_ = cuda::AllocateMemory(1, options.device.index);
      TANDEM_CHECK(nothing_ != nullptr);
      queue_ = std::make_unique<DeviceQueue>(options.device);
      watch_ = std::thread([this] { Watch(); });
    }
    Open();
  }

  ~NcclGroup() override {
    Close();
    {
      absl::MutexLock lock(&watch_mutex_);
      closed_ = true;
    }
    if (watch_.joinable()) watch_.join();
    if (communicator_ == nullptr) return;
    if (status().ok()) communicator_->Finish(absl::Now() + kFarewell);
    else EndKernels();
    queue_ = nullptr;
    cuda::FreeMemory(nothing_, device().index);
  }

  absl::StatusOr<std::unique_ptr<ProcessGroup>> Split(int color, int key, const std::string& name, absl::Time deadline) override;
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) override {
    RETURN_IF_ERROR(status());
    return Buffer::Allocate(num_bytes, device());
  }

 private:
  absl::Status Run(const Collective& collective, absl::Time deadline) override;
  // The watch tells them: telling may take its time.
  void AbortPeers(const absl::Status&) override {
    absl::MutexLock lock(&watch_mutex_);
    news_ = true;
  }

  // Gives the operation to NCCL, with all calls of it in one group of NCCL's.
  absl::Status Submit(const Collective& collective, absl::Time deadline);
  ncclResult_t Call(const NcclLibrary& nccl, ncclComm_t comm, const Collective& collective);
  ncclResult_t AllToAllV(const NcclLibrary& nccl, ncclComm_t comm, const Collective& collective);
  // What to tell of an operation that did not end: who is missing, or who runs another one.
  absl::Status Explain(const Collective& collective, absl::Status status);
  // Afterwards no kernel of the communicator touches arrays.
  void EndKernels();
  void Watch();
  // What has gone wrong elsewhere; Ok, nearly always.
  absl::Status NewsOfPeers();

  const NcclGroupOptions options_;
  const std::unique_ptr<NcclCommunicator> communicator_;  // null in a group of one, as the next two
  std::unique_ptr<DeviceQueue> queue_;
  void* nothing_ = nullptr;  // what a barrier reduces: no block of the cache, which other streams may still use
  FailureBoard board_;
  absl::Mutex watch_mutex_;
  bool closed_ ABSL_GUARDED_BY(watch_mutex_) = false;
  bool news_ ABSL_GUARDED_BY(watch_mutex_) = false;  // for the watch to look at now
  std::thread watch_;
  int num_splits_ = 0;  // launching thread
};

absl::Status NcclGroup::Run(const Collective& collective, absl::Time deadline) {
  board_.Begin(collective);
  const Description& what = collective.description;
  if (what.order == SumOrder::TREE && what.op == ReduceOp::SUM && size() > 2) {
    return absl::UnimplementedError("NCCL adds in an order of its own, not in a tree over ranks");
  }
  absl::Status status = queue_->After(collective.ready.get());
  if (status.ok()) status = Submit(collective, deadline);
  if (status.ok()) status = queue_->Await(deadline, [this] { return this->status(); });
  if (status.ok()) status = this->status();  // kernels of a communicator that the watch aborted end as if they had done their work
  if (status.ok()) return status;
  status = Explain(collective, std::move(status));
  // Before the peers find the communicator aborted and nothing said.
  const absl::Status known = this->status();
  board_.GiveUp(known.ok() ? InContext(collective, status) : known);
  EndKernels();
  return status;
}

absl::Status NcclGroup::Submit(const Collective& collective, absl::Time deadline) {
  const absl::Status submitted = communicator_->Submit(
      collective.description.kind == CollectiveKind::ALL_TO_ALL_V,
      [&](const NcclLibrary& nccl, ncclComm_t comm) { return Call(nccl, comm, collective); });
  return submitted.ok() ? communicator_->AwaitReady(deadline, [this] { return status(); }) : submitted;
}

ncclResult_t NcclGroup::Call(const NcclLibrary& nccl, ncclComm_t comm, const Collective& collective) {
  const Description& what = collective.description;
  const ArrayView &output = collective.output, &input = collective.input;
  const auto stream = static_cast<cudaStream_t>(queue_->queue());
  const auto count = static_cast<size_t>(what.count);
  const ncclDataType_t type = TypeOf(what.dtype);
  const bool barrier = what.kind == CollectiveKind::BARRIER;
  if (count == 0 && !barrier && what.kind != CollectiveKind::ALL_TO_ALL_V) return ncclSuccess;  // for all ranks
  switch (what.kind) {
    case CollectiveKind::ALL_REDUCE: return nccl.all_reduce(input.data, output.data, count, type, OperationOf(what.op), comm, stream);
    case CollectiveKind::ALL_GATHER: return nccl.all_gather(input.data, output.data, count, type, comm, stream);
    case CollectiveKind::REDUCE_SCATTER:
      return nccl.reduce_scatter(input.data, output.data, count, type, OperationOf(what.op), comm, stream);
    case CollectiveKind::BROADCAST: return nccl.broadcast(input.data, output.data, count, type, what.root, comm, stream);
    case CollectiveKind::ALL_TO_ALL_V: return AllToAllV(nccl, comm, collective);
    case CollectiveKind::SEND: return nccl.send(input.data, count, type, what.root, comm, stream);
    case CollectiveKind::RECV: return nccl.recv(output.data, count, type, what.root, comm, stream);
    case CollectiveKind::BARRIER: break;
  }
  return nccl.all_reduce(nothing_, nothing_, 1, ncclUint8, ncclMax, comm, stream);
}

// Both ends of a pair know its count, and leave out empty messages alike.
ncclResult_t NcclGroup::AllToAllV(const NcclLibrary& nccl, ncclComm_t comm, const Collective& collective) {
  const auto element = static_cast<int64_t>(SizeOf(collective.description.dtype));
  const ncclDataType_t type = TypeOf(collective.description.dtype);
  const auto stream = static_cast<cudaStream_t>(queue_->queue());
  const char* source = static_cast<const char*>(collective.input.data);
  char* target = static_cast<char*>(collective.output.data);
  ncclResult_t result = ncclSuccess;
  const auto keep = [&result](ncclResult_t next) {
    if (result == ncclSuccess || result == ncclInProgress) result = next;
  };
  for (int r = 0; r < size(); ++r) {
    const int64_t sent = collective.send_counts[r], received = collective.recv_counts[r];
    if (sent > 0) keep(nccl.send(source, static_cast<size_t>(sent), type, r, comm, stream));
    if (received > 0) keep(nccl.recv(target, static_cast<size_t>(received), type, r, comm, stream));
    source += sent * element;
    target += received * element;
  }
  return result;
}

absl::Status NcclGroup::Explain(const Collective& collective, absl::Status status) {
  if (!this->status().ok()) return this->status();  // a peer, or this rank's owner, has given the reason
  const FailureBoard::Missing missing = board_.Inquire(collective, absl::Now() + kInquiry);
  if (!this->status().ok()) return this->status();
  if (!missing.mismatch.ok()) return missing.mismatch;
  if (absl::IsDeadlineExceeded(status)) {
    return TimeoutError(missing.ranks.empty() ? "all ranks are in it, but its end" : missing.ranks);
  }
  if (missing.ranks.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()), "; ", missing.ranks, " did not arrive"));
}

void NcclGroup::EndKernels() {
  communicator_->Abort();
  queue_->Await(absl::Now() + kAfterAbort).IgnoreError();
}

void NcclGroup::Watch() {
  NameThisThread(absl::StrCat("watch ", name()));
  const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(watch_mutex_) { return closed_ || news_; };
  bool told = false;
  for (bool closed = false; !closed;) {
    {
      absl::MutexLock lock(&watch_mutex_);
      watch_mutex_.AwaitWithTimeout(absl::Condition(&awake), kWatchPeriod);
      closed = closed_;
      news_ = false;
    }
    if (const absl::Status mine = status(); mine.ok()) {
      if (closed) return;
      if (absl::Status news = NewsOfPeers(); !news.ok()) Abort(std::move(news));
    } else {
      if (!told) {
        board_.GiveUp(mine);
        communicator_->Abort();  // also where no operation runs: peers' communicators wait for this one
      }
      told = true;
      board_.Watch().IgnoreError();  // answers peers that ask where this rank is
    }
  }
}

absl::Status NcclGroup::NewsOfPeers() {
  RETURN_IF_ERROR(board_.Watch());
  absl::Status error = communicator_->AsyncError();
  if (error.ok()) return error;
  const std::string gone = board_.InquireWhoIsGone(absl::Now() + kInquiry);
  RETURN_IF_ERROR(board_.Watch());  // a peer that could still say why
  if (gone.empty()) return error;
  return absl::Status(error.code(), absl::StrCat(std::string(error.message()), "; ", gone, " does not answer"));
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> NcclGroup::Split(int color, int key, const std::string& name, absl::Time deadline) {
  NcclGroupOptions options = options_;
  options.name = absl::StrCat(options_.name, "/split", num_splits_++, ".", color);
  std::unique_ptr<NcclCommunicator> child;
  if (size() > 1) {
    RETURN_IF_ERROR(Await(Barrier({}), deadline));  // then the worker has nothing that it would submit meanwhile
    auto made = communicator_->Split(color, key, deadline, [this] { return status(); });
    if (!made.ok()) {
      Abort(made.status());
      return made.status();
    }
    child = *std::move(made);
    ASSIGN_OR_RETURN(options.rank, child->Rank());
    ASSIGN_OR_RETURN(options.size, child->Size());
    if (options.size == 1) child->Finish(deadline);
  }
  if (options.size == 1) child = nullptr;
  return std::unique_ptr<ProcessGroup>(new NcclGroup(options, name, std::move(child)));
}

}  // namespace

absl::Status FindNccl() { return NcclLibrary::Get().status(); }

absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeNcclGroup(const NcclGroupOptions& options, absl::Time deadline) {
  TANDEM_CHECK(options.device.is_cuda());
  std::unique_ptr<NcclCommunicator> communicator;
  if (options.size > 1) {
    ASSIGN_OR_RETURN(communicator, NcclCommunicator::Meet(options, deadline));
  }
  return std::unique_ptr<ProcessGroup>(new NcclGroup(options, options.name, std::move(communicator)));
}

}  // namespace tandem::comm
