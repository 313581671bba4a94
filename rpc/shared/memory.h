// A piece of memory that processes of one host map together, and the futex words by which they wait inside it. A segment has no name:
// it reaches other processes as a descriptor, through a local socket, and is gone with the last of them however they end. Nobody can
// cut it short.
// Thread rule: one owner; the bytes follow the protocol that the owner puts into them.
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
  // A zeroed segment, whose size is sealed. Memory is taken only where it is touched, or all at once, so that too little of it is an
  // error here and not a SIGBUS later: ResourceExhausted says how much was wanted.
  enum class Pages { WHEN_TOUCHED, AT_ONCE };
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(size_t num_bytes, Pages pages = Pages::WHEN_TOUCHED);
  // Maps a segment that another process created; takes `fd` over. FailedPrecondition if it has not `num_bytes`,
  // or its size is not sealed.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Adopt(int fd, size_t num_bytes);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // Of a segment that this process created, to be passed to another; -1 of any other.
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

// Sleeps while *word == expected, at most `timeout`; may wake early. Works across processes.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout);
// Wakes everybody who sleeps on the word.
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace tandem::rpc
