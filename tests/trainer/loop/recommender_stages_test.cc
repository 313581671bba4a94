// A recommender in stages, whose rows are pulled at both ends of the pipeline or are parameters,
// trains and evaluates like one process.
#include <cmath>
#include <gtest/gtest.h>
#include <thread>

#include "absl/strings/str_cat.h"
#include "ps/client/idle_client.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_config.h"
#include "trainer/job/job_options.h"
#include "trainer/job/layout.h"
#include "trainer/loop/train_loop.h"

namespace tandem::loop {
namespace {

constexpr char kSequenceRec[] = R"(
  model { sequence_rec { max_length: 8 layers: 4 heads: 2 dropout: 0.1 init_stddev: 0.2
                         num_negatives: 16 } }
  tables { name: "item" dim: 8 init_stddev: 0.2 }
)";
constexpr char kRecLlm[] = R"(
  model { rec_llm { max_length: 24 titles_per_history: 2 layers: 4 heads: 2 dim: 8 dropout: 0.1
                    row_dropout: 0.2 num_negatives: 16 } }
  tables { name: "item" dim: 4 init_stddev: 0.2 }
  tables { name: "title" init_stddev: 0.2 }
  tables { name: "token" init_stddev: 0.2 }
)";
constexpr char kTrain[] = R"(
  train { batch_size: 13 max_steps: 12 eval_every_steps: 12 log_every_steps: 1 }
  optimizer { kind: ADAMW learning_rate: 0.01 max_grad_norm: 1 }
)";

struct Result {
  std::vector<double> losses, norms;
  report::RunSummary summary;
};

class RecommenderStagesTest : public testing::Test {
 protected:
  RecommenderStagesTest() {
    std::string log, titles;
    for (int user = 0; user < 50; ++user) {
      absl::StrAppend(&log, user + 1);
      for (int i = 0; i < 5 + user % 6; ++i)
        absl::StrAppend(&log, " ", (user * 7 + i * 5) % 31 + 1);
      absl::StrAppend(&log, "\n");
    }
    const char* const words[] = {"red", "blue", "tin", "mug", "box"};
    for (int item = 1; item <= 31; ++item)
      absl::StrAppend(&titles, item, "\t", words[item % 5], " ", words[item / 7], "\n");
    files_ = {"data.path=" + folder_.Write("log.txt", log),
              "data.items_path=" + folder_.Write("titles.tsv", titles)};
  }

