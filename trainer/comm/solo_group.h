// A process group of this rank alone, on any device. Collectives copy and are done.
// Thread rule: that of ProcessGroup.
#pragma once

#include <memory>
#include <string>

#include "trainer/comm/queued_group.h"

namespace tandem::comm {

class SoloGroup final : public QueuedGroup {
 public:
  explicit SoloGroup(std::string name, Device device = {})
      : QueuedGroup(std::move(name), 0, 1, absl::Seconds(60), device) {
    Open();
  }
  ~SoloGroup() override { Close(); }

  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) override {
    return Buffer::Allocate(num_bytes, device());
  }

 private:
  absl::StatusOr<std::unique_ptr<QueuedGroup>> SplitOff(int, int, const std::string& name,
                                                        absl::Time) override {
    return std::make_unique<SoloGroup>(name, device());
  }
  absl::Status Run(const Collective&, absl::Time) override {
    return absl::InternalError("a group of one runs nothing");
  }
  void AbortPeers(const absl::Status&) override {}
};

}  // namespace tandem::comm
