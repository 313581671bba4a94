#include "rpc/resolve.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "rpc/address.h"

namespace tandem::rpc {

namespace {

constexpr absl::Duration kAskAgain = absl::Milliseconds(500);

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// True if the address is one of this machine's: only such an address can be bound.
bool IsOwn(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool bound = fd >= 0 && bind(fd, address.ai_addr, address.ai_addrlen) == 0;
  if (fd >= 0) close(fd);
  return bound;
}

}  // namespace

void FreeAddresses::operator()(addrinfo* list) const { freeaddrinfo(list); }

absl::StatusOr<AddressList> Resolve(const std::string& address, int type, int flags) {
  ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const int error =
      getaddrinfo(parsed.host.c_str(), absl::StrCat(parsed.port).c_str(), &hints, &found);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("no host ", parsed.host, ": ", gai_strerror(error)));
  return AddressList(found);
}

absl::Status AwaitAddress(const std::string& address, absl::Time deadline,
                          const std::function<absl::Status(const std::string& why)>& go_on) {
  while (true) {
    const absl::Status found = Resolve(address, SOCK_STREAM).status();
    if (found.ok() || absl::Now() >= deadline) return found;
    RETURN_IF_ERROR(go_on(std::string(found.message())));
    absl::SleepFor(std::min(kAskAgain, deadline - absl::Now()));
  }
}

absl::StatusOr<std::string> HostTowards(const std::string& address) {
  ASSIGN_OR_RETURN(const AddressList found, Resolve(address, SOCK_DGRAM));
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const absl::Cleanup close_socket = [fd] {
    if (fd >= 0) close(fd);
  };
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  char host[NI_MAXHOST];
  if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), length, host, sizeof host, nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return absl::UnavailableError(absl::StrCat("no way to ", address, ": ", std::strerror(errno)));
  return found->ai_family == AF_INET6 ? absl::StrCat("[", host, "]") : std::string(host);
}

std::string FullHostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "";
  const auto found = Resolve(absl::StrCat(name, ":0"), SOCK_STREAM, AI_CANONNAME);
  if (!found.ok() || (*found)->ai_canonname == nullptr) return "";
  for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) {
    if (IsLoopback(*one->ai_addr) || !IsOwn(*one)) return "";
  }
  const std::string full = (*found)->ai_canonname;
  return full.find('.') == std::string::npos ? "" : full;
}

absl::StatusOr<std::string> ReachedAt(const std::string& listen, const std::string& towards) {
  ASSIGN_OR_RETURN(const Address address, ParseAddress(listen));
  if (!address.stands_for_all()) return listen;
  std::string host = FullHostName();
  if (host.empty()) {
    ASSIGN_OR_RETURN(host, HostTowards(towards));
  }
  return absl::StrCat(host, ":", address.port);
}

}  // namespace tandem::rpc
