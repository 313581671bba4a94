#include "rpc/shared/local_socket.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::rpc {

namespace {

constexpr int kBacklog = 1024;

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
};

absl::StatusOr<Address> AbstractAddress(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof address.name.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is too long for the name of a local socket"));
  }
  // A leading zero makes the name abstract.
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

absl::Status Failed(const char* what, const std::string& name) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " local socket '", name, "': ", std::strerror(errno)));
}

bool PeerIsThisUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

int NewSocket() { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

}  // namespace

LocalSocket::~LocalSocket() {
  if (fd_ >= 0) close(fd_);
  if (spare_ >= 0) close(spare_);
}

absl::StatusOr<std::unique_ptr<LocalSocket>> LocalSocket::Listen(const std::string& name) {
  ASSIGN_OR_RETURN(const Address address, AbstractAddress(name));
  std::unique_ptr<LocalSocket> socket(new LocalSocket(NewSocket()));
  if (socket->fd_ < 0 ||
      bind(socket->fd_, reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0 ||
      listen(socket->fd_, kBacklog) != 0) {
    return Failed("listen at", name);
  }
  socket->spare_ = NewSocket();
  return socket;
}

absl::StatusOr<std::unique_ptr<LocalSocket>> LocalSocket::Connect(const std::string& name) {
  ASSIGN_OR_RETURN(const Address address, AbstractAddress(name));
  std::unique_ptr<LocalSocket> socket(new LocalSocket(NewSocket()));
  if (socket->fd_ < 0 ||
      connect(socket->fd_, reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) {
    return Failed("connect to", name);
  }
  if (!PeerIsThisUser(socket->fd_)) {
    return absl::PermissionDeniedError(
        absl::StrCat("local socket '", name, "' belongs to another user"));
  }
  return socket;
}

std::unique_ptr<LocalSocket> LocalSocket::Accept() {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
    if (spare_ >= 0) close(spare_);
    if (const int refused = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); refused >= 0)
      close(refused);
    spare_ = NewSocket();
  }
  if (fd < 0) return nullptr;
  std::unique_ptr<LocalSocket> accepted(new LocalSocket(fd));
  return PeerIsThisUser(fd) ? std::move(accepted) : nullptr;
}

bool LocalSocket::Send(const void* packet, size_t num_bytes, int passed) {
  iovec bytes{const_cast<void*>(packet), num_bytes};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &passed, sizeof passed);
  }
  ssize_t sent;
  do {
    sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(num_bytes);
}

LocalSocket::Received LocalSocket::Receive(std::string* packet, size_t max_bytes, int* passed) {
  if (passed != nullptr) *passed = -1;
  packet->resize(max_bytes);
  iovec bytes{packet->data(), packet->size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed != nullptr) {
    message.msg_control = control;
    // No room for a second descriptor, which nobody would close.
    message.msg_controllen = CMSG_LEN(sizeof(int));
  }
  ssize_t received;
  do {
    received = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  packet->resize(received > 0 ? static_cast<size_t>(received) : 0);
  if (received < 0)
    return errno == EAGAIN || errno == EWOULDBLOCK ? Received::NOTHING : Received::CLOSED;
  const cmsghdr* header = passed != nullptr ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS)
    std::memcpy(passed, CMSG_DATA(header), sizeof *passed);
  return received == 0 ? Received::CLOSED : Received::PACKET;
}

void LocalSocket::Shutdown() { shutdown(fd_, SHUT_RDWR); }

}  // namespace tandem::rpc
