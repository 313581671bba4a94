#include "trainer/comm/device/nccl_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/cuda_runtime_calls.h"
#include "trainer/comm/device/failure_board.h"
#include "trainer/comm/device/nccl_communicator.h"
#include "trainer/comm/device_queue.h"
#include "trainer/comm/ring_order.h"

namespace tandem::comm {

namespace {

// The elements that a rank adds at once: an f32 message of one megabyte.
constexpr int64_t kTreeElements = 1 << 18;

constexpr absl::Duration kWatchPeriod = absl::Milliseconds(250);
constexpr absl::Duration kInquiry = absl::Seconds(1);  // for the watches of peers to answer
// For the last kernels of a group that ends well.
constexpr absl::Duration kFarewell = absl::Seconds(10);
// For kernels of an aborted communicator to leave the device; they poll often.
constexpr absl::Duration kAfterAbort = absl::Seconds(10);

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return ncclFloat32;
    case DType::F64:
      return ncclFloat64;
    case DType::I64:
      return ncclInt64;
    case DType::U64:
      return ncclUint64;
    case DType::U8:
      return ncclUint8;
    case DType::BF16:
      return ncclBfloat16;
  }
  return ncclUint8;
}

ncclRedOp_t OperationOf(ReduceOp op) {
  return op == ReduceOp::SUM ? ncclSum : op == ReduceOp::MAX ? ncclMax : ncclMin;
}

class NcclGroup final : public QueuedGroup {
 public:
  NcclGroup(const NcclGroupOptions& options, std::string name,
            std::unique_ptr<NcclCommunicator> communicator)
      : QueuedGroup(std::move(name), options.rank, options.size, options.timeout, options.device),
        options_(options),
        communicator_(std::move(communicator)),
        board_(options.store, options.name, options.rank, options.size) {
    if (size() > 1) {
      nothing_ = AllocateOwn(1);
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
    if (status().ok())
      communicator_->Finish(absl::Now() + kFarewell);
    else
      EndKernels();
    queue_ = nullptr;
  }

  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) override {
    RETURN_IF_ERROR(status());
    return Buffer::Allocate(num_bytes, device());
  }

 private:
  absl::StatusOr<std::unique_ptr<QueuedGroup>> SplitOff(int color, int key, const std::string& name,
                                                        absl::Time deadline) override;
  absl::Status Run(const Collective& collective, absl::Time deadline) override;
  // The watch tells the peers, because telling may take a while.
  void AbortPeers(const absl::Status&) override {
    absl::MutexLock lock(&watch_mutex_);
    news_ = true;
  }

  // Memory of this group alone. A block of the cache might still be in use by other streams. Null
  // if the device has no more memory.
  struct FreeOwn {
    int device;
    void operator()(void* memory) const { cuda::FreeMemory(memory, device); }
  };
  using OwnMemory = std::unique_ptr<void, FreeOwn>;
  OwnMemory AllocateOwn(size_t num_bytes) const {
    return OwnMemory(cuda::AllocateMemory(num_bytes, device().index), FreeOwn{device().index});
  }

  // Submits calls to NCCL, as one NCCL group if there are several, and waits until they have run.
  using Calls = absl::FunctionRef<ncclResult_t(const NcclLibrary&, ncclComm_t)>;
  absl::Status RunCalls(bool several, Calls calls, absl::Time deadline);
  // Sums in the order of ring_order.h's tree, which NCCL does not offer. Every rank gets its parts
  // from all other ranks and adds them.
  absl::Status RunTree(const Collective& collective, absl::Time deadline);
  // Adds the ranks' rows of scratch_, `count` elements each, into the first row.
  absl::Status AddRows(int begin, int end, DType dtype, int64_t count);
  ncclResult_t Call(const NcclLibrary& nccl, ncclComm_t comm, const Collective& collective);
  ncclResult_t AllToAllV(const NcclLibrary& nccl, ncclComm_t comm, const Collective& collective);
  struct Message {
    char* data;
    int64_t count;
  };
  // Sends a message to every rank and receives one from each, submitted in the order of ranks.
  ncclResult_t Exchange(const NcclLibrary& nccl, ncclComm_t comm, DType dtype,
                        absl::FunctionRef<Message(int rank)> sent,
                        absl::FunctionRef<Message(int rank)> received);
  // Explains an operation that did not end: which ranks are missing, or which run another
  // operation.
  absl::Status Explain(const Collective& collective, absl::Status status);
  // Afterwards no kernel of the communicator touches arrays.
  void EndKernels();
  void Watch();
  // Returns an error that happened elsewhere; nearly always Ok.
  absl::Status NewsOfPeers();

