// A connection between two processes of one machine and one user. Packets arrive whole, and a file
// descriptor may travel with a packet. Names are abstract: no file, and gone with the process.
// Names belong to the network namespace, like host:port, so a process that can connect runs on the
// same host. Both ends check that the peer runs as the same user.
// Thread rule: Send and Shutdown from any thread, the rest from one. Nothing blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::rpc {

class LocalSocket {
 public:
  // Unavailable if the name is taken; InvalidArgument if the name is too long.
  static absl::StatusOr<std::unique_ptr<LocalSocket>> Listen(const std::string& name);
  // Unavailable if nobody listens or the listener takes no more connections. PermissionDenied if
  // another user listens.
  static absl::StatusOr<std::unique_ptr<LocalSocket>> Connect(const std::string& name);
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;
  ~LocalSocket();

  // The next connection to a listening socket. Null if there is none. Also null, after closing the
  // connection, if it comes from another user or this process has no file descriptor left. Closing
  // spares the client a wait.
  std::unique_ptr<LocalSocket> Accept();
  // Returns false if the peer is gone or its queue is full. The caller keeps `passed` (-1: none).
  bool Send(const void* packet, size_t num_bytes, int passed = -1);
  enum class Received { PACKET, NOTHING, CLOSED };
  // Truncates a longer packet to `max_bytes`. `passed` receives the descriptor that came with the
  // packet, which the caller then owns; -1: none came. A null `passed` refuses descriptors.
  Received Receive(std::string* packet, size_t max_bytes, int* passed = nullptr);
  // Ends the connection: both ends see CLOSED from now on.
  void Shutdown();

  int fd() const { return fd_; }

 private:
  explicit LocalSocket(int fd) : fd_(fd) {}

  const int fd_;
  int spare_ = -1;  // a spare descriptor for closing a connection; listening sockets only
};

}  // namespace tandem::rpc
