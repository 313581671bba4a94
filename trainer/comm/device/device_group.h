// The process group for arrays on a device. It runs over NCCL if every rank has NCCL and a card of
// its own, else through host memory. All ranks choose alike.
// Thread rule: the thread that launches on `host`.
#pragma once

#include <memory>
#include <string>

#include "rpc/store/store.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

enum class Transport {
  // NCCL; HOST if NCCL is absent, fails to start, or ranks share a card, which NCCL does not
  // support.
  ANY,
  NCCL,  // an error if NCCL cannot be used
  HOST,
};

struct DeviceGroupOptions {
  ProcessGroup* host = nullptr;  // a group of the same ranks, for arrays in host memory
  rpc::Store* store = nullptr;   // shared by all ranks; outlives the group
  std::string name;              // the group's, unique in the store
  Device device;                 // CUDA
  bool shares_device = false;    // another rank computes on the same card
  Transport transport = Transport::ANY;
  absl::Duration timeout = absl::Seconds(60);  // for each operation
};

struct DeviceGroup {
  std::unique_ptr<ProcessGroup> group;
  std::string note;  // for the reader: the transport and the reason for it
};

// Collective over options.host.
// REQUIRES: options.host has several ranks.
absl::StatusOr<DeviceGroup> MakeDeviceGroup(const DeviceGroupOptions& options, absl::Time deadline);

}  // namespace tandem::comm
