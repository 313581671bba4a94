// Stages whose gradients end early: a frozen stage, a stage that begins with integers. With and
// without recomputation they give the gradients of the whole model.
#include "trainer/parallel/pipeline/graph_stages.h"

#include <gtest/gtest.h>
#include <thread>

#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/parallel/pipeline/verifier.h"

namespace tandem::parallel {
namespace {

constexpr int kStages = 3, kMicrobatches = 4;
constexpr int64_t kRows = 5, kDim = 4;

// A table, then a product in each stage, then a loss over classes. `frozen` is the stage whose
// weights are constants; kStages: none.
class SmallModel : public StageModel {
 public:
  SmallModel(int first_stage, int end_stage, int frozen) : first_stage_(first_stage) {
    for (int stage = 0; stage < kStages; ++stage) {
      const Tensor weight = testing::RandomTensor(Shape{kDim, kDim}, 10 + stage, DType::F64);
      weights_.push_back(stage == frozen || stage < first_stage || stage >= end_stage
                             ? Variable::Constant(weight)
                             : Variable::Leaf(weight, "weight"));
    }
    const Tensor table = testing::RandomTensor(Shape{7, kDim}, 3, DType::F64);
    table_ = frozen == 0 ? Variable::Constant(table) : Variable::Leaf(table, "table");
  }

  ArrayType RowsOf(int) const override { return {Shape{kRows, kDim}, DType::F64}; }
  Variable Forward(Context& context, int chunk, int microbatch, const Variable& before) override {
    return Stage(context, first_stage_ + chunk, microbatch, before);
  }
  Variable Stage(Context& context, int stage, int microbatch, const Variable& before) const {
    Variable x = before;
    if (stage == 0) {
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < kRows; ++i) ids.push_back((i * 3 + microbatch) % 7);
      x = ops::GatherRows(context, table_, Tensor::FromVector(ids));
    }
    return ops::Linear(context, x, weights_[stage], Variable());
  }
  Variable Loss(Context& context, int microbatch, const Variable& rows) override {
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < kRows; ++i) targets.push_back((i + microbatch) % kDim);
    const Variable head =
        Variable::Constant(testing::RandomTensor(Shape{kDim, kDim}, 20, DType::F64));
    return ops::LinearCrossEntropySum(context, rows, head, /*weight_is_table=*/false, Variable(),
                                      Tensor::FromVector(targets));
  }
  // The sum of squares of the gradients of a stage's own leaves.
  double GradientsOf(int stage) const {
    double sum = 0;
    for (const Variable* variable : {&weights_[stage], stage == 0 ? &table_ : &weights_[stage]}) {
      if (!variable->is_leaf() || !variable->leaf().has_gradient()) continue;
      const Tensor& gradient = variable->leaf().gradient();
      for (int64_t i = 0; i < gradient.num_elements(); ++i)
        sum += gradient.At(i) * gradient.At(i) * static_cast<double>(i + 1);
    }
    return sum;
  }

 private:
  const int first_stage_;
  std::vector<Variable> weights_;
  Variable table_;
};

std::vector<double> Whole(int frozen) {
  testing::StepFixture fixture;
  Context context(fixture.Options());
  SmallModel model(0, kStages, frozen);
  for (int m = 0; m < kMicrobatches; ++m) {
    Variable rows;
    for (int stage = 0; stage < kStages; ++stage) rows = model.Stage(context, stage, m, rows);
    Backward(context, model.Loss(context, m, rows));
  }
  std::vector<double> gradients;
  for (int stage = 0; stage < kStages; ++stage) gradients.push_back(model.GradientsOf(stage));
  return gradients;
}

std::vector<double> InStages(ScheduleKind kind, Recompute recompute, int frozen) {
  const PipelineSchedule schedule = MakeSchedule({kind, kStages, 1, kMicrobatches});
  EXPECT_TRUE(VerifySchedule(schedule).ok());
  auto groups = comm::ThreadGroup::Create(kStages, "pp", absl::Seconds(30),
                                          comm::ThreadGroup::Sending::WAITS_FOR_RECV);
  std::vector<double> gradients(kStages, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kStages; ++rank) {
    threads.emplace_back([&, rank] {
      testing::StepFixture fixture;
      Context context(fixture.Options());
      const auto edges =
          MakeEdges(*groups[rank], /*is_ring=*/false, absl::Now() + absl::Seconds(20));
      ASSERT_TRUE(edges.ok()) << edges.status();
      SmallModel model(rank, rank + 1, frozen);
      GraphStages stages(schedule, rank, recompute, &model, &context);
      PipelineExecutor executor(schedule, rank, &*edges, &fixture.stream(), nullptr);
      const absl::Status status = executor.Run(stages, context.deadline());
      ASSERT_TRUE(status.ok()) << status;
      gradients[rank] = model.GradientsOf(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return gradients;
}

TEST(GraphStagesTest, FrozenStagesAndIntegerInputsGiveTheGradientsOfTheWholeModel) {
  for (const int frozen : {0, 1, 2, kStages}) {
    const std::vector<double> whole = Whole(frozen);
    for (int stage = 0; stage < kStages; ++stage) EXPECT_EQ(whole[stage] > 0, stage != frozen);
    for (const ScheduleKind kind :
         {ScheduleKind::GPIPE, ScheduleKind::ONE_F_ONE_B, ScheduleKind::ZB_H1}) {
      for (const Recompute recompute : {Recompute::NONE, Recompute::FULL}) {
        const std::vector<double> stages = InStages(kind, recompute, frozen);
        for (int stage = 0; stage < kStages; ++stage)
          EXPECT_NEAR(stages[stage], whole[stage], 1e-10 * (1 + whole[stage]))
              << NameOf(kind) << ", stage " << stage << ", frozen " << frozen;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::parallel
