// Observers of a step, together, and the rates that one of them measures.
#include "trainer/report/step_observer.h"

#include <gtest/gtest.h>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "trainer/report/throughput.h"

namespace tandem::report {
namespace {

// Writes down what it is told. Fails where asked to.
class Diary final : public StepObserver {
 public:
  Diary(const char* name, std::string* text) : name_(name), text_(*text) {}
  absl::Status BeforeStep(const StepRecord& record, absl::Time) override {
    return Write("before", record.step);
  }
  void AfterPart(StepPart part) override {
    Write("part", static_cast<int64_t>(part)).IgnoreError();
  }
  absl::Status AfterStep(StepRecord& record, absl::Time) override {
    return Write("after", record.staleness++);
  }
  absl::Status Finish(absl::Time) override { return Write("finish", 0); }

  std::string fails_at;

 private:
  absl::Status Write(const std::string& what, int64_t number) {
    absl::StrAppend(&text_, name_, " ", what, " ", number, "\n");
    return what == fails_at ? absl::CancelledError(what) : absl::OkStatus();
  }

  const std::string name_;
  std::string& text_;
};

TEST(StepObserversTest, AllAreToldInOrderAndSeeTheFiguresOfThoseBefore) {
  std::string text;
  Diary a("a", &text), b("b", &text);
  StepObservers both;
  both.Add(&a);
  both.Add(nullptr);
  both.Add(&b);
  StepRecord record{.step = 4};
  ASSERT_TRUE(both.BeforeStep(record, absl::InfiniteFuture()).ok());
  both.AfterPart(StepPart::PULL);
  ASSERT_TRUE(both.AfterStep(record, absl::InfiniteFuture()).ok());
  ASSERT_TRUE(both.Finish(absl::InfiniteFuture()).ok());
  EXPECT_EQ(text,
            "a before 4\nb before 4\na part 2\nb part 2\na after 0\nb after 1\n"
            "a finish 0\nb finish 0\n");
  EXPECT_EQ(record.staleness, 2);
}

TEST(StepObserversTest, TheFirstErrorComesBackAndNobodyElseIsTold) {
  for (const char* place : {"before", "after", "finish"}) {
    std::string text;
    Diary a("a", &text), b("b", &text);
    a.fails_at = place;
    StepObservers both;
    both.Add(&a);
    both.Add(&b);
    StepRecord record{.step = 4};
    absl::Status status = both.BeforeStep(record, absl::InfiniteFuture());
    if (status.ok()) status = both.AfterStep(record, absl::InfiniteFuture());
    if (status.ok()) status = both.Finish(absl::InfiniteFuture());
    EXPECT_EQ(status.message(), place);
    EXPECT_EQ(text.find(absl::StrCat("b ", place)), std::string::npos) << text;
  }
}

TEST(ThroughputTest, RatesAreThoseOfTheStepAndTheirMeanThoseOfTheSteps) {
  Throughput throughput(/*peak_flops=*/1e6);
  double seconds = 0;
  for (int64_t step = 1; step <= 2; ++step) {
    StepRecord record{.step = step, .samples = 10 * step, .tokens = 100 * step, .flops = 5e4};
    ASSERT_TRUE(throughput.BeforeStep(record, absl::InfiniteFuture()).ok());
    absl::SleepFor(absl::Milliseconds(10));
    ASSERT_TRUE(throughput.AfterStep(record, absl::InfiniteFuture()).ok());
    absl::SleepFor(absl::Milliseconds(10));  // between steps, which does not count
    const double taken = static_cast<double>(record.samples) / record.samples_per_second;
    seconds += taken;
    EXPECT_GE(taken, 0.01);
    EXPECT_NEAR(record.tokens_per_second, 10 * record.samples_per_second, 1e-6);
    EXPECT_NEAR(record.mfu, 5e4 / taken / 1e6, 1e-9);
  }
  EXPECT_NEAR(throughput.samples_per_second(), 30 / seconds, 1e-6);
  EXPECT_NEAR(throughput.tokens_per_second(), 300 / seconds, 1e-6);
}

TEST(ThroughputTest, WithoutAKnownPeakThereIsNoShareOfIt) {
  Throughput throughput(/*peak_flops=*/0);
  StepRecord record{.step = 1, .samples = 1, .flops = 1};
  ASSERT_TRUE(throughput.BeforeStep(record, absl::InfiniteFuture()).ok());
  ASSERT_TRUE(throughput.AfterStep(record, absl::InfiniteFuture()).ok());
  EXPECT_EQ(record.mfu, 0);
}

}  // namespace
}  // namespace tandem::report
