// Page-locked memory for copies to a device. The host writes its bytes here and goes on while the
// device copies them. A block is reused when the device has copied it.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/memory/event.h"

namespace tandem {

class Staging {
 public:
  // `queue` is a queue of `device`, a CUDA device, and outlives the staging.
  Staging(Device device, void* queue) : device_(device), queue_(queue) {}
  // REQUIRES: the queue is idle.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Submits a copy of `from` to the device's memory. `from` is free when the call returns.
  absl::Status Copy(void* to, const void* from, size_t num_bytes);

 private:
  struct Block {
    void* memory;
    size_t num_bytes;
    std::unique_ptr<Event> taken;
  };
  // Room for `num_bytes` that the device no longer needs. Null if there is no page-locked memory.
  absl::StatusOr<Block*> Find(size_t num_bytes);

  const Device device_;
  void* const queue_;
  std::vector<Block> blocks_;
  size_t next_ = 0;  // roughly the block that was given out longest ago
};

}  // namespace tandem