  const NcclGroupOptions options_;
  // Null in a group of one, like the next two.
  const std::unique_ptr<NcclCommunicator> communicator_;
  std::unique_ptr<DeviceQueue> queue_;
  OwnMemory nothing_;  // the array that a barrier reduces
  OwnMemory scratch_;  // where trees are added; null: no tree was asked for
  FailureBoard board_;
  absl::Mutex watch_mutex_;
  bool closed_ ABSL_GUARDED_BY(watch_mutex_) = false;
  bool news_ ABSL_GUARDED_BY(watch_mutex_) = false;  // tells the watch to look now
  std::thread watch_;
  int num_splits_ = 0;  // launching thread
};

absl::Status NcclGroup::Run(const Collective& collective, absl::Time deadline) {
  board_.Begin(collective);
  const Description& what = collective.description;
  const bool reduces =
      what.kind == CollectiveKind::ALL_REDUCE || what.kind == CollectiveKind::REDUCE_SCATTER;
  // With two ranks every order is a tree.
  const bool tree = reduces && what.count > 0 && what.order == SumOrder::TREE &&
                    what.op == ReduceOp::SUM && size() > 2;
  absl::Status status = queue_->After(collective.ready.get());
  if (status.ok() && tree) status = RunTree(collective, deadline);
  if (status.ok() && !tree) {
    status = RunCalls(
        what.kind == CollectiveKind::ALL_TO_ALL_V || what.kind == CollectiveKind::SEND_RECV,
        [&](const NcclLibrary& nccl, ncclComm_t comm) { return Call(nccl, comm, collective); },
        deadline);
  }
  // Kernels of an aborted communicator end as if they had done their work.
  if (status.ok()) status = this->status();
  if (status.ok()) return status;
  status = Explain(collective, std::move(status));
  // Publish the reason before the peers find the communicator aborted without one.
  const absl::Status known = this->status();
  board_.GiveUp(known.ok() ? InContext(collective, status) : known);
  EndKernels();
  return status;
}

absl::Status NcclGroup::RunCalls(bool several, Calls calls, absl::Time deadline) {
  const auto failed = [this] { return status(); };
  RETURN_IF_ERROR(communicator_->Submit(several, calls));
  RETURN_IF_ERROR(communicator_->AwaitReady(deadline, failed));
  return queue_->Await(deadline, failed);
}

absl::Status NcclGroup::RunTree(const Collective& collective, absl::Time deadline) {
  const Description& what = collective.description;
  const bool scatters = what.kind == CollectiveKind::REDUCE_SCATTER;
  const auto element = static_cast<int64_t>(SizeOf(what.dtype));
  char *const input = static_cast<char*>(collective.input.data), *const output = static_cast<char*>(
                                                                     collective.output.data);
  if (scratch_ == nullptr)
    scratch_ = AllocateOwn(static_cast<size_t>(kTreeElements * size()) * sizeof(uint64_t));
  if (scratch_ == nullptr)
    return absl::ResourceExhaustedError("the device has no memory for a sum in a tree");
  char* const rows = static_cast<char*>(scratch_.get());

  const int64_t step = scatters ? kTreeElements : kTreeElements * size();
  for (int64_t begin = 0; begin < what.count; begin += step) {
    const Range block{begin, std::min(what.count, begin + step)};
    // The part of this block in the input that rank r adds.
    const auto part = [&](int r) {
      return scatters ? Range{r * what.count + block.begin, r * what.count + block.end}
                      : ChunkRange(block, size(), r);
    };
    const int64_t mine = part(rank()).size();
    const auto exchange = [&](absl::FunctionRef<Message(int)> sent,
                              absl::FunctionRef<Message(int)> received) {
      return RunCalls(
          true,
          [&](const NcclLibrary& nccl, ncclComm_t comm) {
            return Exchange(nccl, comm, what.dtype, sent, received);
          },
          deadline);
    };
    RETURN_IF_ERROR(exchange(
        [&](int r) {
          return Message{input + part(r).begin * element, part(r).size()};
        },
        [&](int r) {
          return Message{rows + r * mine * element, mine};
        }));
    RETURN_IF_ERROR(AddRows(0, size(), what.dtype, mine));
    if (scatters) {
      RETURN_IF_ERROR(
          queue_->Copy(output + block.begin * element, rows, static_cast<size_t>(mine * element)));
      RETURN_IF_ERROR(queue_->Await(deadline, [this] { return status(); }));
    } else {
      RETURN_IF_ERROR(exchange(
          [&](int) {
            return Message{rows, mine};
          },
          [&](int r) {
            return Message{output + part(r).begin * element, part(r).size()};
          }));
    }
  }
  return absl::OkStatus();
}

