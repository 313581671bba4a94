// Arrays that come to a device beside what it computes: whoever has the elements writes them into page-locked memory, from any thread;
// the copy starts at once, on a queue of its own; and the computing stream waits for it, on the device, when it takes the array.
// Memory is used again, by turns, so that a copy never waits for what was submitted meanwhile.
// Thread rule: the stream's thread, which is also where an array's last owner goes; Upload::Send from any.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/event.h"
#include "kernels/memory/stream.h"

namespace tandem {

class Uploads;

// One array on its way. Outlives neither its Uploads nor a Send that is under way.
class Upload {
 public:
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Memory of the host for the elements.
  void* host() const;
  // Once, when they are there; any thread.
  void Send();
  // The device's memory, for the stream's next kernels; it is free again when the last owner is gone. An error fails the stream.
  // Once. REQUIRES: Send has returned.
  std::shared_ptr<Buffer> Receive();

 private:
  friend class Uploads;
  struct Block;
  Upload(Uploads* uploads, std::shared_ptr<Block> block, size_t num_bytes)
      : uploads_(uploads), block_(std::move(block)), num_bytes_(num_bytes) {}

  Uploads* const uploads_;
  std::shared_ptr<Block> block_;  // null once it was received
  const size_t num_bytes_;
  absl::Status sent_;
};

class Uploads {
 public:
  // REQUIRES: `stream`, which outlives this, is of a CUDA device.
  explicit Uploads(Stream* stream);
  // Waits for what is on its way. REQUIRES: no array is left.
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  std::unique_ptr<Upload> Begin(size_t num_bytes);

  size_t num_blocks() const { return blocks_.size(); }

 private:
  friend class Upload;
  Stream* const stream_;
  void* const queue_;
  std::vector<std::shared_ptr<Upload::Block>> blocks_;
  std::array<size_t, 16> last_sizes_ = {};  // of arrays begun; a block much larger than all of them goes
  size_t num_begun_ = 0;
};

}  // namespace tandem
