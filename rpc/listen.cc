#include "rpc/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::rpc {

namespace {

struct HostPort {
  std::string host, port;
};

absl::StatusOr<HostPort> SplitHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on \"", address, "\": expected HOST:PORT"));
  }
  HostPort split{address.substr(0, colon), address.substr(colon + 1)};
  if (split.host.size() >= 2 && split.host.front() == '[' && split.host.back() == ']') {
    split.host = split.host.substr(1, split.host.size() - 2);
  }
  return split;
}

// As the kernel knows it.
absl::StatusOr<int> PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return absl::InternalError(std::strerror(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

HeldAddress::~HeldAddress() { close(socket_); }

absl::StatusOr<std::unique_ptr<HeldAddress>> HeldAddress::Hold(const std::string& listen) {
  ASSIGN_OR_RETURN(const HostPort address, SplitHostPort(listen));
  const auto refused = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", listen, ": ", why));
  };
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (const int error = getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(), address.port.c_str(), &hints, &found);
      error != 0) {
    return refused(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  if (fd < 0) return refused(std::strerror(errno));
  std::unique_ptr<HeldAddress> held(new HeldAddress(fd));
  // Linux lets two sockets have one port if both say so and at most one listens; it picks such a port for nobody.
  const int one = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0) {
    if (errno == EADDRINUSE) return absl::UnavailableError(absl::StrCat("port in use: ", listen));
    return refused(std::strerror(errno));
  }
  ASSIGN_OR_RETURN(const int port, PortOf(fd));
  held->text_ = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
  return held;
}

}  // namespace tandem::rpc
