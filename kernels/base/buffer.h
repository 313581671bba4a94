// A block of memory, 64-byte aligned, freed with its last owner; `Allocate` makes private memory and `Adopt` wraps
// memory that somebody else frees (a shared-memory bucket, a receive slice). Thread rule: the handle is shared freely;
// the bytes follow their user's rule.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "kernels/base/device.h"

namespace tandem {

class Buffer {
 public:
  // Uninitialised memory. CHECKs that the system gives it.
  static std::shared_ptr<Buffer> Allocate(size_t num_bytes, Device device = {});
  // `release` is called once, when the last owner goes.
  static std::shared_ptr<Buffer> Adopt(void* data, size_t num_bytes, std::function<void()> release);

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  size_t num_bytes() const { return num_bytes_; }

 private:
  Buffer(void* data, size_t num_bytes, std::function<void()> release)
      : data_(data), num_bytes_(num_bytes), release_(std::move(release)) {}

  void* data_;
  size_t num_bytes_;
  std::function<void()> release_;
};

}  // namespace tandem
