// `tandem eval` on a run's checkpoint: the run's figures, bit for bit.
#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "absl/strings/str_format.h"
#include "tests/trainer/checkpoint/spoiled_checkpoint.h"
#include "tests/trainer/checkpoint/trained_run.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/data/ranking.h"

namespace tandem {
namespace {

class EvalTest : public TrainedRunTest {};

TEST_F(EvalTest, FiguresOfACheckpointAreThoseOfItsRun) {
  // Most of 5,000 items never get a gradient. Their rows are absent and yet ranked.
  const report::RunSummary run = Train(folder_ / "run", {"data.num_items=5000"});
  ASSERT_EQ(Eval(folder_ / "run/checkpoints", {"data.num_items=5000", "ps.threads=3"}), 0);
  const std::vector<double> ranks = DumpedRanks();
  EXPECT_EQ(ranks.size(), 300u);
  const data::RankingMetrics metrics = data::Summarise(ranks);
  EXPECT_EQ(metrics.hr10, run.metrics.at("test/hr@10"));
  EXPECT_EQ(metrics.ndcg10, run.metrics.at("test/ndcg@10"));
  EXPECT_EQ(metrics.mrr, run.metrics.at("test/mrr"));
}

// Dropout masks depend on the seed, and this evaluation has another seed than the run. So an
// evaluation with dropout would show.
TEST_F(EvalTest, FiguresOfALanguageModelsCheckpointAreThoseOfItsRun) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a cab, ";
  UseText(text);
  const report::RunSummary run = Train(folder_ / "run", {});
  testing::internal::CaptureStdout();
  const int code = Eval(folder_ / "run/checkpoints");
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, 0);
  const double loss = run.metrics.at("valid/loss");
  double sum = 0;
  int windows = 0;
  std::istringstream dump(ReadBytes(folder_ / "dump.tsv"));
  for (double window, length, of_window; dump >> window >> length >> of_window; ++windows)
    sum += of_window;
  ASSERT_GT(windows, 5);
  EXPECT_NEAR(sum / windows, loss, 1e-5 * loss) << "the dump rounds to six digits";
  EXPECT_NE(printed.find(absl::StrFormat("%.4f", loss)), std::string::npos)
      << printed << "\nwanted " << loss;
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
  EXPECT_EQ(Eval(folder_ / "run/checkpoints", {"model.sequence_rec.activation=RELU"}), 4)
      << "no shape shows it";
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
  const std::string saved =
      checkpoint::OpenCheckpoint(folder_ / "run/checkpoints", checkpoint::Choice::BEST)->folder;
  const auto error_of_eval = [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Eval(saved), 4);
    return testing::internal::GetCapturedStderr();
  };
  const std::string name =
      checkpoint::ReadSafetensors(saved + "/dense.safetensors")->tensors[0].name;
  const std::string whole = ReadBytes(saved + "/dense.safetensors"),
                    manifest = ReadBytes(saved + "/manifest.textproto");
  checkpoint::SpoilTensor(saved, name);
  EXPECT_NE(error_of_eval().find("parameter " + name + " is not finite"), std::string::npos);
  WriteBytes(saved + "/dense.safetensors", whole);
  WriteBytes(saved + "/manifest.textproto", manifest);
  checkpoint::SpoilRow(saved);
  EXPECT_NE(error_of_eval().find("has a weight or optimizer state that is not finite"),
            std::string::npos);
}

TEST_F(EvalTest, FiguresThatAreNotFiniteEndWithSeventy) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a cab, ";
  UseText(text);
  // Finite weights, so large that the loss is not finite.
  Train(folder_ / "run", {"train.non_finite=SKIP", "optimizer.learning_rate=1e15",
                          "train.max_steps=1", "checkpoint.every_steps=1"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(Eval(folder_ / "run/checkpoints"), 70);
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_NE(error.find("valid/loss is "), std::string::npos) << error;
}

TEST_F(EvalTest, APartOfALogHasTheRanksOfTheWhole) {
  Train(folder_ / "run", {});
  ASSERT_EQ(Eval(folder_ / "run/checkpoints"), 0);
  const std::map<uint64_t, std::string> whole = DumpedUsers();
  // A part of the log whose users have only the first 40 of 80 items. The part's largest id differs
  // from the log's.
  std::istringstream log(ReadBytes(folder_ / "log.txt"));
  std::string part;
  for (std::string line; std::getline(log, line);) {
    std::istringstream fields(line);
    uint64_t user, item, largest = 0;
    for (fields >> user; fields >> item;) largest = std::max(largest, item);
    if (largest <= 60) part += line + "\n";
  }
  ASSERT_FALSE(part.empty());
  ASSERT_EQ(Eval(folder_ / "run/checkpoints", {"data.path=" + folder_.Write("part.txt", part)}), 0);
  const std::map<uint64_t, std::string> some = DumpedUsers();
  ASSERT_FALSE(some.empty());
  EXPECT_LT(some.size(), whole.size());
  for (const auto& [user, line] : some) EXPECT_EQ(line, whole.at(user));
}

TEST_F(EvalTest, SaysWhatItRanksAmongAndWhoIsLeftOut) {
  Train(folder_ / "run", {});
  const auto output = [this](const std::vector<std::string>& sets) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(Eval(folder_ / "run/checkpoints", sets), 0);
    return testing::internal::GetCapturedStdout();
  };
  const std::string same = output({});
  EXPECT_NE(same.find("ranks are among the items 1 .. 80\n"), std::string::npos) << same;
  EXPECT_EQ(same.find("not the data"), std::string::npos) << same;
  const std::string other = output({"data.path=" + folder_.Write("part.txt", "1 2 3 4\n2 5\n")});
  EXPECT_NE(other.find("not the data that the checkpoint was trained on"), std::string::npos)
      << other;
  EXPECT_NE(other.find("1 of evaluation, with fewer than 3"), std::string::npos) << other;
  EXPECT_NE(other.find("ranks are among the items 1 .. 80\n"), std::string::npos) << other;
}

