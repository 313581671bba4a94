// The process group for arrays on a device: over NCCL where every rank has it and a card of its own, else through the memory of the
// host. All ranks choose alike. Thread rule: the thread that launches on `host`.
#pragma once

#include <memory>
#include <string>

#include "rpc/store/store.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

enum class Transport {
  ANY,   // NCCL, or the host if NCCL is not there, does not start, or ranks share a card, which NCCL does not support
  NCCL,  // an error where it cannot be
  HOST,
};

struct DeviceGroupOptions {
  ProcessGroup* host = nullptr;  // of the same ranks, for arrays of the host
  rpc::Store* store = nullptr;   // of all ranks; outlives the group
  std::string name;              // the group's, unique in the store
  Device device;                 // CUDA
  bool shares_device = false;    // another rank computes on the same card
  Transport transport = Transport::ANY;
  absl::Duration timeout = absl::Seconds(60);  // of each operation
};

struct DeviceGroup {
  std::unique_ptr<ProcessGroup> group;
  std::string note;  // for the reader: what it runs over and why
};

// Collective over options.host. REQUIRES: it has several ranks.
absl::StatusOr<DeviceGroup> MakeDeviceGroup(const DeviceGroupOptions& options, absl::Time deadline);

}  // namespace tandem::comm