  Result Train(const std::string& model, std::vector<std::string> sets) {
    sets.push_back(files_[0]);
    if (model == kRecLlm) sets.push_back(files_[1]);
    const auto job =
        ParseJob(model + kTrain, "job", sets,
                 {.models = OurKinds().models(), .num_trainers = job::kTrainersOfLayout});
    EXPECT_TRUE(job.ok()) << job.status();
    const auto data = OurKinds().ReadData(*job);
    EXPECT_TRUE(data.ok()) << data.status();
    const support::TempFolder folder;
    auto output = report::RunOutput::Create(folder.path() + "/out", report::LogFormat::JSON);
    const int num_trainers = job::NumTrainers(*job);
    const auto groups = comm::ThreadGroup::Create(num_trainers, "trainers", absl::Seconds(60),
                                                  comm::ThreadGroup::Sending::WAITS_FOR_RECV);
    ps::TableHost host(1);
    Result result;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < num_trainers; ++rank) {
      threads.emplace_back([&, rank] {
        ps::ClientStack clients(std::make_unique<ps::IdleClient>());
        if (job::IsClient(*job, rank)) {
          clients = std::make_unique<ps::LocalClient>(
              host, static_cast<uint32_t>(job::ClientOf(*job, rank)),
              static_cast<uint32_t>(job::NumClients(*job)));
        }
        report::OnStep on_step([&](const report::StepRecord& record) {
          result.losses.push_back(record.loss);
          result.norms.push_back(record.grad_norm);
        });
        const auto summary = RunReplica(*job, **data,
                                        {.group = groups[rank].get(),
                                         .clients = clients,
                                         .output = rank == 0 ? output->get() : nullptr,
                                         .observer = rank == 0 ? &on_step : nullptr});
        ASSERT_TRUE(summary.ok()) << summary.status();
        if (rank == 0) result.summary = *summary;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return result;
  }

  void ExpectSame(const Result& stages, const Result& whole, const std::string& what) {
    ASSERT_EQ(stages.losses.size(), 12u) << what;
    for (size_t i = 0; i < 12; ++i) {
      EXPECT_NEAR(stages.losses[i], whole.losses[i], 1e-5) << what << ", step " << i + 1;
      EXPECT_NEAR(stages.norms[i] / whole.norms[i], 1, 1e-4) << what << ", step " << i + 1;
    }
    // The ranks of few users, where scores are nearly equal, may change places.
    for (const auto& [name, value] : whole.summary.metrics)
      EXPECT_NEAR(stages.summary.metrics.at(name), value, 0.03 + 0.01 * std::abs(value))
          << what << ", " << name;
  }

  void EveryLayoutTrainsAlike(const char* model, const std::vector<std::string>& sets) {
    const Result whole = Train(model, sets);
    EXPECT_LT(whole.losses.back(), whole.losses.front());
    const std::vector<std::vector<std::string>> layouts = {
        {"parallel.pp=2"},
        {"parallel.pp=4", "parallel.schedule=ZB_H1", "parallel.microbatches=5"},
        {"parallel.pp=2", "parallel.tp=2", "parallel.schedule=INTERLEAVED"},
        {"parallel.pp=3", "parallel.dp=2", "parallel.schedule=GPIPE", "parallel.recompute=FULL",
         "parallel.zero=1"}};
    for (const std::vector<std::string>& layout : layouts) {
      std::vector<std::string> all = sets;
      all.insert(all.end(), layout.begin(), layout.end());
      ExpectSame(Train(model, all), whole,
                 absl::StrCat(sets[0], " ", layout[0], " ", layout.back()));
    }
  }

 private:
  const support::TempFolder folder_;
  std::vector<std::string> files_;
};

TEST_F(RecommenderStagesTest, SequenceRecTrainsAlikeWithEveryLoss) {
  for (const char* loss : {"BCE", "SAMPLED_SOFTMAX", "FULL_SOFTMAX"}) {
    const std::string set = absl::StrCat("model.sequence_rec.loss=", loss);
    EveryLayoutTrainsAlike(kSequenceRec, {set});
    EveryLayoutTrainsAlike(kSequenceRec, {set, "placement=REPLICATED"});
  }
}

TEST_F(RecommenderStagesTest, RecLlmTrainsAlikeWithEveryLoss) {
  for (const char* loss : {"SAMPLED_SOFTMAX", "FULL_SOFTMAX"}) {
    const std::string set = absl::StrCat("model.rec_llm.loss=", loss);
    EveryLayoutTrainsAlike(kRecLlm, {set});
    EveryLayoutTrainsAlike(kRecLlm, {set, "placement=REPLICATED"});
  }
}

// The first stage pulls the rows of its inputs, the last one those that its loss reads.
TEST_F(RecommenderStagesTest, EachEndPullsTheRowsThatItReads) {
  const std::string loss = "model.sequence_rec.loss=FULL_SOFTMAX";
  const uint64_t whole = Train(kSequenceRec, {loss}).summary.pulled_rows,
                 stages = Train(kSequenceRec, {loss, "parallel.pp=2"}).summary.pulled_rows,
                 cut = Train(kSequenceRec, {loss, "parallel.pp=2", "parallel.tp=2"})
                           .summary.pulled_rows;
  // All of 31 items are compared with in each of 12 steps and in the evaluations, as in one
  // process. The first stage pulls its inputs beside that.
  EXPECT_GT(stages, whole);
  EXPECT_LE(stages, 2 * whole);
  EXPECT_EQ(cut, stages);
}

}  // namespace
}  // namespace tandem::loop