TEST_F(EvalTest, InspectTellsWhatWasRead) {
  Train(folder_ / "run", {"train.max_epochs=1"});
  testing::internal::CaptureStdout();
  EXPECT_EQ(cli::Inspect({folder_ / "run/checkpoints"}), 0);
  const std::string output = testing::internal::GetCapturedStdout();
  const std::string size = std::to_string(std::filesystem::file_size(folder_ / "log.txt"));
  EXPECT_NE(output.find((folder_ / "log.txt") + ", " + size + " bytes, CRC32C "), std::string::npos)
      << output;
  EXPECT_NE(output.find("items     1 .. 80\n"), std::string::npos) << output;
}

TEST_F(EvalTest, AnotherCatalogueIsRefused) {
  Train(folder_ / "run", {});
  testing::internal::CaptureStderr();
  EXPECT_EQ(
      Eval(folder_ / "run/checkpoints", {"data.path=" + folder_.Write("more.txt", "1 2 3 81\n")}),
      3);
  EXPECT_EQ(Eval(folder_ / "run/checkpoints", {"data.num_items=81"}), 4);
  EXPECT_EQ(
      Eval(folder_ / "run/checkpoints", {"data.path=" + folder_.Write("short.txt", "1 2 3\n")}), 3);
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_NE(errors.find("item id 81 is above the catalogue's largest id 80 (column 7) (the "
                        "checkpoint's catalogue is 1 .. 80)"),
            std::string::npos)
      << errors;
  EXPECT_NE(
      errors.find("it has the items 1 .. 80, and data.num_items is 81; leave data.num_items out"),
      std::string::npos)
      << errors;
  EXPECT_NE(errors.find("nobody to evaluate"), std::string::npos) << errors;
}

TEST_F(EvalTest, MappedIdsAreDumpedAsTheyWereWritten) {
  UseMappedIds();
  const report::RunSummary run = Train(folder_ / "run", {});
  ASSERT_EQ(Eval(folder_ / "run/checkpoints"), 0);
  std::istringstream log(ReadBytes(folder_ / "log.txt")), dump(ReadBytes(folder_ / "dump.tsv"));
  std::vector<double> ranks;
  std::map<std::string, std::string> lines;
  for (std::string line, dumped; std::getline(log, line);) {
    ASSERT_TRUE(std::getline(dump, dumped));
    std::istringstream fields(dumped);
    std::string user, target, top;
    double rank;
    fields >> user >> target >> rank >> top;
    EXPECT_EQ(user, line.substr(0, line.find(' ')));
    EXPECT_EQ(target, line.substr(line.rfind(' ') + 1));
    EXPECT_EQ(top.rfind("item-", 0), 0u);
    ranks.push_back(rank);
    lines[user] = dumped;
  }
  EXPECT_EQ(data::Summarise(ranks).mrr, run.metrics.at("test/mrr"));
  // A part of the log with its items in another order gets the checkpoint's numbers.
  std::istringstream again(ReadBytes(folder_ / "log.txt"));
  std::string part;
  for (std::string line; std::getline(again, line);)
    part = line.back() % 2 == 0 ? line + "\n" + part : part;
  ASSERT_EQ(Eval(folder_ / "run/checkpoints", {"data.path=" + folder_.Write("part.txt", part)}), 0);
  std::istringstream some(ReadBytes(folder_ / "dump.tsv"));
  int num_some = 0;
  for (std::string line; std::getline(some, line); ++num_some)
    EXPECT_EQ(line, lines.at(line.substr(0, line.find('\t'))));
  EXPECT_GT(num_some, 10);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Eval(folder_ / "run/checkpoints",
                 {"data.path=" + folder_.Write("more.txt", "u item-1 item-2 thing\n")}),
            3);
  EXPECT_EQ(Eval(folder_ / "run/checkpoints", {"data.ids=DENSE"}), 4);
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_NE(errors.find("more.txt:1: item id thing is not in the catalogue (column 17)"),
            std::string::npos)
      << errors;
  EXPECT_NE(errors.find("data.ids: MAP"), std::string::npos) << errors;
}

TEST_F(EvalTest, ACheckpointFromBeforeSaysThatItsCatalogueIsNotKnown) {
  Train(folder_ / "run", {});
  const std::string folder = checkpoint::BestCheckpoint(folder_ / "run/checkpoints").value();
  CheckpointManifest manifest = checkpoint::ReadManifest(folder).value();
  EXPECT_EQ(manifest.num_items(), 80u);
  EXPECT_EQ(manifest.data_size(), 1);
  manifest.clear_num_items();
  manifest.clear_data();
  ASSERT_TRUE(checkpoint::WriteManifest(folder, manifest).ok());
  testing::internal::CaptureStdout();
  EXPECT_EQ(Eval(folder_ / "run/checkpoints"), 0);
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_NE(output.find("does not say which data it was trained on"), std::string::npos) << output;
  EXPECT_NE(output.find("the largest id of this data: the checkpoint does not say its catalogue"),
            std::string::npos)
      << output;
}

}  // namespace
}  // namespace tandem
