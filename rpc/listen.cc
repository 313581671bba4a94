#include "rpc/listen.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "rpc/address.h"

namespace tandem::rpc {

namespace {

// Returns the bound address in the kernel's form: "127.0.0.1 5000".
absl::StatusOr<std::string> BoundAddress(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return absl::InternalError(std::strerror(errno));
  const int error = getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host,
                                port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return absl::InternalError(gai_strerror(error));
  return absl::StrCat(host, " ", port);
}

absl::Status PortInUse(const std::string& listen) {
  return absl::UnavailableError(absl::StrCat("port in use: ", listen));
}

}  // namespace

HeldAddress::~HeldAddress() {
  close(socket_);
  if (claim_ >= 0) close(claim_);
}

absl::StatusOr<std::unique_ptr<HeldAddress>> HeldAddress::Hold(const std::string& listen) {
  ASSIGN_OR_RETURN(const Address address, ParseAddress(listen));
  const auto refused = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", listen, ": ", why));
  };
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (const int error =
          getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
      error != 0) {
    return refused(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  if (fd < 0) return refused(std::strerror(errno));
  std::unique_ptr<HeldAddress> held(new HeldAddress(fd));
  // Linux lets two sockets bind one port if both set SO_REUSEADDR and at most one listens. Linux
  // never picks such a port as a free one.
  const int one = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
      bind(fd, found->ai_addr, found->ai_addrlen) != 0) {
    if (errno == EADDRINUSE) return PortInUse(listen);
    return refused(std::strerror(errno));
  }
  ASSIGN_OR_RETURN(const std::string bound, BoundAddress(fd));
  held->text_ =
      absl::StrCat(listen.substr(0, listen.rfind(':')), ":", bound.substr(bound.rfind(' ') + 1));
  return held;
}

absl::StatusOr<std::unique_ptr<HeldAddress>> HeldAddress::HoldAlone(const std::string& listen) {
  ASSIGN_OR_RETURN(auto held, Hold(listen));
  ASSIGN_OR_RETURN(const std::string bound, BoundAddress(held->socket_));
  held->claim_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // An abstract name has no file. The kernel drops it with its process, and it is visible in the
  // same network namespace as the port.
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = absl::StrCat("tandem-listens-", bound);
  text.copy(name.sun_path + 1, sizeof name.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (held->claim_ < 0 || bind(held->claim_, reinterpret_cast<const sockaddr*>(&name), size) != 0) {
    if (errno == EADDRINUSE) return PortInUse(listen);
    return absl::UnavailableError(
        absl::StrCat("cannot claim ", held->text(), ": ", std::strerror(errno)));
  }
  return held;
}

}  // namespace tandem::rpc
