// A piece of memory that processes of one host map together, and the futex words by which they wait inside it.
// Whoever creates a named segment unlinks its name as soon as everybody has opened it: the mappings live on, nothing stays in
// /dev/shm, even when a process is killed later. A creator that is closed earlier unlinks the name too. A segment without a name
// reaches its other process as a descriptor, takes memory only where it is touched, and cannot be cut short by either.
// Thread rule: one owner; the bytes follow the protocol that the owner puts into them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::rpc {

class SharedMemory {
 public:
  // A zeroed segment, its pages reserved so that a full /dev/shm is an error here and not a SIGBUS later. A segment that
  // a killed process left behind under this name is replaced. `name` holds no slash and at most 200 characters.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(const std::string& name, size_t num_bytes);
  // Maps a segment that another process created. FailedPrecondition if it has not `num_bytes`.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Open(const std::string& name, size_t num_bytes);

  // A zeroed segment without a name, whose size is sealed. Pages are not reserved: they do not come out of /dev/shm.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> CreateAnonymous(size_t num_bytes);
  // Maps a segment that another process made with CreateAnonymous; takes `fd` over. FailedPrecondition if it has not `num_bytes`,
  // or its size is not sealed.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Adopt(int fd, size_t num_bytes);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // Removes the name; later opens fail, mappings stay. Does nothing the second time, or at a process that only opened it.
  void Unlink();

  // Of a segment made by CreateAnonymous, to be passed to another process; -1 of any other.
  int fd() const { return fd_; }
  char* data() const { return data_; }
  size_t num_bytes() const { return num_bytes_; }

 private:
  SharedMemory(std::string name, bool owns_name) : name_(std::move(name)), owns_name_(owns_name) {}
  absl::Status Map(int fd, size_t num_bytes);

  const std::string name_;
  bool owns_name_;
  int fd_ = -1;
  char* data_ = nullptr;
  size_t num_bytes_ = 0;
};

// Sleeps while *word == expected, at most `timeout`; may wake early. Works across processes.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout);
// Wakes everybody who sleeps on the word.
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace tandem::rpc
