// `tandem eval` on what a run left: the same figures, bit for bit.
#include <algorithm>
#include <sstream>
#include <thread>

#include "absl/strings/str_format.h"
#include "ps/client_local.h"
#include "ps/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/checkpoint/file_damage.h"
#include "tests/trainer/checkpoint/spoiled_checkpoint.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/job_config.h"
#include "trainer/comm/thread_group.h"
#include "trainer/data/ranking.h"
#include "trainer/data/synthetic.h"
#include "trainer/loop/train_loop.h"

namespace tandem {
namespace {

class EvalTest : public testing::Test {
 protected:
  static constexpr int kReplicas = 2;

  EvalTest() {
    data::SyntheticOptions options;
    options.users = 300;
    options.items = 80;
    options.min_length = 4;
    options.max_length = 9;
    EXPECT_TRUE(data::WriteSequences(data::Generate(options).log, folder_ / "log.txt").ok());
    WriteBytes(folder_ / "job.textproto",
               "model { sequence_rec { max_length: 8 layers: 1 heads: 2 ffn_dim: 16 loss: BCE dropout: 0.2 } }\n"
               "tables { name: \"item\" dim: 8 }\n"
               "optimizer { learning_rate: 0.01 }\n"
               "train { batch_size: 64 max_epochs: 3 }\n");
    sets_ = {"data.path=" + (folder_ / "log.txt"), "seed=11"};
  }

