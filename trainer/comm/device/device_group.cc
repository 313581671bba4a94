#include "trainer/comm/device/device_group.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/device/nccl_group.h"
#include "trainer/comm/device/staged_group.h"

namespace tandem::comm {

namespace {

// Lets the collective's own error, which explains more, come first.
constexpr absl::Duration kMargin = absl::Seconds(1);

// Returns Ok on all ranks or on none. A rank whose own status is Ok then reports another rank's
// failure.
absl::Status Agree(ProcessGroup& host, const absl::Status& mine, absl::Time deadline) {
  uint8_t all_ok = mine.ok() ? 1 : 0;
  const CollectiveArgs args{
      .op = ReduceOp::MIN, .tag = 0x6e63636c, .timeout = deadline - absl::Now()};
  RETURN_IF_ERROR(
      host.Await(host.AllReduce(DenseView(&all_ok, Shape{1}), args), deadline + kMargin));
  if (all_ok != 0 || !mine.ok()) return mine;
  return absl::AbortedError("another rank cannot");
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> TryNccl(const DeviceGroupOptions& options,
                                                      absl::Time deadline) {
  absl::Status usable = FindNccl().status();
  if (usable.ok() && options.shares_device && options.transport == Transport::ANY) {
    usable = absl::FailedPreconditionError("several ranks share a card");
  }
  RETURN_IF_ERROR(Agree(*options.host, usable, deadline));
  auto group = MakeNcclGroup({.store = options.store,
                              .name = options.name,
                              .rank = options.host->rank(),
                              .size = options.host->size(),
                              .device = options.device,
                              .timeout = options.timeout},
                             deadline);
  // Ranks that NCCL keeps waiting reach the agreement at the deadline; the other ranks wait for
  // them.
  RETURN_IF_ERROR(Agree(*options.host, group.status(), deadline + options.timeout));
  return group;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> OverHost(const DeviceGroupOptions& options,
                                                       absl::Time deadline) {
  ProcessGroup& host = *options.host;
  ASSIGN_OR_RETURN(
      auto own, host.Split(0, host.rank(), absl::StrCat(options.name, " on the host"), deadline));
  return std::unique_ptr<ProcessGroup>(
      new StagedGroup(std::move(own), options.name, options.device, options.timeout));
}

}  // namespace

absl::StatusOr<DeviceGroup> MakeDeviceGroup(const DeviceGroupOptions& options,
                                            absl::Time deadline) {
  TANDEM_CHECK(options.device.is_cuda() && options.host->size() > 1);
  DeviceGroup made;
  std::string why = "as the job asks";
  if (options.transport != Transport::HOST) {
    auto group = TryNccl(options, deadline);
    if (group.ok()) {
      made = {*std::move(group), "gradients are summed by NCCL"};
      return made;
    }
    const absl::Status failed = group.status();
    if (options.transport == Transport::NCCL) {
      return absl::Status(failed.code(), absl::StrCat("NCCL: ", std::string(failed.message())));
    }
    why = std::string(failed.message());
  }
  // Ranks may have waited for NCCL until the deadline.
  ASSIGN_OR_RETURN(made.group, OverHost(options, absl::Now() + options.timeout));
  made.note = absl::StrCat("gradients are summed in the host's memory: ", why);
  return made;
}

}  // namespace tandem::comm
