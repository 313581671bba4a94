// Moves a role's trace spans to rank 0: from a tracer to messages of proto/trace.proto, and from a
// server to its caller, in the caller's clock. Monotonic clocks of machines differ by an offset,
// which a few quick calls measure.
// Thread rule: any thread; a ClockOffset one thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/trace/trace.h"
#include "rpc/channel.h"

namespace tandem {
class RequestHeader;   // proto/wire.pb.h
class RoleTrace;       // proto/trace.pb.h
class TakeTraceReply;  // proto/trace.pb.h
}  // namespace tandem

namespace tandem::rpc {

// The most spans that a server's tracer keeps between two calls of TakeTrace.
inline constexpr size_t kMaxServerSpans = size_t{1} << 17;

// The span of a small call, as caller and server record it. `method` is a string literal.
inline Span CallSpan(const char* method, uint64_t trace_id) {
  Span span;
  span.name = method;
  span.trace_id = trace_id;
  return span;
}

// The id of the running system. Processes with the same boot id share the monotonic clock.
std::string BootId();
// True if times of two processes need no shift. A machine that hides its boot id ("") is always
// measured.
inline bool SameClock(const std::string& boot_id, const std::string& other) {
  return !boot_id.empty() && boot_id == other;
}

// Takes the tracer's spans, with times of this machine's clock.
RoleTrace TakeRoleTrace(std::string role, Tracer& tracer);
// Adds `ns` to all times.
void ShiftTimes(int64_t ns, RoleTrace* trace);

// The offset of a peer's clock from ours. Uses the fastest sample, whose error is at most half its
// round trip.
class ClockOffset {
 public:
  // Our clock when the call was sent and when the answer arrived, and the peer's clock in between.
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

// The server's side of the method TakeTrace.
TakeTraceReply AnswerTakeTrace(Tracer& tracer);
// The caller's side: returns the spans of the server behind `channel`, in our clock. Blocks. A lost
// reply loses its spans.
absl::StatusOr<RoleTrace> CallTakeTrace(Channel& channel, const std::string& service,
                                        const RequestHeader& header, std::string role,
                                        absl::Time deadline);

}  // namespace tandem::rpc
