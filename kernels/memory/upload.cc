#include "kernels/memory/upload.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem {

namespace {

constexpr size_t kSmallest = 64 << 10;

// Rounds up to one of four sizes per doubling, because batches differ in their numbers of rows.
size_t BlockBytes(size_t num_bytes) {
  const size_t least = std::max(num_bytes, kSmallest), quarter = std::bit_floor(least) / 4;
  return (least + quarter - 1) / quarter * quarter;
}

}  // namespace

// The memory of one array on the host and on the device.
struct Upload::Block {
  Block(Device device, size_t num_bytes)
      : num_bytes(num_bytes),
        pinned(cuda::AllocatePinnedMemory(num_bytes)),
        host(pinned != nullptr ? pinned : std::malloc(num_bytes)),
        device(Buffer::Allocate(num_bytes, device)),
        landed(device),
        used(device) {
    TANDEM_CHECK(host != nullptr) << "no memory for " << num_bytes
                                  << " bytes on their way to a device";
  }
  ~Block() {
    if (pinned != nullptr)
      cuda::FreePinnedMemory(pinned);
    else
      std::free(host);
  }

  const size_t num_bytes;
  void* const pinned;  // null: no memory can be locked; a copy from `host` may then block Send
  void* const host;
  const std::shared_ptr<Buffer> device;
  Event landed, used;  // landed: after the copy; used: after the last kernels that read it
  bool taken = false;
};

Uploads::Uploads(Stream* stream)
    : stream_(stream), queue_(cuda::MakeQueue(stream->device().index)) {
  TANDEM_CHECK(stream->on_cuda()) << "a CPU has its arrays";
}

Uploads::~Uploads() {
  // The kernels that read the copies run on the stream, whose cache gets the memory back.
  cuda::WaitForQueue(queue_).IgnoreError();
  cuda::DestroyQueue(queue_);
  for (const auto& block : blocks_)
    TANDEM_CHECK(!block->taken) << "an array outlives what brought it";
}

std::unique_ptr<Upload> Uploads::Begin(size_t num_bytes) {
  last_sizes_[num_begun_++ % last_sizes_.size()] = num_bytes;
  const size_t largest = *std::max_element(last_sizes_.begin(), last_sizes_.end());
  // The host may write only after the last copy is over. A failed device never reports that; the
  // stream reports the failure.
  const auto idle = [](const auto& block) {
    return !block->taken && block->landed.Reached().value_or(false);
  };
  // Frees blocks that are much too large: an evaluation may need all rows at once, a step only a
  // few.
  std::erase_if(blocks_, [&](const auto& block) {
    return idle(block) && block->num_bytes > std::max(kSmallest, 2 * largest);
  });
  std::shared_ptr<Upload::Block> free;
  for (const auto& block : blocks_) {
    if (block->num_bytes < num_bytes || !idle(block)) continue;
    if (free == nullptr || block->num_bytes < free->num_bytes) free = block;
  }
  if (free == nullptr) {
    // Frees blocks that are too small.
    std::erase_if(blocks_,
                  [&](const auto& block) { return block->num_bytes < num_bytes && idle(block); });
    free = std::make_shared<Upload::Block>(stream_->device(), BlockBytes(num_bytes));
    // Kernels of the memory's last owner may still read the device's block.
    stream_->Fail(free->used.Record(stream_->queue()));
    blocks_.push_back(free);
  }
  stream_->Fail(free->used.HoldUp(queue_));
  free->taken = true;
  return std::unique_ptr<Upload>(new Upload(this, std::move(free), num_bytes));
}

Upload::~Upload() {
  if (block_ != nullptr) block_->taken = false;  // nobody received the array
}

void* Upload::host() const { return block_->host; }

void Upload::Send() {
  if (block_->device->missing()) return;  // the stream reports the shortage of device memory
  sent_ = cuda::CopyAsync(block_->device->data(), block_->host, num_bytes_, uploads_->queue_);
  sent_.Update(block_->landed.Record(uploads_->queue_));
}

std::shared_ptr<Buffer> Upload::Receive() {
  Stream* const stream = uploads_->stream_;
  stream->Fail(sent_);
  stream->Fail(block_->landed.HoldUp(stream->queue()));
  void* const data = block_->device->data();
  const Device device = block_->device->device();
  const auto release = [stream, block = std::move(block_)] {
    stream->Fail(block->used.Record(stream->queue()));  // work submitted so far may read it
    block->taken = false;
  };
  return Buffer::Adopt(data, num_bytes_, release, device);
}

}  // namespace tandem
