#include "trainer/cli/process/job_secret.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "rpc/address.h"
#include "trainer/cli/process/failure.h"

namespace tandem::cli {

namespace {

constexpr char kVariable[] = "TANDEM_SECRET";

// Takes the variable's value and wipes it, here and in /proc/PID/environ.
std::optional<absl::StatusOr<rpc::Secret>> TakeFromEnvironment() {
  char* value = std::getenv(kVariable);
  if (value == nullptr) return std::nullopt;
  auto secret = rpc::Secret::FromText(value, kVariable);
  explicit_bzero(value, std::strlen(value));
  unsetenv(kVariable);
  return secret;
}

// Returns nothing if this process was given no secret.
absl::StatusOr<std::optional<rpc::Secret>> GivenSecret(const std::string& secret_file) {
  auto from_environment = TakeFromEnvironment();
  if (!secret_file.empty()) return rpc::Secret::Read(secret_file);
  if (!from_environment.has_value()) return std::nullopt;
  return *std::move(from_environment);
}

bool IsLoopbackIp(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  if (address->sa_family != AF_INET6) return false;
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
}

absl::Status CheckLoopback(const char* flag, const std::string& address) {
  if (address.empty() || IsLoopback(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, " ", address,
      " is reached from other machines, and this role has no secret: whoever reaches a job "
      "without one can read and change it. Make one with: (umask 077; head -c 32 /dev/urandom | "
      "base64 > FILE), and start every role "
      "of the job with --secret-file FILE, or use 127.0.0.1"));
}

}  // namespace

bool IsLoopback(const std::string& address) {
  const auto parsed = rpc::ParseAddress(address);
  if (!parsed.ok()) return false;
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(parsed->host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (!IsLoopbackIp(one->ai_addr)) return false;
  }
  return true;
}

absl::StatusOr<rpc::Secret> SecretOfLaunch(const std::string& secret_file) {
  ASSIGN_OR_RETURN(std::optional<rpc::Secret> given, GivenSecret(secret_file));
  return given.has_value() ? *std::move(given) : rpc::Secret::Draw();
}

absl::StatusOr<rpc::Credentials> CredentialsOfRole(const RoleAccess& access,
                                                   const std::string& name) {
  ASSIGN_OR_RETURN(const std::optional<rpc::Secret> given, GivenSecret(access.secret_file));
  if (given.has_value()) return rpc::Credentials(*given);
  RETURN_IF_ERROR(CheckLoopback("--master", access.master));
  RETURN_IF_ERROR(CheckLoopback("--listen", access.listen));
  RETURN_IF_ERROR(CheckLoopback("--advertise", access.advertise));
  std::fputs(RoleLine(name,
                      "warning: no secret: every process of this machine can read and change the "
                      "job (--secret-file, TANDEM_SECRET)")
                 .c_str(),
             stderr);
  return rpc::Credentials();
}

}  // namespace tandem::cli
