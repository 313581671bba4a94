// Copies arrays to a device while the device computes. Any thread writes the elements into
// page-locked memory. The copy starts at once, on a queue of its own. The computing stream waits
// for the copy, on the device, when it receives the array. Blocks are reused in turn, so a copy
// never waits for work submitted meanwhile.
// Thread rule: the stream's thread, which also destroys the arrays; Upload::Send from any thread.
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

// One array in transit. Its Uploads outlive it, and it outlives every Send in progress.
class Upload {
 public:
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Host memory for the elements.
  void* host() const;
  // Starts the copy. Call once, when the elements are written, from any thread.
  void Send();
  // The device's memory, for the stream's next kernels. The memory is reused when the last owner is
  // gone. An error fails the stream. Call once.
  // REQUIRES: Send has returned.
  std::shared_ptr<Buffer> Receive();

 private:
  friend class Uploads;
  struct Block;
  Upload(Uploads* uploads, std::shared_ptr<Block> block, size_t num_bytes)
      : uploads_(uploads), block_(std::move(block)), num_bytes_(num_bytes) {}

  Uploads* const uploads_;
  std::shared_ptr<Block> block_;  // null after Receive
  const size_t num_bytes_;
  absl::Status sent_;
};

class Uploads {
 public:
  // `stream` outlives this.
  // REQUIRES: stream->on_cuda().
  explicit Uploads(Stream* stream);
  // Waits for copies in progress.
  // REQUIRES: no Upload is left.
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
  // Sizes of the last arrays; a much larger block is freed.
  std::array<size_t, 16> last_sizes_ = {};
  size_t num_begun_ = 0;
};

}  // namespace tandem
