#include "trainer/comm/device/staged_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem::comm {

namespace {

// Longer than the host group's own deadline, whose error names the missing ranks.
constexpr absl::Duration kHostMargin = absl::Seconds(5);

}  // namespace

class StagedGroup::Stage {
 public:
  ~Stage() {
    if (memory_ != nullptr) cuda::FreePinnedMemory(memory_);
  }
  // Returns an array like `view`; an empty view stays empty. ResourceExhausted if there is no
  // memory for it.
  absl::StatusOr<ArrayView> Like(const ArrayView& view) {
    if (view.data == nullptr) return view;
    if (view.num_bytes() > num_bytes_) {
      if (memory_ != nullptr) cuda::FreePinnedMemory(memory_);
      memory_ = cuda::AllocatePinnedMemory(view.num_bytes());
      num_bytes_ = memory_ == nullptr ? 0 : view.num_bytes();
      if (memory_ == nullptr)
        return absl::ResourceExhaustedError(
            absl::StrCat("no ", view.num_bytes(), " bytes of page-locked memory"));
    }
    return ArrayView(memory_, view.dtype, view.shape);
  }

 private:
  void* memory_ = nullptr;
  size_t num_bytes_ = 0;
};

StagedGroup::StagedGroup(std::unique_ptr<ProcessGroup> host, std::string name, Device device,
                         absl::Duration timeout)
    : QueuedGroup(std::move(name), host->rank(), host->size(), timeout, device),
      host_(std::move(host)) {
  TANDEM_CHECK(device.is_cuda());
  if (size() > 1) {
    queue_ = std::make_unique<DeviceQueue>(device);
    input_ = std::make_unique<Stage>();
    output_ = std::make_unique<Stage>();
  }
  Open();
}

StagedGroup::~StagedGroup() { Close(); }

void StagedGroup::AbortPeers(const absl::Status& reason) { host_->Abort(reason); }

// Copies are short and end by themselves. Run waits for them even after a failure, because the
// caller owns the arrays again afterwards.
absl::Status StagedGroup::Run(const Collective& collective, absl::Time deadline) {
  absl::Status status = Relay(collective, deadline);
  if (!status.ok()) queue_->Await(absl::Now() + kHostMargin).IgnoreError();
  return status;
}

absl::Status StagedGroup::Relay(const Collective& collective, absl::Time deadline) {
  const ArrayView &to = collective.output, &from = collective.input;
  // A part at the begin of the whole array is not the array.
  const bool in_place = to.data != nullptr && to.data == from.data && to.shape == from.shape;
  ASSIGN_OR_RETURN(const ArrayView output, output_->Like(to));
  ASSIGN_OR_RETURN(const ArrayView input,
                   in_place ? absl::StatusOr<ArrayView>(output) : input_->Like(from));
  RETURN_IF_ERROR(queue_->After(collective.ready.get()));
  if (from.data != nullptr) RETURN_IF_ERROR(queue_->Copy(input.data, from.data, from.num_bytes()));
  RETURN_IF_ERROR(queue_->Await(deadline));
  RETURN_IF_ERROR(host_->Await(RunOnHost(collective, output, input, deadline - absl::Now()),
                               deadline + kHostMargin));
  if (to.data != nullptr) RETURN_IF_ERROR(queue_->Copy(to.data, output.data, to.num_bytes()));
  return queue_->Await(absl::Now() + timeout());
}

Work StagedGroup::RunOnHost(const Collective& collective, const ArrayView& output,
                            const ArrayView& input, absl::Duration timeout) {
  const Description& what = collective.description;
  const CollectiveArgs args{.op = what.op,
                            .order = what.order,
                            .tag = what.tag,
                            .timeout = std::max(timeout, absl::Milliseconds(1))};
  switch (what.kind) {
    case CollectiveKind::ALL_REDUCE:
      return host_->AllReduce(output, args);
    case CollectiveKind::ALL_GATHER:
      return host_->AllGather(output, input, args);
    case CollectiveKind::REDUCE_SCATTER:
      return host_->ReduceScatter(output, input, args);
    case CollectiveKind::BROADCAST:
      return host_->Broadcast(output, what.root, args);
    case CollectiveKind::ALL_TO_ALL_V:
      return host_->AllToAllV(output, collective.recv_counts, input, collective.send_counts, args);
    case CollectiveKind::SEND:
      return host_->Send(input, what.root, args);
    case CollectiveKind::SEND_RECV:
      return host_->SendRecv(input, what.root, output, what.source, args);
    case CollectiveKind::RECV:
      break;
  }
  return host_->Recv(output, what.root, args);
}

absl::StatusOr<std::unique_ptr<QueuedGroup>> StagedGroup::SplitOff(int color, int key,
                                                                   const std::string& name,
                                                                   absl::Time deadline) {
  // Afterwards the worker launches nothing on the host group.
  RETURN_IF_ERROR(Await(Barrier({}), deadline));
  ASSIGN_OR_RETURN(auto host,
                   host_->Split(color, key, absl::StrCat(name, " on the host"), deadline));
  return std::unique_ptr<QueuedGroup>(new StagedGroup(std::move(host), name, device(), timeout()));
}

absl::StatusOr<std::shared_ptr<Buffer>> StagedGroup::Allocate(size_t num_bytes) {
  RETURN_IF_ERROR(status());
  return Buffer::Allocate(num_bytes, device());
}

}  // namespace tandem::comm
