#include "trainer/comm/net/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "rpc/resolve.h"

namespace tandem::comm {

namespace {

absl::Status ErrorOf(const std::string& what, const std::string& address, int error) {
  return absl::UnavailableError(absl::StrCat(what, " ", address, ": ", std::strerror(error)));
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

bool AwaitEvent(int fd, short events, absl::Time deadline) {
  while (true) {
    const int64_t left =
        std::clamp<int64_t>(absl::ToInt64Milliseconds(deadline - absl::Now()), 0, 1000);
    pollfd polled{fd, events, 0};
    if (poll(&polled, 1, static_cast<int>(left)) > 0) return true;
    if (absl::Now() >= deadline) return false;
  }
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Socket::~Socket() { Close(); }

void Socket::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

absl::StatusOr<Socket> Socket::Listen(const std::string& address) {
  ASSIGN_OR_RETURN(const rpc::AddressList found, rpc::Resolve(address, SOCK_STREAM, AI_PASSIVE));
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return ErrorOf("cannot listen at", address, errno);
  SetOption(socket.fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.fd_, found->ai_addr, found->ai_addrlen) != 0 || listen(socket.fd_, 256) != 0)
    return ErrorOf("cannot listen at", address, errno);
  return socket;
}

absl::StatusOr<Socket> Socket::Connect(const std::string& address, absl::Time deadline) {
  ASSIGN_OR_RETURN(const rpc::AddressList found, rpc::Resolve(address, SOCK_STREAM));
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return ErrorOf("cannot connect to", address, errno);
  SetOption(socket.fd_, IPPROTO_TCP, TCP_NODELAY, 1);
  if (connect(socket.fd_, found->ai_addr, found->ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return ErrorOf("cannot connect to", address, errno);
  if (!socket.AwaitWritable(deadline))
    return absl::DeadlineExceededError(absl::StrCat("no answer from ", address));
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.fd_, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return ErrorOf("cannot connect to", address, error);
  return socket;
}

Socket Socket::Accept() const {
  Socket accepted(accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.is_open()) SetOption(accepted.fd_, IPPROTO_TCP, TCP_NODELAY, 1);
  return accepted;
}

int Socket::port() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Socket::Moved Socket::Send(const char* data, size_t size, size_t* done) const {
  const ssize_t moved = send(fd_, data, size, MSG_NOSIGNAL);
  if (moved > 0) {
    *done += static_cast<size_t>(moved);
    return Moved::SOME;
  }
  return moved < 0 && (errno == EAGAIN || errno == EINTR) ? Moved::NOTHING : Moved::CLOSED;
}

Socket::Moved Socket::Receive(char* data, size_t size, size_t* done) const {
  const ssize_t moved = recv(fd_, data, size, 0);
  if (moved > 0) {
    *done += static_cast<size_t>(moved);
    return Moved::SOME;
  }
  return moved < 0 && (errno == EAGAIN || errno == EINTR) ? Moved::NOTHING : Moved::CLOSED;
}

bool Socket::AwaitReadable(absl::Time deadline) const { return AwaitEvent(fd_, POLLIN, deadline); }
bool Socket::AwaitWritable(absl::Time deadline) const { return AwaitEvent(fd_, POLLOUT, deadline); }

}  // namespace tandem::comm
