// A process group of a device over one of the host: arrays are copied to page-locked memory of the host, go through the host's
// collective, and are copied back. For ranks that NCCL does not join: several on one card, or a machine without NCCL. Slower than
// NCCL by the two copies, and with the bits of the host's group (ring_order.h). Thread rule: as ProcessGroup.
#pragma once

#include <memory>
#include <string>

#include "trainer/comm/device_queue.h"
#include "trainer/comm/queued_group.h"

namespace tandem::comm {

class StagedGroup final : public QueuedGroup {
 public:
  // `host`: of the same ranks, and this group's alone.
  StagedGroup(std::unique_ptr<ProcessGroup> host, std::string name, Device device, absl::Duration timeout);
  ~StagedGroup() override;

  absl::StatusOr<std::unique_ptr<ProcessGroup>> Split(int color, int key, const std::string& name,
                                                      absl::Time deadline) override;
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) override;

 private:
  class Stage;  // page-locked memory that grows

  absl::Status Run(const Collective& collective, absl::Time deadline) override;
  absl::Status Relay(const Collective& collective, absl::Time deadline);
  void AbortPeers(const absl::Status& reason) override;
  Work RunOnHost(const Collective& collective, const ArrayView& output, const ArrayView& input, absl::Duration timeout);

  const std::unique_ptr<ProcessGroup> host_;
  std::unique_ptr<Stage> input_, output_;  // null in a group of one, as the queue, which is gone before them
  std::unique_ptr<DeviceQueue> queue_;
};

}  // namespace tandem::comm
