// A handler serves one message of a server's transport and replies to it.
// Thread rule: a Reply from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/memory/buffer.h"
#include "rpc/payload.h"

namespace tandem::rpc {

// Completes one message exactly once, from any thread. Dropping an unused Reply answers Cancelled.
class Reply : public std::function<void(absl::StatusOr<Payload>)> {
 public:
  using Allocator = std::function<std::shared_ptr<Buffer>(size_t num_bytes)>;

  using function::function;
  Reply(function answer, Allocator allocate)
      : function(std::move(answer)), allocate_(std::move(allocate)) {}

  // Memory for a part of the answer. The transport does not copy the memory if it can avoid the
  // copy.
  std::shared_ptr<Buffer> Allocate(size_t num_bytes) const {
    return allocate_ ? allocate_(num_bytes) : Buffer::Allocate(num_bytes);
  }

 private:
  Allocator allocate_;
};
using Handler = std::function<void(Payload request, Reply reply)>;

}  // namespace tandem::rpc
