#include "trainer/tasks/ranking/ranking_evaluation.h"

#include <gtest/gtest.h>

#include "tests/trainer/our_kinds.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/training_counts.h"
#include "trainer/tasks/ranking/ranking_metrics.h"

namespace tandem::tasks {
namespace {

// Scores that do not depend on the history.
class FixedScorer : public ItemScorer {
 public:
  explicit FixedScorer(std::vector<float> scores) : scores_(std::move(scores)) {}
  absl::Status Begin(const EvaluationArgs&) override { return absl::OkStatus(); }
  absl::Status Score(absl::Span<const Histories> blocks, const EvaluationArgs&,
                     const TakeScores& take) override {
    for (size_t b = 0; b < blocks.size(); ++b) {
      const Tensor all = Tensor::Empty(
          Shape{static_cast<int64_t>(blocks[b].size()), static_cast<int64_t>(scores_.size())},
          DType::F32);
      for (int64_t i = 0; i < all.num_elements(); ++i)
        all.Set(i, scores_[static_cast<size_t>(i) % scores_.size()]);
      take(b, all);
    }
    return absl::OkStatus();
  }
  Tensor AllVectors() const override { return {}; }

 private:
  const std::vector<float> scores_;
};

class RankingEvaluationTest : public testing::Test {
 protected:
  // Ranks the test targets of three users over 100 items. Training sees items 1 to 3.
  Evaluation Evaluate(std::vector<float> scores, int64_t cold_below) {
    SequenceFiles files;
    files.interactions.num_items = 100;
    for (const std::vector<uint64_t>& items :
         {std::vector<uint64_t>{1, 2, 3, 4, 5}, {1, 2, 3, 4, 1}, {2, 1, 3, 9, 6}}) {
      files.interactions.users.push_back(files.interactions.users.size() + 1);
      files.interactions.items.Append(items);
    }
    files.training_counts = data::TrainingCounts(files.interactions);
    files.cold_below = cold_below;
    const SequenceRecData data(std::move(files));
    const data::SequenceSampler sampler(&data.interactions(), {});
    const auto groups = comm::ThreadGroup::Create(1, "dp", absl::Seconds(10));
    ThreadPool pool(1);
    Stream stream(&pool);
    Job job;
    const RankingEvaluation evaluation(&job, &data, &sampler, {groups[0].get()});
    FixedScorer scorer(std::move(scores));
    return evaluation.Evaluate(EvaluationSplit::TEST, {.stream = &stream}, scorer).value();
  }
};

TEST_F(RankingEvaluationTest, EqualScoresAreWorthWhatChanceIs) {
  const Evaluation evaluation = Evaluate(std::vector<float>(101, 0.5f), 0);
  EXPECT_LE(evaluation.metrics.at("hr@10"), 0.1 + 1e-9);
  EXPECT_EQ(evaluation.metrics.count("cold_hr@10"), 0u) << "not asked for";
}

TEST_F(RankingEvaluationTest, ColdTargetsAreThoseThatTrainingSeesTooRarely) {
  std::vector<float> scores(101, 0);
  scores[5] = 3;   // best, cold
  scores[6] = -1;  // worst, cold
  scores[1] = 2;   // warm; second best where it is the target
  const Evaluation evaluation = Evaluate(scores, 1);
  EXPECT_EQ(evaluation.metrics.at("cold_users"), 2);
  EXPECT_EQ(evaluation.metrics.at("cold_hr@10"), 0.5);
  EXPECT_EQ(evaluation.metrics.at("warm_users"), 1);
  EXPECT_EQ(evaluation.metrics.at("warm_hr@10"), 1);
  // Rank 1 of the first user; the last of 97 candidates (four of 100 were seen, one is the target).
  EXPECT_NEAR(evaluation.metrics.at("cold_mean_log_rank"), std::log(96.0) / 2, 0.02);
  EXPECT_NEAR(evaluation.metrics.at("warm_mean_log_rank"), std::log(2.0), 1e-9);
}

TEST_F(RankingEvaluationTest, AGroupWithoutUsersIsLeftOut) {
  const Evaluation evaluation = Evaluate(std::vector<float>(101, 0), 100);
  EXPECT_EQ(evaluation.metrics.at("cold_users"), 3);
  EXPECT_EQ(evaluation.metrics.count("warm_users"), 0u);
}

}  // namespace
}  // namespace tandem::tasks