absl::Status NcclGroup::AddRows(int begin, int end, DType dtype, int64_t count) {
  if (end - begin == 1) return absl::OkStatus();
  const int middle = TreeSplit(begin, end);
  RETURN_IF_ERROR(AddRows(begin, middle, dtype, count));
  RETURN_IF_ERROR(AddRows(middle, end, dtype, count));
  char* const rows = static_cast<char*>(scratch_.get());
  const int64_t row = count * static_cast<int64_t>(SizeOf(dtype));
  return cuda::AddTo(dtype, rows + begin * row, rows + middle * row, count, device().index,
                     queue_->queue());
}

ncclResult_t NcclGroup::Call(const NcclLibrary& nccl, ncclComm_t comm,
                             const Collective& collective) {
  const Description& what = collective.description;
  const ArrayView &output = collective.output, &input = collective.input;
  const auto stream = static_cast<cudaStream_t>(queue_->queue());
  const auto count = static_cast<size_t>(what.count);
  const ncclDataType_t type = TypeOf(what.dtype);
  if (IsBarrier(what))
    return nccl.all_reduce(nothing_.get(), nothing_.get(), 1, ncclUint8, ncclMax, comm, stream);
  // The count is 0 on all ranks.
  if (what.kind == CollectiveKind::SEND_RECV) {
    const auto message = [&](const ArrayView& view, bool is_peer) {
      return Message{static_cast<char*>(view.data), is_peer ? view.num_elements() : 0};
    };
    return Exchange(
        nccl, comm, what.dtype, [&](int r) { return message(input, r == what.root); },
        [&](int r) { return message(output, r == what.source); });
  }
  if (count == 0 && what.kind != CollectiveKind::ALL_TO_ALL_V) return ncclSuccess;
  switch (what.kind) {
    case CollectiveKind::ALL_REDUCE:
      return nccl.all_reduce(input.data, output.data, count, type, OperationOf(what.op), comm,
                             stream);
    case CollectiveKind::ALL_GATHER:
      return nccl.all_gather(input.data, output.data, count, type, comm, stream);
    case CollectiveKind::REDUCE_SCATTER:
      return nccl.reduce_scatter(input.data, output.data, count, type, OperationOf(what.op), comm,
                                 stream);
    case CollectiveKind::BROADCAST:
      return nccl.broadcast(input.data, output.data, count, type, what.root, comm, stream);
    case CollectiveKind::ALL_TO_ALL_V:
      return AllToAllV(nccl, comm, collective);
    case CollectiveKind::SEND:
      return nccl.send(input.data, count, type, what.root, comm, stream);
    case CollectiveKind::SEND_RECV:
    case CollectiveKind::RECV:
      break;
  }
  return nccl.recv(output.data, count, type, what.root, comm, stream);
}

// Both ends of a pair know the pair's count, and both leave out empty messages.
ncclResult_t NcclGroup::Exchange(const NcclLibrary& nccl, ncclComm_t comm, DType dtype,
                                 absl::FunctionRef<Message(int rank)> sent,
                                 absl::FunctionRef<Message(int rank)> received) {
  const ncclDataType_t type = TypeOf(dtype);
  const auto stream = static_cast<cudaStream_t>(queue_->queue());
  ncclResult_t result = ncclSuccess;
  const auto keep = [&result](ncclResult_t next) {
    if (result == ncclSuccess || result == ncclInProgress) result = next;
  };
  for (int r = 0; r < size(); ++r) {
    const Message to = sent(r), from = received(r);
    if (to.count > 0)
      keep(nccl.send(to.data, static_cast<size_t>(to.count), type, r, comm, stream));
    if (from.count > 0)
      keep(nccl.recv(from.data, static_cast<size_t>(from.count), type, r, comm, stream));
  }
  return result;
}

