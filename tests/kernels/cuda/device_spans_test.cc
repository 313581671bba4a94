// Spans on a device's clock. They nest as kernels do and lie where the host's clock places the
// work.
// They go to the tracer that was set when they were submitted.
#include <gtest/gtest.h>
#include <string>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/memory/event.h"
#include "kernels/memory/kernel_span.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

using DeviceSpansTest = DeviceTest;

const Span& Named(const std::vector<Span>& spans, const char* name) {
  for (const Span& span : spans) {
    if (std::string(span.name) == name) return span;
  }
  ADD_FAILURE() << "no span " << name;
  static const Span none;
  return none;
}

TEST_F(DeviceSpansTest, KernelsLieInsideTheirPhaseOnARowOfTheirOwn) {
  const OnDevice<float> x(RandomArray<float>(Shape{200, 300}, 1), device()),
      y(Poisoned<float>(Shape{200, 300}), device());
  const OnDevice<float> square(Poisoned<float>(Shape{200, 200}), device());
  Tracer tracer;
  const int64_t before = MonotonicNanoseconds();
  device().set_tracer(&tracer);
  {
    const KernelSpan phase(device(), SpanKind::PHASE, "forward");
    Gemm({.a = x, .b = x, .c = square, .transpose_b = true}, device());
    Scale(y, x, 2, device());
  }
  EXPECT_TRUE(tracer.Take().empty()) << "read only when all has run";
  device().set_tracer(nullptr);
  const int64_t after = MonotonicNanoseconds();
  Scale(y, x, 3, device());  // nobody looks any more
  const std::vector<Span> spans = tracer.Take();
  ASSERT_EQ(spans.size(), 3u);
  const Span &phase = Named(spans, "forward"), &gemm = Named(spans, "gemm"),
             &scale = Named(spans, "scale");
  EXPECT_EQ(gemm.flops, 2.0 * 200 * 200 * 300);
  EXPECT_EQ(scale.bytes, 2.0 * 4 * 200 * 300);
  EXPECT_LE(phase.begin_ns, gemm.begin_ns);
  EXPECT_LT(gemm.begin_ns, gemm.end_ns);
  EXPECT_LE(gemm.end_ns, scale.begin_ns);
  EXPECT_LT(scale.begin_ns, scale.end_ns);
  EXPECT_LE(scale.end_ns, phase.end_ns);
  constexpr int64_t kClocksDiffer =
      2'000'000;  // where the host is late to see that the device is idle
  EXPECT_GE(phase.begin_ns, before - kClocksDiffer);
  EXPECT_LE(phase.end_ns, after + kClocksDiffer);
  for (const Span& span : spans) {
    EXPECT_EQ(span.thread, phase.thread);
    EXPECT_EQ(tracer.ThreadNames().at(span.thread), "cuda:0");
  }
}

TEST_F(DeviceSpansTest, EachTracerGetsItsOwn) {
  const OnDevice<float> x(RandomArray<float>(Shape{10}, 1), device());
  Tracer first, second;
  device().set_tracer(&first);
  Fill(x, 1, device());
  device().set_tracer(&second);
  Fill(x, 2, device());
  Fill(x, 3, device());
  device().set_tracer(nullptr);
  EXPECT_EQ(first.Take().size(), 1u);
  EXPECT_EQ(second.Take().size(), 2u);
}

TEST_F(DeviceSpansTest, EventsMeasureTheTimeBetweenThem) {
  const OnDevice<float> x(RandomArray<float>(Shape{1 << 16}, 1), device());
  Event first(kCudaDevice, Event::Kind::TIMED), second(kCudaDevice, Event::Kind::TIMED),
      third(kCudaDevice, Event::Kind::TIMED);
  ASSERT_TRUE(first.Record(device().queue()).ok());
  Scale(x, x, 2, device());
  ASSERT_TRUE(second.Record(device().queue()).ok());
  for (int i = 0; i < 20; ++i) Scale(x, x, 2, device());
  ASSERT_TRUE(third.Record(device().queue()).ok());
  ASSERT_TRUE(device().Wait().ok());
  EXPECT_GT(first.SecondsUntil(second).value_or(-1), 0);
  EXPECT_GT(second.SecondsUntil(third).value_or(-1), first.SecondsUntil(second).value_or(1e9));
  EXPECT_NEAR(*first.SecondsUntil(third), *first.SecondsUntil(second) + *second.SecondsUntil(third),
              1e-6);
}

}  // namespace
}  // namespace tandem::kernels
