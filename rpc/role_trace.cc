#include "rpc/role_trace.h"

#include <fstream>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "proto/trace.pb.h"

namespace tandem::rpc {
namespace {

constexpr int kClockSamples = 5;  // the first call carries the spans and is slow

absl::StatusOr<TakeTraceReply> CallOnce(Channel& channel, const std::string& method,
                                        const Payload& request, absl::Time deadline) {
  const auto future = channel.Call(method, request, {.deadline = deadline - absl::Now()});
  // The call itself has the deadline. The extra second lets its answer arrive.
  ASSIGN_OR_RETURN(Payload payload, future.Wait(deadline + absl::Seconds(1)));
  const std::string_view bytes = payload.Flatten();
  TakeTraceReply reply;
  if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InternalError(
        absl::StrCat("malformed reply (", method, " at ", channel.address(), ")"));
  }
  return reply;
}

}  // namespace

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

RoleTrace TakeRoleTrace(std::string role, Tracer& tracer) {
  RoleTrace trace;
  trace.set_role(std::move(role));
  trace.set_boot_id(BootId());
  trace.set_num_dropped(tracer.num_dropped());
  const std::vector<std::string> thread_names = tracer.ThreadNames();
  for (uint32_t thread = 0; thread < thread_names.size(); ++thread) {
    if (thread_names[thread].empty()) continue;
    TraceThread* named = trace.add_threads();
    named->set_number(thread + 1);
    named->set_name(thread_names[thread]);
  }
  std::map<std::string_view, uint32_t> places;
  const auto place = [&](const char* name) {
    const auto [found, added] = places.emplace(name, places.size());
    if (added) trace.add_names(name);
    return found->second;
  };
  for (const Span& span : tracer.Take()) {
    RecordedSpan* recorded = trace.add_spans();
    recorded->set_name(place(span.name));
    recorded->set_kind(place(NameOf(span.kind)));
    recorded->set_thread(span.thread == kNoThread ? 0 : span.thread + 1);
    recorded->set_begin_ns(span.begin_ns);
    recorded->set_duration_ns(span.end_ns - span.begin_ns);
    recorded->set_bytes(span.bytes);
    recorded->set_flops(span.flops);
    recorded->set_other_flops(span.other_flops);
    recorded->set_trace_id(span.trace_id);
    recorded->set_step(span.step);
  }
  return trace;
}

void ShiftTimes(int64_t ns, RoleTrace* trace) {
  for (RecordedSpan& span : *trace->mutable_spans()) span.set_begin_ns(span.begin_ns() + ns);
}

TakeTraceReply AnswerTakeTrace(Tracer& tracer) {
  TakeTraceReply reply;
  reply.set_clock_ns(MonotonicNanoseconds());
  *reply.mutable_trace() = TakeRoleTrace("", tracer);
  return reply;
}

absl::StatusOr<RoleTrace> CallTakeTrace(Channel& channel, const std::string& service,
                                        const RequestHeader& header, std::string role,
                                        absl::Time deadline) {
  TakeTraceRequest request;
  *request.mutable_header() = header;
  const Payload bytes(request.SerializeAsString());
  const std::string method = absl::StrCat("/", service, "/TakeTrace"), here = BootId();
  RoleTrace trace;
  ClockOffset offset;
  for (int sample = 0; sample == 0 || (sample < kClockSamples && !SameClock(trace.boot_id(), here));
       ++sample) {
    const int64_t sent_ns = MonotonicNanoseconds();
    ASSIGN_OR_RETURN(TakeTraceReply reply, CallOnce(channel, method, bytes, deadline));
    offset.AddSample(sent_ns, reply.clock_ns(), MonotonicNanoseconds());
    if (sample == 0) trace = std::move(*reply.mutable_trace());
  }
  if (!SameClock(trace.boot_id(), here)) ShiftTimes(-offset.ns(), &trace);
  trace.set_boot_id(here);
  trace.set_role(std::move(role));
  return trace;
}

}  // namespace tandem::rpc
