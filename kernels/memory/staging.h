// Page-locked memory on its way to a device: what the host wants to copy is put down here, and the host goes on while the device takes
// it. A block is used again when the device has come past it. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/memory/event.h"

namespace tandem {

class Staging {
 public:
  // Of a CUDA device and one of its queues, which outlives it.
  Staging(Device device, void* queue) : device_(device), queue_(queue) {}
  // REQUIRES: the queue is idle.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Submits the copy of `from` to the device's memory; `from` is free when the call returns.
  absl::Status Copy(void* to, const void* from, size_t num_bytes);

 private:
  struct Block {
    void* memory;
    size_t num_bytes;
    std::unique_ptr<Event> taken;
  };
  // Room for `num_bytes` that the device has taken, or null if there is no page-locked memory.
  absl::StatusOr<Block*> Find(size_t num_bytes);

  const Device device_;
  void* const queue_;
  std::vector<Block> blocks_;
  size_t next_ = 0;  // the block that was given out longest ago, roughly
};

}  // namespace tandem
