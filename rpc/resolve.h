// Names and addresses of machines. On a cluster a name may resolve only minutes after a process
// starts, so whoever waits for one asks again.
// Thread rule: free functions, any thread. They block as long as the system's resolver does.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct addrinfo;

namespace tandem::rpc {

struct FreeAddresses {
  void operator()(addrinfo* list) const;
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// The addresses of `address` (host:port) for sockets of `type` (SOCK_STREAM), with the flags of
// getaddrinfo. Unavailable, with the resolver's own words, if there are none.
absl::StatusOr<AddressList> Resolve(const std::string& address, int type, int flags = 0);

// Asks for the addresses until there are some. `go_on` is told why there are none, about twice a
// second, and ends the wait with an error. Unavailable at the deadline.
absl::Status AwaitAddress(const std::string& address, absl::Time deadline,
                          const std::function<absl::Status(const std::string& why)>& go_on);

// The address of this machine, as text, from which packets to `address` (host:port) leave.
absl::StatusOr<std::string> HostTowards(const std::string& address);

// The full name of this machine ("ps-0.ps.jobs.svc.cluster.local"), if the system knows one that
// stands for an address of this machine and not for loopback. Otherwise "".
std::string FullHostName();

// Tells where others reach a process that listens at `listen`: there, or if that stands for all
// addresses, at FullHostName or HostTowards(`towards`).
absl::StatusOr<std::string> ReachedAt(const std::string& listen, const std::string& towards);

}  // namespace tandem::rpc
