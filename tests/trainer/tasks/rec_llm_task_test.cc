#include "trainer/tasks/ranking/rec_llm_task.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

#include "absl/strings/str_cat.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_config.h"
#include "trainer/job/job_options.h"
#include "trainer/tasks/embedding_table.h"

namespace tandem::tasks {
namespace {

constexpr char kJob[] = R"(
  model { rec_llm { max_length: 24 titles_per_history: 2 layers: 1 heads: 2 dim: 8 } }
  tables { name: "item" dim: 4 }
  tables { name: "title" }
  train { batch_size: 4 }
)";
// Items 6, 9 and 10 are only validated or tested on.
constexpr char kLog[] = "1 1 2 3 4 5\n2 2 3 4 5 6\n3 3 4 5 6 7\n4 1 5 7 8 9 10\n";
constexpr char kTitles[] =
    "1\tred mug\n2\tred cup\n3\tblue mug\n4\tblue cup\n5\ttin\n6\ttin box\n7\tred tin\n8\t\n"
    "9\tblue tin\n10\tblue box \xC3\xA9\n";

absl::StatusOr<Job> Parse(const std::vector<std::string>& sets) {
  return ParseJob(kJob, "job", sets, {.models = OurKinds().models(), .num_trainers = 1});
}

class RecLlmTaskTest : public testing::Test {
 protected:
  // Reads the data and makes the task and its tables.
  void Open(std::vector<std::string> sets = {}) {
    sets.insert(sets.begin(), {"data.path=" + folder_.Write("log.txt", kLog),
                               "data.items_path=" + folder_.Write("titles.tsv", kTitles)});
    job_ = Parse(sets).value();
    auto data = OurKinds().ReadData(job_);
    ASSERT_TRUE(data.ok()) << data.status();
    data_ = *std::move(data);
    ASSERT_TRUE(client_.CreateTables(job::TableSpecsOf(job_), absl::Seconds(5)).ok());
    tables_ = MakeEmbeddingTables(job_, &client_, &stream_);
    task_ = data_->MakeTask(
        job_, {.parameters = &parameters_, .tables = tables_.get(), .group = groups_[0].get()});
  }
  double LossOf(const StepInput& input, int part = 0) {
    Context context({.stream = &stream_, .seed = 1, .step = 1, .training = true});
    std::vector<Variable> rows;
    if (tables_ != nullptr) {
      const auto pulled = tables_->Pull(1, /*create=*/true, input.ids);
      const auto values = pulled->Await(absl::InfiniteFuture());
      for (size_t table = 0; table < input.ids.size(); ++table)
        rows.push_back(Variable::Leaf(values.value()[table].Clone(), "rows"));
    }
    return task_->WholeLossSum(context, input, part, rows).value().At(0);
  }
  void SetAll(double value) {
    for (const auto& parameter : parameters_.all()) {
      const Tensor& tensor = parameter->variable.value();
      for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.Set(i, value);
    }
  }

