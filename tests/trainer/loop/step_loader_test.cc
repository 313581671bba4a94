// The thread that prepares batches, and the batches on their way to a step.
#include "trainer/loop/step_loader.h"

#include <gtest/gtest.h>

#include "trainer/loop/batches.h"

namespace tandem::loop {
namespace {

class CountingTask : public tasks::Task {
 public:
  int64_t steps_per_epoch() const override { return 4; }
  std::unique_ptr<tasks::StepInput> Prepare(int64_t step) const override {
    auto input = std::make_unique<tasks::StepInput>();
    input->global_samples = step;
    return input;
  }
  Variable LossSum(Context&, const tasks::StepInput&, int, absl::Span<const Variable>,
                   const Variable&) const override {
    return Variable();
  }
  absl::StatusOr<tasks::Evaluation> Evaluate(tasks::EvaluationSplit,
                                             const tasks::EvaluationArgs&) override {
    return tasks::Evaluation();
  }
};

TEST(StepLoaderTest, GivesEveryStepInOrderThenNothing) {
  const CountingTask task;
  StepLoader loader(&task, 3, 9);
  for (int64_t step = 3; step <= 9; ++step) EXPECT_EQ(loader.Next()->global_samples, step);
  EXPECT_EQ(loader.Next(), nullptr);
}

TEST(StepLoaderTest, CanBeDroppedEarly) {
  const CountingTask task;
  StepLoader loader(&task, 1, 1000);
  EXPECT_EQ(loader.Next()->global_samples, 1);
}

TEST(BatchesTest, ComeInOrderAndEndWithTheLastStep) {
  const CountingTask task;
  Batches batches(&task, /*table=*/nullptr, 3, 5);
  for (int i = 0; i < 2; ++i) batches.PullNext();  // two under way
  for (int64_t step = 3; step <= 5; ++step) {
    EXPECT_EQ(batches.front().input->global_samples, step);
    EXPECT_EQ(batches.front().rows, nullptr);
    batches.PopFront();
    batches.PullNext();  // does nothing after step 5
  }
  EXPECT_TRUE(batches.AwaitRows(absl::InfinitePast()).ok()) << "nothing is under way";
}

TEST(BatchesTest, ABatchWithoutTargetsIsDividedByOne) {
  const Batch batch{std::make_unique<tasks::StepInput>(), nullptr};
  EXPECT_EQ(batch.num_targets(), 1);
  batch.input->global_targets = 7;
  EXPECT_EQ(batch.num_targets(), 7);
}

}  // namespace
}  // namespace tandem::loop
