// Memory that processes of one host map together, and futex words for waiting inside it. A segment
// has no name: other processes receive it as a file descriptor through a local socket. The segment
// is gone with the last process, however that process ends. Nobody can shrink a segment.
// Thread rule: one owner; the bytes follow the owner's protocol.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::rpc {

class SharedMemory {
 public:
  // Creates a zeroed segment of sealed size. WHEN_TOUCHED takes memory page by page. AT_ONCE takes
  // all memory now, so that a shortage is an error here and no SIGBUS later. ResourceExhausted says
  // how much was wanted.
  enum class Pages { WHEN_TOUCHED, AT_ONCE };
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(size_t num_bytes,
                                                              Pages pages = Pages::WHEN_TOUCHED);
  // Maps a segment that another process created. Takes ownership of `fd`. FailedPrecondition if the
  // segment does not have `num_bytes` bytes, or if its size is not sealed.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Adopt(int fd, size_t num_bytes);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // The descriptor of a segment that this process created, for passing to a peer; otherwise -1.
  int fd() const { return fd_; }
  char* data() const { return data_; }
  size_t num_bytes() const { return num_bytes_; }

 private:
  SharedMemory() = default;
  absl::Status Map(int fd, size_t num_bytes);

  int fd_ = -1;
  char* data_ = nullptr;
  size_t num_bytes_ = 0;
};

// Sleeps while *word == expected, at most `timeout`. May wake early. Works across processes.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout);
// Wakes all sleepers of the word.
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace tandem::rpc
