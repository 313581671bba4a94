// Spans as messages, and the alignment of two machines' clocks.
#include "rpc/role_trace.h"

#include <atomic>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "proto/trace.pb.h"
#include "rpc/server.h"

namespace tandem::rpc {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

TEST(RoleTraceTest, EverySpanArrivesWithItsNamesTimesAndRow) {
  auto tracer = std::make_shared<Tracer>(2);
  {
    Span what;
    what.name = "gather_rows";
    what.kind = SpanKind::PULL;
    what.trace_id = ~uint64_t{0};
    what.step = 12;
    TraceSpan span(tracer.get(), what, tracer->MakeRow("rows 0"));
    span.AddBytes(100);
  }
  ConcurrentSpan(tracer, CallSpan("Heartbeat", 5)).End();
  { const TraceSpan dropped(tracer.get(), SpanKind::GEMM, "gemm"); }

  const RoleTrace trace = TakeRoleTrace("ps-3", *tracer);
  EXPECT_EQ(trace.role(), "ps-3");
  EXPECT_EQ(trace.boot_id(), BootId());
  EXPECT_EQ(trace.boot_id().size(), 36u);
  EXPECT_EQ(trace.num_dropped(), 1u);
  ASSERT_EQ(trace.spans_size(), 2);
  const RecordedSpan &gathered = trace.spans(0), &call = trace.spans(1);
  EXPECT_EQ(trace.names(static_cast<int>(gathered.name())), "gather_rows");
  EXPECT_EQ(trace.names(static_cast<int>(gathered.kind())), "pull");
  EXPECT_EQ(gathered.trace_id(), ~uint64_t{0});
  EXPECT_EQ(gathered.step(), 12u);
  EXPECT_EQ(gathered.bytes(), 100);
  ASSERT_EQ(trace.threads_size(), 1);
  EXPECT_EQ(trace.threads(0).name(), "rows 0");
  EXPECT_EQ(trace.threads(0).number(), gathered.thread());
  EXPECT_EQ(trace.names(static_cast<int>(call.name())), "Heartbeat");
  EXPECT_EQ(trace.names(static_cast<int>(call.kind())), "other");
  EXPECT_EQ(call.thread(), 0u);
  EXPECT_GE(call.begin_ns(), gathered.begin_ns() + gathered.duration_ns());
  EXPECT_EQ(TakeRoleTrace("ps-3", *tracer).spans_size(), 0);
}

TEST(ClockOffsetTest, TheQuickestSampleDecides) {
  ClockOffset offset;
  EXPECT_EQ(offset.ns(), 0);
  offset.AddSample(100, 1'000'500, 400);  // 300 on the way: 1,000,250 ahead
  EXPECT_EQ(offset.ns(), 1'000'250);
  offset.AddSample(500, 1'000'610, 700);
  EXPECT_EQ(offset.ns(), 1'000'010);
  offset.AddSample(1000, 1'005'000, 1900);
  EXPECT_EQ(offset.ns(), 1'000'010);
}

// A server whose machine booted at another time: its clock is `ahead_ns` ahead of ours.
class OtherMachine {
 public:
  explicit OtherMachine(int64_t ahead_ns, std::string boot_id) {
    server_.Handle("tandem.EmbeddingService", "TakeTrace", MethodKind::UNARY,
                   [this, ahead_ns, boot_id](Payload, Reply reply) {
                     if (num_calls_++ == 0) {
                       const TraceSpan work(&tracer_, SpanKind::PULL, "gather_rows");
                     }
                     TakeTraceReply answer = AnswerTakeTrace(tracer_);
                     answer.set_clock_ns(answer.clock_ns() + ahead_ns);
                     ShiftTimes(ahead_ns, answer.mutable_trace());
                     answer.mutable_trace()->set_boot_id(boot_id);
                     reply(Payload(answer.SerializeAsString()));
                   });
    EXPECT_TRUE(server_.Start("127.0.0.1:0").ok());
  }
  std::string address() const { return server_.address(); }
  int num_calls() const { return num_calls_; }

 private:
  Tracer tracer_;
  std::atomic<int> num_calls_{0};
  Server server_;
};

TEST(SameClockTest, UnknownBootIdsAreNeverEqual) {
  EXPECT_TRUE(SameClock("a", "a"));
  EXPECT_FALSE(SameClock("a", "b"));
  EXPECT_FALSE(SameClock("", "a"));
  EXPECT_FALSE(SameClock("", ""));
}

TEST(CallTakeTraceTest, TimesOfAnotherMachineBecomeOurs) {
  for (const auto& [ahead_ns, boot_id] :
       {std::pair(int64_t{3'600'000'000'000}, "another boot"), {-5'000'000'000, ""}}) {
    OtherMachine machine(ahead_ns, boot_id);
    Channel channel(machine.address());
    const int64_t before = MonotonicNanoseconds();
    const auto trace = CallTakeTrace(channel, "tandem.EmbeddingService", {}, "ps-0", Soon());
    const int64_t after = MonotonicNanoseconds();
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->role(), "ps-0");
    EXPECT_EQ(trace->boot_id(), BootId());
    ASSERT_EQ(trace->spans_size(), 1);
    EXPECT_GT(machine.num_calls(), 1);
    // The estimate errs by at most half of the shortest round trip, which is shorter than all calls
    // together.
    const int64_t slack = after - before;
    EXPECT_GE(trace->spans(0).begin_ns(), before - slack);
    EXPECT_LE(trace->spans(0).begin_ns(), after + slack);
  }
}

TEST(CallTakeTraceTest, OurOwnMachinesTimesStayAsTheyAre) {
  OtherMachine machine(0, BootId());
  Channel channel(machine.address());
  const int64_t before = MonotonicNanoseconds();
  const auto trace = CallTakeTrace(channel, "tandem.EmbeddingService", {}, "ps-0", Soon());
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->spans_size(), 1);
  EXPECT_EQ(machine.num_calls(), 1);
  EXPECT_GE(trace->spans(0).begin_ns(), before);
  EXPECT_LE(trace->spans(0).begin_ns() + trace->spans(0).duration_ns(), MonotonicNanoseconds());
}

TEST(CallTakeTraceTest, AMalformedReplyIsAnErrorThatNamesTheServer) {
  Server server;
  server.Handle("tandem.MasterService", "TakeTrace", MethodKind::UNARY,
                [](Payload, Reply reply) { reply(Payload("\xff\xff")); });
  ASSERT_TRUE(server.Start("127.0.0.1:0").ok());
  Channel channel(server.address());
  const auto trace = CallTakeTrace(channel, "tandem.MasterService", {}, "master", Soon());
  EXPECT_TRUE(absl::IsInternal(trace.status())) << trace.status();
  EXPECT_NE(trace.status().ToString().find(server.address()), std::string::npos) << trace.status();
}

}  // namespace
}  // namespace tandem::rpc
