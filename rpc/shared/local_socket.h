// A connection between two processes of one machine and one user: packets that arrive whole, and a descriptor that may go along.
// Names are abstract (no file, gone with the process) and belong to the network namespace, as host:port does: who can
// connect is on the same host. Both ends check that the other runs as the same user.
// Thread rule: Send and Shutdown from any thread, the rest from one. Nothing blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::rpc {

class LocalSocket {
 public:
  // Unavailable if the name is taken; InvalidArgument if it is too long.
  static absl::StatusOr<std::unique_ptr<LocalSocket>> Listen(const std::string& name);
  // Unavailable if nobody listens, or cannot take more; PermissionDenied if another user does.
  static absl::StatusOr<std::unique_ptr<LocalSocket>> Connect(const std::string& name);
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;
  ~LocalSocket();

  // The next connection to a listening socket; null if there is none, or it was another user's, or this process has no descriptor
  // left: such a connection is closed, so that its client need not wait for one.
  std::unique_ptr<LocalSocket> Accept();
  // False if the peer is gone, or takes nothing. `passed` (-1: none) stays the caller's.
  bool Send(const void* packet, size_t num_bytes, int passed = -1);
  enum class Received { PACKET, NOTHING, CLOSED };
  // A longer packet is cut to `max_bytes`. `passed`: takes a descriptor that came along, the caller's from then on; -1: none
  // came. Null: descriptors are refused.
  Received Receive(std::string* packet, size_t max_bytes, int* passed = nullptr);
  // Both ends see CLOSED from now on.
  void Shutdown();

  int fd() const { return fd_; }

 private:
  explicit LocalSocket(int fd) : fd_(fd) {}

  const int fd_;
  int spare_ = -1;  // a descriptor kept for closing a connection, where it listens
};

}  // namespace tandem::rpc
