// A device process group over a host process group. It copies arrays to page-locked host memory,
// runs the host's collective, and copies the results back. For ranks that NCCL cannot join: several
// on one card, or a machine without NCCL. It is slower than NCCL by the two copies and has the bits
// of the host group (ring_order.h).
// Thread rule: that of ProcessGroup.
#pragma once

#include <memory>
#include <string>

#include "trainer/comm/device_queue.h"
#include "trainer/comm/queued_group.h"

namespace tandem::comm {

class StagedGroup final : public QueuedGroup {
 public:
  // REQUIRES: `host` has the same ranks and serves only this group.
  StagedGroup(std::unique_ptr<ProcessGroup> host, std::string name, Device device,
              absl::Duration timeout);
  ~StagedGroup() override;

  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) override;

 private:
  class Stage;  // page-locked memory that grows

  absl::StatusOr<std::unique_ptr<QueuedGroup>> SplitOff(int color, int key, const std::string& name,
                                                        absl::Time deadline) override;
  absl::Status Run(const Collective& collective, absl::Time deadline) override;
  absl::Status Relay(const Collective& collective, absl::Time deadline);
  void AbortPeers(const absl::Status& reason) override;
  Work RunOnHost(const Collective& collective, const ArrayView& output, const ArrayView& input,
                 absl::Duration timeout);

  const std::unique_ptr<ProcessGroup> host_;
  // Null in a group of one, like queue_, which is destroyed before them.
  std::unique_ptr<Stage> input_, output_;
  std::unique_ptr<DeviceQueue> queue_;
};

}  // namespace tandem::comm
