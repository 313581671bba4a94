// A TCP connection, or a socket that listens. Never blocks.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::comm {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  // Listens at `address` (rpc/address.h). Port 0 picks a free one.
  static absl::StatusOr<Socket> Listen(const std::string& address);
  // Connects to `address`. Errors name the address.
  static absl::StatusOr<Socket> Connect(const std::string& address, absl::Time deadline);
  // Takes a waiting connection; a closed socket if there is none.
  Socket Accept() const;

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // The local port.
  int port() const;
  void Close();

  enum class Moved { SOME, NOTHING, CLOSED };
  // Moves up to `size` bytes and advances `*done` by their number. CLOSED: the peer is gone.
  Moved Send(const char* data, size_t size, size_t* done) const;
  Moved Receive(char* data, size_t size, size_t* done) const;

  // Waits until the socket can be read or written. False at the deadline.
  bool AwaitReadable(absl::Time deadline) const;
  bool AwaitWritable(absl::Time deadline) const;

 private:
  int fd_ = -1;
};

}  // namespace tandem::comm