ncclResult_t NcclGroup::AllToAllV(const NcclLibrary& nccl, ncclComm_t comm,
                                  const Collective& collective) {
  const auto element = static_cast<int64_t>(SizeOf(collective.description.dtype));
  const auto next = [element](char*& place, int64_t count) {
    place += count * element;
    return Message{place - count * element, count};
  };
  char *source = static_cast<char*>(collective.input.data),
       *target = static_cast<char*>(collective.output.data);
  return Exchange(
      nccl, comm, collective.description.dtype,
      [&](int r) { return next(source, collective.send_counts[r]); },
      [&](int r) { return next(target, collective.recv_counts[r]); });
}

absl::Status NcclGroup::Explain(const Collective& collective, absl::Status status) {
  // A peer, or this rank's owner, has given the reason.
  if (!this->status().ok()) return this->status();
  const FailureBoard::Missing missing = board_.Inquire(collective, absl::Now() + kInquiry);
  if (!this->status().ok()) return this->status();
  if (!missing.mismatch.ok()) return missing.mismatch;
  if (absl::IsDeadlineExceeded(status)) {
    return TimeoutError(missing.ranks.empty() ? "all ranks are in it, but its end" : missing.ranks);
  }
  if (missing.ranks.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()), "; ",
                                                  missing.ranks, " did not arrive"));
}

void NcclGroup::EndKernels() {
  communicator_->Abort();
  queue_->Await(absl::Now() + kAfterAbort).IgnoreError();
}

void NcclGroup::Watch() {
  NameThisThread(absl::StrCat("watch ", name()));
  const auto awake = [this]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(watch_mutex_) { return closed_ || news_; };
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
        // Also if no operation runs: peers' communicators wait for this one.
        communicator_->Abort();
      }
      told = true;
      board_.Watch().IgnoreError();  // answers peers that ask for this rank's position
    }
  }
}

absl::Status NcclGroup::NewsOfPeers() {
  RETURN_IF_ERROR(board_.Watch());
  absl::Status error = communicator_->AsyncError();
  if (error.ok()) return error;
  const std::string gone = board_.InquireWhoIsGone(absl::Now() + kInquiry);
  RETURN_IF_ERROR(board_.Watch());  // a peer may still give its reason
  if (gone.empty()) return error;
  return absl::Status(error.code(),
                      absl::StrCat(std::string(error.message()), "; ", gone, " does not answer"));
}

absl::StatusOr<std::unique_ptr<QueuedGroup>> NcclGroup::SplitOff(int color, int key,
                                                                 const std::string& name,
                                                                 absl::Time deadline) {
  NcclGroupOptions options = options_;
  options.name = absl::StrCat(options_.name, "/split", num_splits_++, ".", color);
  std::unique_ptr<NcclCommunicator> child;
  if (size() > 1) {
    RETURN_IF_ERROR(Await(Barrier({}), deadline));  // afterwards the worker submits nothing
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
  return std::unique_ptr<QueuedGroup>(new NcclGroup(options, name, std::move(child)));
}

}  // namespace

absl::StatusOr<int> FindNccl() {
  ASSIGN_OR_RETURN(const NcclLibrary* nccl, NcclLibrary::Get());
  int version = 0;
  RETURN_IF_ERROR(nccl->StatusOf("ncclGetVersion", nccl->get_version(&version), nullptr));
  return version;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeNcclGroup(const NcclGroupOptions& options,
                                                            absl::Time deadline) {
  TANDEM_CHECK(options.device.is_cuda());
  std::unique_ptr<NcclCommunicator> communicator;
  if (options.size > 1) {
    ASSIGN_OR_RETURN(communicator, NcclCommunicator::Connect(options, deadline));
  }
  return std::unique_ptr<ProcessGroup>(
      new NcclGroup(options, options.name, std::move(communicator)));
}

}  // namespace tandem::comm
