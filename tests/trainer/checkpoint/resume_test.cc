// Which checkpoints a run may resume. The data has to match too.
#include <filesystem>

#include "tests/trainer/checkpoint/trained_run.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/process/exit_code.h"
#include "trainer/cli/run_folder.h"

namespace tandem {
namespace {

class ResumeTest : public TrainedRunTest {
 protected:
  // Returns the status of --resume for the run in folder "run". `printed_` gets the text that the
  // reader sees.
  absl::Status Resume(bool data_changed = false, const std::vector<std::string>& more = {}) {
    std::vector<std::string> sets = sets_;
    sets.insert(sets.end(), more.begin(), more.end());
    const auto job =
        LoadJob(folder_ / job_, sets, {.models = OurKinds().models(), .num_trainers = kReplicas});
    if (!job.ok()) return job.status();
    const auto data = OurKinds().ReadData(*job);
    if (!data.ok()) return data.status();
    cli::RunOptions options;
    options.out = folder_ / "run";
    options.resume = cli::kResumeNewest;
    options.data_changed = data_changed;
    const auto saved = cli::CheckpointToResume(options, *job, **data, OurKinds().models());
    if (!saved.ok()) return saved.status();
    testing::internal::CaptureStdout();
    const absl::Status opened = cli::OpenRunOutput(options, **data, &**saved).status();
    printed_ = testing::internal::GetCapturedStdout();
    return opened;
  }

  // Appends to the run's log or text.
  void Change(const std::string& file, const std::string& more) {
    WriteBytes(folder_ / file, ReadBytes(folder_ / file) + more);
  }

