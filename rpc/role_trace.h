// A role's spans on their way to rank 0: from a tracer to the messages of proto/trace.proto, and from a server to its caller,
// whose clock they follow then. Machines differ by an offset of their monotonic clocks, which a few quick calls tell.
// Thread rule: any thread; one at a time for a ClockOffset.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/trace/trace.h"
#include "proto/trace.pb.h"
#include "rpc/channel.h"

namespace tandem::rpc {

// What a server's tracer keeps between two calls of TakeTrace.
inline constexpr size_t kMaxServerSpans = size_t{1} << 17;

// A call of a small method as both of its sides record it. `method` is a string literal.
inline Span CallSpan(const char* method, uint64_t trace_id) {
  Span span;
  span.name = method;
  span.trace_id = trace_id;
  return span;
}

// Of the machine's running system; processes with the same one share the monotonic clock.
std::string BootId();
// Whether two processes' times need no shift. A machine that hides its boot id ("") may be any: its clock is always compared.
inline bool SameClock(const std::string& boot_id, const std::string& other) { return !boot_id.empty() && boot_id == other; }

// Takes what the tracer holds. Its times are of this machine's clock.
RoleTrace TakeRoleTrace(std::string role, Tracer& tracer);
// Adds `ns` to all times.
void ShiftTimes(int64_t ns, RoleTrace* trace);

// How far a peer's clock is ahead of ours. The quickest of the samples counts: its error is at most half its round trip.
class ClockOffset {
 public:
  // Our clock when we asked and when the answer was here, the peer's somewhere in between.
  void AddSample(int64_t sent_ns, int64_t peer_ns, int64_t received_ns) {
    if (received_ns - sent_ns >= round_trip_ns_) return;
    round_trip_ns_ = received_ns - sent_ns;
    offset_ns_ = peer_ns - (sent_ns + round_trip_ns_ / 2);
  }
  int64_t ns() const { return offset_ns_; }

 private:
  int64_t round_trip_ns_ = std::numeric_limits<int64_t>::max();
  int64_t offset_ns_ = 0;
};

// A server's side of the method TakeTrace.
TakeTraceReply AnswerTakeTrace(Tracer& tracer);
// The caller's side, which blocks: what the server behind `channel` has recorded, in our clock. A reply that is lost takes its
// spans with it.
absl::StatusOr<RoleTrace> CallTakeTrace(Channel& channel, const std::string& service, const RequestHeader& header,
                                        std::string role, absl::Time deadline);

}  // namespace tandem::rpc