  loop::RunSummary Train(const std::string& out, std::vector<std::string> sets) {
    sets.insert(sets.end(), sets_.begin(), sets_.end());
    const auto job = LoadJob(folder_ / job_, sets, {.num_trainers = kReplicas});
    EXPECT_TRUE(job.ok()) << job.status();
    const auto data = loop::ReadJobData(*job);
    EXPECT_TRUE(data.ok()) << data.status();
    auto output = loop::RunOutput::Create(out, loop::LogFormat::JSON);
    EXPECT_TRUE(output.ok()) << output.status();
    ps::TableHost host(2);
    auto groups = comm::ThreadGroup::Create(kReplicas, "dp");
    std::vector<absl::StatusOr<loop::RunSummary>> results(kReplicas, absl::UnknownError("not run"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kReplicas; ++rank) {
      threads.emplace_back([&, rank] {
        ps::LocalClient client(host, static_cast<uint32_t>(rank), kReplicas);
        results[rank] = loop::RunReplica(*job, **data, {.group = groups[rank].get(),
                                                       .client = &client,
                                                       .output = rank == 0 ? output->get() : nullptr,
                                                        .num_servers = 0});
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(results[0].ok()) << results[0].status();
    return *results[0];
  }

  int Eval(const std::string& checkpoint, std::vector<std::string> sets = {}) {
    sets.insert(sets.begin(), sets_[0]);  // another seed than the run's
    return cli::Eval({folder_ / job_, sets, checkpoint, folder_ / "dump.tsv"});
  }

  std::vector<double> DumpedRanks() {
    std::vector<double> ranks;
    std::istringstream lines(ReadBytes(folder_ / "dump.tsv"));
    uint64_t user, target;
    double rank;
    std::string top;
    while (lines >> user >> target >> rank >> top) ranks.push_back(rank);
    return ranks;
  }

  // A language model of this text instead.
  void UseText(const std::string& text) {
    folder_.Write("text.textproto",
                  "model { gpt { max_length: 8 layers: 1 heads: 2 dim: 8 dropout: 0.2 } }\n"
                  "train { batch_size: 4 max_steps: 2 }\n");
    job_ = "text.textproto";
    sets_ = {"data.path=" + folder_.Write("text.txt", text), "seed=11"};
  }

  const support::TempFolder folder_;
  std::string job_ = "job.textproto";
  std::vector<std::string> sets_;
};

TEST_F(EvalTest, FiguresOfACheckpointAreThoseOfItsRun) {
  // Most of 5,000 items are never touched: their rows are absent and yet ranked.
  const loop::RunSummary run = Train(folder_ / "run", {"data.num_items=5000"});
  ASSERT_EQ(Eval(folder_ / "run/checkpoints", {"data.num_items=5000", "ps.threads=3"}), 0);
  const std::vector<double> ranks = DumpedRanks();
  EXPECT_EQ(ranks.size(), 300u);
  const data::RankingMetrics metrics = data::Summarise(ranks);
  EXPECT_EQ(metrics.hr10, run.metrics.at("test/hr@10"));
  EXPECT_EQ(metrics.ndcg10, run.metrics.at("test/ndcg@10"));
  EXPECT_EQ(metrics.mrr, run.metrics.at("test/mrr"));
}

// Dropout masks depend on the seed, and this evaluation has another seed than the run. An evaluation with dropout shows.
TEST_F(EvalTest, FiguresOfALanguageModelsCheckpointAreThoseOfItsRun) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a cab, ";
  UseText(text);
  const loop::RunSummary run = Train(folder_ / "run", {});
  testing::internal::CaptureStdout();
  const int code = Eval(folder_ / "run/checkpoints");
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, 0);
  const double loss = run.metrics.at("valid/loss");
  double sum = 0;
  int windows = 0;
  std::istringstream dump(ReadBytes(folder_ / "dump.tsv"));
  for (double window, length, of_window; dump >> window >> length >> of_window; ++windows) sum += of_window;
  ASSERT_GT(windows, 5);
  EXPECT_NEAR(sum / windows, loss, 1e-5 * loss) << "the dump rounds to six digits";
  EXPECT_NE(printed.find(absl::StrFormat("%.4f", loss)), std::string::npos) << printed << "\nwanted " << loss;
}

TEST_F(EvalTest, DumpHasUserTargetRankAndTheBestUnseenItems) {
  Train(folder_ / "run", {});
  ASSERT_EQ(Eval(folder_ / "run/checkpoints"), 0);
  std::istringstream log(ReadBytes(folder_ / "log.txt")), dump(ReadBytes(folder_ / "dump.tsv"));
  std::string log_line, line;
  while (std::getline(log, log_line)) {
    ASSERT_TRUE(std::getline(dump, line));
    std::istringstream items(log_line), fields(line);
    std::vector<uint64_t> history;
    uint64_t user, dumped_user, target, id;
    double rank;
    items >> user;
    while (items >> id) history.push_back(id);
    fields >> dumped_user >> target >> rank;
    EXPECT_EQ(dumped_user, user);
    EXPECT_EQ(target, history.back());
    std::vector<uint64_t> top;
    for (char separator = '\t'; fields.get(separator) && fields >> id;) top.push_back(id);
    ASSERT_EQ(top.size(), 20u) << line;
    if (rank == static_cast<int>(rank) && rank <= 20) {
      EXPECT_EQ(top[static_cast<size_t>(rank) - 1], target) << line;
    }
    history.pop_back();
    for (uint64_t seen : history) {
      EXPECT_TRUE(seen == target || std::count(top.begin(), top.end(), seen) == 0) << line;
    }
  }
  EXPECT_FALSE(std::getline(dump, line));
}

TEST_F(EvalTest, CodesNameWhoIsToBlame) {
  Train(folder_ / "run", {"train.max_epochs=1"});
  EXPECT_EQ(Eval(folder_ / "nowhere"), 4);
  EXPECT_EQ(Eval(folder_ / "run/checkpoints", {"model.sequence_rec.layers=2"}), 4);
  EXPECT_EQ(Eval(folder_ / "run/checkpoints", {"tables[item].dim=16"}), 4);
  EXPECT_EQ(Eval(folder_ / "run/checkpoints", {"model.sequence_rec.activation=RELU"}), 4) << "no shape shows it";
  EXPECT_EQ(Eval(folder_ / "run/checkpoints", {"model.depth=2"}), 2);
  EXPECT_EQ(Eval(folder_ / "run/checkpoints", {"data.path=nowhere"}), 3);
}

TEST_F(EvalTest, AnotherTextOfAsManySymbolsIsNotTheCheckpoints) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a cab, ";
  UseText(text);
  Train(folder_ / "run", {});
  EXPECT_EQ(Eval(folder_ / "run/checkpoints"), 0);
  std::replace(text.begin(), text.end(), 'b', 'd');
  folder_.Write("text.txt", text);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Eval(folder_ / "run/checkpoints"), 4);
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_NE(error.find("text.txt"), std::string::npos) << error;
  EXPECT_NE(error.find("vocabulary"), std::string::npos) << error;
}

TEST_F(EvalTest, WeightsThatAreNotFiniteEndWithFourNamingTheTensorOrTheRow) {
  Train(folder_ / "run", {"train.max_epochs=1"});
  const std::string saved = checkpoint::OpenCheckpoint(folder_ / "run/checkpoints", checkpoint::Choice::BEST)->folder;
  const auto error_of_eval = [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Eval(saved), 4);
    return testing::internal::GetCapturedStderr();
  };
  const std::string name = checkpoint::ReadSafetensors(saved + "/dense.safetensors")->tensors[0].name;
  const std::string whole = ReadBytes(saved + "/dense.safetensors"), manifest = ReadBytes(saved + "/manifest.textproto");
  checkpoint::SpoilTensor(saved, name);
  EXPECT_NE(error_of_eval().find("parameter " + name + " is not finite"), std::string::npos);
  WriteBytes(saved + "/dense.safetensors", whole);
  WriteBytes(saved + "/manifest.textproto", manifest);
  checkpoint::SpoilRow(saved);
  EXPECT_NE(error_of_eval().find("has a weight or optimizer state that is not finite"), std::string::npos);
}

TEST_F(EvalTest, FiguresThatAreNotFiniteEndWithSeventy) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a cab, ";
  UseText(text);
  // Weights that are finite, but so large that the loss is not.
  Train(folder_ / "run", {"train.non_finite=SKIP", "optimizer.learning_rate=1e15", "train.max_steps=1", "checkpoint.every_steps=1"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(Eval(folder_ / "run/checkpoints"), 70);
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_NE(error.find("valid/loss is "), std::string::npos) << error;
}

}  // namespace
}  // namespace tandem