  const support::TempFolder folder_;
  ThreadPool pool_{1};
  Stream stream_{&pool_};
  ParameterSet parameters_{1, DType::F32};
  ps::TableHost host_{1};
  ps::LocalClient client_{host_, 0, 1};
  const std::vector<std::unique_ptr<comm::ProcessGroup>> groups_ =
      comm::ThreadGroup::Create(1, "dp", absl::Seconds(10));
  Job job_;
  std::unique_ptr<JobData> data_;
  std::unique_ptr<sparse::RemoteEmbedding> tables_;
  std::unique_ptr<Task> task_;
};

TEST_F(RecLlmTaskTest, AnItemThatTrainingNeverSeesIsNoCandidateAndHasNoRow) {
  Open();
  const auto input = task_->Prepare(1);
  EXPECT_EQ(input->ids[0], (std::vector<uint64_t>{1, 2, 3, 4, 5, 7, 8}));
  EXPECT_EQ(input->ids[1].size(), 5u) << "red, mug, cup, blue, tin; box is in items 6 and 10";
}

TEST_F(RecLlmTaskTest, WithAllScoresEqualLossesAreThoseOfChance) {
  Open({"placement=REPLICATED"});
  SetAll(0);
  const auto input = task_->Prepare(1);
  // Seven candidates, 256 bytes; both losses are scaled to the item targets' number.
  EXPECT_NEAR(LossOf(*input) / static_cast<double>(input->global_targets),
              std::log(7.0) + 0.1 * std::log(256.0), 1e-5);
  const auto evaluation = task_->Evaluate(EvaluationSplit::TEST, {.stream = &stream_});
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_NEAR(evaluation->metrics.at("text_loss"), std::log(256.0), 1e-5);
  EXPECT_EQ(evaluation->metrics.at("hr@1"), 0) << "ties count half";
}

TEST_F(RecLlmTaskTest, RowDropoutLeavesOutAboutItsShareAndOtherRowsInEveryStep) {
  Open({"model.rec_llm.row_dropout=0.5"});
  double kept = 0;
  std::set<std::vector<uint64_t>> different;
  for (int64_t step = 1; step <= 200; ++step) {
    const auto input = task_->Prepare(step);
    kept += static_cast<double>(input->ids[0].size());
    different.insert(input->ids[0]);
    EXPECT_EQ(task_->Prepare(step)->ids, input->ids) << "the same step, the same rows";
  }
  EXPECT_NEAR(kept / 200 / 7, 0.5, 0.05);
  EXPECT_GT(different.size(), 50u);
}

TEST_F(RecLlmTaskTest, WithoutAnyRowTitlesAloneAreTrained) {
  Open({"model.rec_llm.row_dropout=1"});
  const auto input = task_->Prepare(1);
  EXPECT_TRUE(input->ids[0].empty());
  EXPECT_TRUE(std::isfinite(LossOf(*input)));
}

TEST_F(RecLlmTaskTest, ASampledStepReadsOnlyTheItemsThatItUses) {
  Open({"model.rec_llm.loss=SAMPLED_SOFTMAX", "model.rec_llm.num_negatives=1",
        "train.batch_size=1"});
  std::set<uint64_t> seen;
  for (int64_t step = 1; step <= 40; ++step) {
    const auto input = task_->Prepare(step);
    EXPECT_LE(input->ids[0].size(), 5u) << "at most four of a user, and the negative";
    EXPECT_TRUE(std::isfinite(LossOf(*input)));
    seen.insert(input->ids[0].begin(), input->ids[0].end());
  }
  EXPECT_EQ(seen, (std::set<uint64_t>{1, 2, 3, 4, 5, 7, 8})) << "no item that training never sees";
}

// Over many draws, the sampled estimate of the softmax's sum is the sum.
TEST_F(RecLlmTaskTest, ManyCorrectedNegativesComeNearTheFullSoftmax) {
  Open({"placement=REPLICATED", "train.batch_size=4"});
  const double full = LossOf(*task_->Prepare(1));
  job_.mutable_model()->mutable_rec_llm()->set_loss(SAMPLED_SOFTMAX);
  job_.mutable_model()->mutable_rec_llm()->set_num_negatives(20000);
  ParameterSet parameters(1, DType::F32);
  task_ = data_->MakeTask(
      job_, {.parameters = &parameters, .tables = nullptr, .group = groups_[0].get()});
  EXPECT_NEAR(LossOf(*task_->Prepare(1)), full, 0.02 * full);
}

TEST_F(RecLlmTaskTest, PartsOfABatchSumToTheWholeBatch) {
  Open();
  const double whole = LossOf(*task_->Prepare(1));
  job_.mutable_parallel()->set_microbatches(3);
  ParameterSet parameters(1, DType::F32);
  task_ = data_->MakeTask(
      job_, {.parameters = &parameters, .tables = tables_.get(), .group = groups_[0].get()});
  const auto input = task_->Prepare(1);
  double sum = 0;
  for (int part = 0; part < 3; ++part) sum += LossOf(*input, part);
  EXPECT_NEAR(sum, whole, 1e-5 * whole);
}

TEST_F(RecLlmTaskTest, RowsOnServersAndDenseRowsHaveTheSameShapesOfInput) {
  Open({"placement=REPLICATED", "model.rec_llm.row_dropout=0.5"});
  EXPECT_TRUE(task_->Prepare(1)->ids.empty());
  EXPECT_TRUE(std::isfinite(LossOf(*task_->Prepare(1))));
  const auto evaluation = task_->Evaluate(EvaluationSplit::TEST, {.stream = &stream_});
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
}

TEST_F(RecLlmTaskTest, CharactersAreTheVocabularyOfTheTitles) {
  Open({"data.text=CHARACTERS"});
  const auto& data = dynamic_cast<const RecLlmData&>(*data_);
  EXPECT_EQ(data.vocabulary_size(), 17) << data.Symbols();
  EXPECT_EQ(data.Symbols(), " bcdegilmnoprtux\xC3\xA9") << "in the order of their code points";
  EXPECT_EQ(data.BytesOf(data.vocabulary_size() - 1), 2) << "e with an accent";
  EXPECT_EQ(data.title_symbols().row_size(10), 10);
}

TEST_F(RecLlmTaskTest, TokensMayBeAThirdTable) {
  const Job job = ParseJob(absl::StrCat(kJob, "tables { name: \"token\" optimizer: SGD }"), "job",
                           {"data.path=" + folder_.Write("log.txt", kLog),
                            "data.items_path=" + folder_.Write("titles.tsv", kTitles)},
                           {.models = OurKinds().models(), .num_trainers = 1})
                      .value();
  EXPECT_EQ(job.tables(2).dim(), 8);
  job_ = job;
  data_ = OurKinds().ReadData(job_).value();
  ASSERT_TRUE(client_.CreateTables(job::TableSpecsOf(job_), absl::Seconds(5)).ok());
  tables_ = MakeEmbeddingTables(job_, &client_, &stream_);
  task_ = data_->MakeTask(
      job_, {.parameters = &parameters_, .tables = tables_.get(), .group = groups_[0].get()});
  const auto input = task_->Prepare(1);
  EXPECT_EQ(input->ids[2].size(), 256u);
  EXPECT_TRUE(std::isfinite(LossOf(*input)));
}

TEST(RecLlmRulesTest, WhatAJobLacksOrHasTooMuchIsSaid) {
  const std::vector<std::string> files{"data.path=log.txt", "data.items_path=titles.tsv"};
  const auto expect_refused = [&](std::vector<std::string> sets, const std::string& words,
                                  bool with_titles = true) {
    sets.insert(sets.begin(), files.begin(), files.begin() + (with_titles ? 2 : 1));
    const auto job = Parse(sets);
    ASSERT_FALSE(job.ok()) << words;
    EXPECT_NE(job.status().ToString().find(words), std::string::npos) << job.status();
  };
  ASSERT_TRUE(Parse(files).ok()) << Parse(files).status();
  expect_refused({}, "data.items_path is required with a table \"title\"", false);
  expect_refused({"tables[0].name=things"}, "rec_llm without a table \"item\"");
  expect_refused({"tables[1].name=words"}, "tables[1].name is words; allowed: item, title, token");
  expect_refused({"tables[1].dim=16"}, "tables[1].dim is 16; allowed: 8, as model.rec_llm.dim");
  expect_refused({"model.rec_llm.heads=3"}, "heads is 3 with model.rec_llm.dim 8");
  expect_refused({"model.rec_llm.row_dropout=1.5"}, "row_dropout is 1.5; allowed: 0 .. 1");
  expect_refused({"model.rec_llm.titles_per_history=0", "model.rec_llm.text_loss=0.5"},
                 "text_loss is 0.5; allowed: 0 without model.rec_llm.titles_per_history");
  expect_refused({"train.select_by=VALID_LOSS"}, "VALID_MRR, VALID_SAMPLED_MRR with rec_llm");
  expect_refused({"eval.cold_below=-1"}, "eval.cold_below is -1");
}

}  // namespace
}  // namespace tandem::tasks