  std::string printed_;
};

TEST_F(ResumeTest, AnotherLogIsRefusedUnlessTheUserSaysThatItChanged) {
  Train(folder_ / "run", {"train.max_epochs=1"});
  EXPECT_TRUE(Resume().ok());
  EXPECT_EQ(printed_.find("data"), std::string::npos) << printed_;
  const size_t bytes = ReadBytes(folder_ / "log.txt").size();
  Change("log.txt", "1000 1 2 3 4\n");
  const absl::Status refused = Resume();
  EXPECT_EQ(cli::ExitCodeOf(refused), 4) << refused;
  for (const std::string& part :
       {"checkpoint of other data: it was trained on " + (folder_ / "log.txt") + " (" +
            std::to_string(bytes) + " bytes, CRC32C ",
        "the job has " + (folder_ / "log.txt") + " (" + std::to_string(bytes + 13) +
            " bytes, CRC32C ",
        std::string("--data-changed")}) {
    EXPECT_NE(refused.message().find(part), absl::string_view::npos) << refused;
  }
  EXPECT_TRUE(Resume(/*data_changed=*/true).ok());
  EXPECT_NE(printed_.find("the data has changed since the checkpoint"), std::string::npos)
      << printed_;
}

TEST_F(ResumeTest, TheSameBytesUnderAnotherNameAreTheSameData) {
  Train(folder_ / "run", {"train.max_epochs=1"});
  const std::string copy = folder_.Write("copy.txt", ReadBytes(folder_ / "log.txt"));
  EXPECT_TRUE(Resume(false, {"data.path=" + copy}).ok());
}

TEST_F(ResumeTest, OneChangedCharacterIsAnotherText) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a cab, ";
  UseText(text);
  Train(folder_ / "run", {});
  EXPECT_TRUE(Resume().ok());
  std::swap(text[0], text[1]);
  folder_.Write("text.txt", text);
  EXPECT_EQ(cli::ExitCodeOf(Resume()), 4);
  EXPECT_TRUE(Resume(/*data_changed=*/true).ok());
}

TEST_F(ResumeTest, OtherNegativesAreOtherData) {
  std::string negatives;
  for (int user = 1; user <= 300; ++user) negatives += std::to_string(user) + " 100\n";
  const std::string path = folder_.Write("negatives.txt", negatives);
  sets_.insert(sets_.end(), {"data.negatives_path=" + path, "data.num_items=101"});
  Train(folder_ / "run", {"train.max_epochs=1"});
  EXPECT_TRUE(Resume().ok());
  Change("negatives.txt", "301 101\n");
  EXPECT_EQ(cli::ExitCodeOf(Resume()), 4);
}

TEST_F(ResumeTest, MappedItemsKeepTheirNumbers) {
  UseMappedIds();
  Train(folder_ / "run", {"train.max_epochs=1"});
  EXPECT_TRUE(Resume().ok());
  const std::string log = ReadBytes(folder_ / "log.txt");
  Change("log.txt", "newcomer item-1 item-2 item-3 item-new\n");
  EXPECT_EQ(cli::ExitCodeOf(Resume()), 4);
  EXPECT_TRUE(Resume(/*data_changed=*/true).ok()) << "a new item has the next number";
  WriteBytes(folder_ / "log.txt", "newcomer item-new item-2 item-3 item-1\n" + log);
  const absl::Status refused = Resume(/*data_changed=*/true);
  EXPECT_EQ(cli::ExitCodeOf(refused), 4) << refused;
  EXPECT_NE(refused.message().find("its items have other numbers"), absl::string_view::npos)
      << refused;
}

TEST_F(ResumeTest, ADamagedListOfItemsIsRefused) {
  UseMappedIds();
  Train(folder_ / "run", {"train.max_epochs=1"});
  FlipByte(checkpoint::NewestCheckpoint(folder_ / "run/checkpoints").value() + "/items.txt", 3);
  const absl::Status refused = Resume();
  EXPECT_EQ(cli::ExitCodeOf(refused), 4) << refused;
  EXPECT_NE(refused.message().find("items.txt"), absl::string_view::npos) << refused;
}

TEST_F(ResumeTest, ACheckpointFromBeforeIsTakenWithAWarning) {
  Train(folder_ / "run", {"train.max_epochs=1"});
  const std::string folder = checkpoint::NewestCheckpoint(folder_ / "run/checkpoints").value();
  CheckpointManifest manifest = checkpoint::ReadManifest(folder).value();
  manifest.clear_data();
  manifest.clear_num_items();
  ASSERT_TRUE(checkpoint::WriteManifest(folder, manifest).ok());
  Change("log.txt", "1000 1 2 3 4\n");
  EXPECT_TRUE(Resume().ok());
  EXPECT_NE(printed_.find("the checkpoint does not say which data it was trained on"),
            std::string::npos)
      << printed_;
}

TEST_F(ResumeTest, AnExplicitZeroIsAnotherRunThanTheDefault) {
  Train(folder_ / "run", {"train.max_epochs=1"});
  const absl::Status refused = Resume(false, {"optimizer.beta1=0"});
  EXPECT_EQ(cli::ExitCodeOf(refused), 4) << refused;
  EXPECT_NE(refused.message().find("optimizer.beta1: 0.9 -> 0"), absl::string_view::npos)
      << refused;
}

TEST_F(ResumeTest, AManifestThatLeavesZerosOutIsTheSameRunAsOneThatHasThem) {
  sets_.push_back("optimizer.beta1=0");
  Train(folder_ / "run", {"train.max_epochs=1"});
  const std::string folder = checkpoint::NewestCheckpoint(folder_ / "run/checkpoints").value();
  CheckpointManifest manifest = checkpoint::ReadManifest(folder).value();
  EXPECT_TRUE(manifest.job().optimizer().has_beta1());
  manifest.mutable_job()->mutable_optimizer()->clear_beta1();
  ASSERT_TRUE(checkpoint::WriteManifest(folder, manifest).ok());
  EXPECT_TRUE(Resume().ok());
}

TEST_F(ResumeTest, AFolderThatCannotBeWrittenIsAWrongOut) {
  Train(folder_ / "run", {"train.max_epochs=1"});
  std::filesystem::remove(folder_ / "run/metrics.jsonl");
  std::filesystem::create_directories(folder_ / "run/metrics.jsonl.draft");
  const auto output = report::RunOutput::Create(folder_ / "run", report::LogFormat::JSON);
  ASSERT_TRUE(output.ok());
  const absl::Status status = (*output)->BeginAfter(1);
  EXPECT_EQ(cli::ExitCodeOf(status), 2) << status;
  EXPECT_NE(status.message().find(
                "metrics.jsonl.draft: Is a directory; give an --out that can be written"),
            absl::string_view::npos)
      << status;
}

}  // namespace
}  // namespace tandem
