// Links of a given rate on one machine. Each member of a point is in a network namespace of its
// own. A virtual cable joins the member to a hub and carries no more than the rate each way. The
// namespaces have no names, so they are gone with their processes, however these end.
// Thread rule: the main thread; threads that it starts later are in the same namespace.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/traffic.h"

namespace tandem::bench {

// Bits a second of "1gbit", "100mbit", "2.5gbit"; InvalidArgument for other text.
absl::StatusOr<double> RateOf(const std::string& text);

// Bytes that pass a capped link at once after a pause: a millisecond's. With less, the machine's
// timers would keep a link from its rate.
double BurstBytes(double bits_per_second);

// Ok if this process can make capped links; else Unavailable with what is missing.
absl::Status CheckCappedLinks();

// The command's process: its main thread is in the hub's namespace as long as the object lives.
class Hub {
 public:
  // REQUIRES: CheckCappedLinks is Ok.
  static absl::StatusOr<std::unique_ptr<Hub>> Make();
  ~Hub();
  static const std::string& host();  // where members reach this process

 private:
  explicit Hub(int outside) : outside_(outside) {}
  const int outside_;  // the namespace of before
};

// A member's process, a child of the hub's: puts it behind a cable. Returns the host where others
// reach the member. `place`: different for all members, 0 .. 1000.
absl::StatusOr<std::string> JoinHub(double bits_per_second, int place);

// The bytes of the cable of a member's process, with all headers.
rpc::Traffic CableTraffic(int64_t pid);

}  // namespace tandem::bench
