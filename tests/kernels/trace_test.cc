#include "kernels/trace/trace.h"

#include <gtest/gtest.h>
#include <string>
#include <thread>

namespace tandem {
namespace {

TEST(TracerTest, NestedScopesGiveNestedSpansOfOneThread) {
  Tracer tracer;
  {
    const TraceSpan outer(&tracer, SpanKind::STEP, "outer");
    TraceSpan inner(&tracer, SpanKind::GEMM, "inner", 6, 4);
    inner.AddBytes(8);
  }
  const std::vector<Span> spans = tracer.Take();
  ASSERT_EQ(spans.size(), 2u);
  const Span &inner = spans[0], &outer = spans[1];
  EXPECT_EQ(std::string(inner.name), "inner");
  EXPECT_EQ(inner.kind, SpanKind::GEMM);
  EXPECT_EQ(inner.flops, 6);
  EXPECT_EQ(inner.bytes, 12);
  EXPECT_EQ(inner.thread, outer.thread);
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_LE(inner.begin_ns, inner.end_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
  EXPECT_TRUE(tracer.Take().empty()) << "taken twice";
}

TEST(TracerTest, AFullTracerDropsAndSaysHowMany) {
  Tracer tracer(3);
  for (int i = 0; i < 5; ++i)
    const TraceSpan span(&tracer, SpanKind::OTHER, i < 3 ? "kept" : "dropped");
  ConcurrentSpan(std::shared_ptr<Tracer>(&tracer, [](Tracer*) {}), {}).End();
  EXPECT_EQ(tracer.num_dropped(), 3u);
  const std::vector<Span> spans = tracer.Take();
  ASSERT_EQ(spans.size(), 3u);
  for (const Span& span : spans) EXPECT_EQ(std::string(span.name), "kept");
  { const TraceSpan again(&tracer, SpanKind::OTHER, "room again"); }
  EXPECT_EQ(tracer.num_dropped(), 3u);
  EXPECT_EQ(tracer.Take().size(), 1u);
}

TEST(TracerTest, ThreadsHaveNumbersAndTheNamesTheyGaveThemselves) {
  Tracer tracer;
  std::thread named([&] {
    { const TraceSpan early(&tracer, SpanKind::OTHER, "before it had a name"); }
    NameThisThread("a name");
    const TraceSpan span(&tracer, SpanKind::OTHER, "named");
  });
  named.join();
  std::thread unnamed([&] { const TraceSpan span(&tracer, SpanKind::OTHER, "unnamed"); });
  unnamed.join();
  const std::vector<Span> spans = tracer.Take();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].thread, spans[1].thread);
  EXPECT_NE(spans[1].thread, spans[2].thread);
  const std::vector<std::string> names = tracer.ThreadNames();
  EXPECT_EQ(names.at(spans[1].thread), "a name");
  EXPECT_EQ(names.at(spans[2].thread), "");
}

TEST(TracerTest, AConcurrentSpanEndsOnAnotherThreadAndKeepsItsTracer) {
  auto tracer = std::make_shared<Tracer>();
  Span what;
  what.name = "call";
  what.trace_id = 7;
  what.step = 3;
  const ConcurrentSpan span(tracer, what);
  std::weak_ptr<Tracer> weak = tracer;
  tracer.reset();
  tracer = weak.lock();
  ASSERT_NE(tracer, nullptr);
  std::thread([span] { span.End(); }).join();
  const std::vector<Span> spans = tracer->Take();
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].thread, kNoThread);
  EXPECT_EQ(spans[0].trace_id, 7u);
  EXPECT_EQ(spans[0].step, 3u);
  EXPECT_LE(spans[0].begin_ns, spans[0].end_ns);
  EXPECT_GT(spans[0].begin_ns, 0);
}

TEST(TracerTest, WithoutATracerNothingHappens) {
  const TraceSpan span(nullptr, SpanKind::OTHER, "nowhere");
  const ConcurrentSpan call;
  call.End();
  EXPECT_FALSE(call.recorded());
  EXPECT_EQ(call.trace_id(), 0u);
}

TEST(TracerTest, CallNumbersStartAtOneAndDiffer) {
  Tracer tracer;
  EXPECT_EQ(tracer.NextCall(), 1u);
  EXPECT_EQ(tracer.NextCall(), 2u);
}

}  // namespace
}  // namespace tandem
