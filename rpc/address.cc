#include "rpc/address.h"

#include <arpa/inet.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::rpc {

namespace {

absl::Status Wrong(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "address \"", text, "\": ", why,
      "; expected HOST:PORT, such as 127.0.0.1:5000, trainer-0.jobs:5000 or [::1]:5000"));
}

bool IsIpv6(const std::string& host) {
  in6_addr ignored;
  return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &ignored) == 1;
}

bool IsNameOrIpv4(const std::string& host) {
  for (const char c : host) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '.' || c == '_';
    if (!fine) return false;
  }
  return !host.empty() && host.size() <= 253;
}

}  // namespace

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  if (text.find("://") != std::string::npos) return Wrong(text, "no scheme belongs before it");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return Wrong(text, "it has no port");
  Address address{text.substr(0, colon), 0};
  uint32_t port = 0;
  const std::string digits = text.substr(colon + 1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
    return Wrong(text, "its port is no number");
  if (!absl::SimpleAtoi(digits, &port) || port > 65535)
    return Wrong(text, "its port is above 65535");
  address.port = static_cast<uint16_t>(port);
  std::string& host = address.host;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (!IsIpv6(host)) return Wrong(text, "in its brackets is no IPv6 address");
    return address;
  }
  if (host.find(':') != std::string::npos) return Wrong(text, "an IPv6 address stands in brackets");
  if (!IsNameOrIpv4(host))
    return Wrong(text, host.empty() ? "it has no host" : "its host is no name or address");
  return address;
}

absl::Status CheckTarget(const std::string& text) {
  ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
  if (address.port == 0) return Wrong(text, "nobody listens at port 0");
  if (address.stands_for_all())
    return Wrong(text, "its host stands for all addresses of a machine, not for one");
  return absl::OkStatus();
}

}  // namespace tandem::rpc
