#include "kernels/memory/staging.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/base/status_macros.h"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem {

namespace {

// kMaxBlocks: more copies than a step makes
constexpr size_t kMaxBlocks = 128, kSmallest = 64 << 10;
// Splits large copies: one piece is filled while another is copied.
constexpr size_t kPiece = 4 << 20;

}  // namespace

Staging::~Staging() {
  for (const Block& block : blocks_) cuda::FreePinnedMemory(block.memory);
}

absl::Status Staging::Copy(void* to, const void* from, size_t num_bytes) {
  for (size_t done = 0; done < num_bytes; done += kPiece) {
    const size_t piece = std::min(kPiece, num_bytes - done);
    char* const target = static_cast<char*>(to) + done;
    const char* source = static_cast<const char*>(from) + done;
    ASSIGN_OR_RETURN(Block* const block, Find(piece));
    if (block == nullptr) {                         // the runtime's own copy, which waits
      RETURN_IF_ERROR(cuda::WaitForQueue(queue_));  // because the copy itself has no deadline
      RETURN_IF_ERROR(cuda::CopyAsync(target, source, piece, queue_));
      RETURN_IF_ERROR(cuda::WaitForQueue(queue_));
      continue;
    }
    std::memcpy(block->memory, source, piece);
    RETURN_IF_ERROR(cuda::CopyAsync(target, block->memory, piece, queue_));
    RETURN_IF_ERROR(block->taken->Record(queue_));
  }
  return absl::OkStatus();
}

absl::StatusOr<Staging::Block*> Staging::Find(size_t num_bytes) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[(next_ + i) % blocks_.size()];
    if (block.num_bytes < num_bytes) continue;
    ASSIGN_OR_RETURN(const bool taken, block.taken->Reached());
    if (!taken) continue;
    next_ = (next_ + i + 1) % blocks_.size();
    return &block;
  }
  if (blocks_.size() >= kMaxBlocks) {
    RETURN_IF_ERROR(cuda::WaitForQueue(queue_));
    for (Block& block : blocks_) {
      if (block.num_bytes >= num_bytes) return &block;
    }
    // All blocks are too small; a larger one takes the place.
    cuda::FreePinnedMemory(blocks_.front().memory);
    blocks_.erase(blocks_.begin());
  }
  const size_t room = std::max(kSmallest, std::bit_ceil(num_bytes));
  void* const memory = cuda::AllocatePinnedMemory(room);
  if (memory == nullptr) return nullptr;
  blocks_.push_back({memory, room, std::make_unique<Event>(device_)});
  return &blocks_.back();
}

}  // namespace tandem
