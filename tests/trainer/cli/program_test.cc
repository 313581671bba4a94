// A program with a model of its own (examples/custom_model), run in this process.
#include "trainer/cli/program.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/custom_model/two_tower.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/checkpoint/file_damage.h"
#include "trainer/data/synthetic.h"

namespace tandem {
namespace {

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    const data::SyntheticOptions log{
        .seed = 5, .users = 120, .items = 40, .min_length = 4, .max_length = 9};
    EXPECT_TRUE(data::WriteSequences(data::Generate(log).log, folder_ / "log.txt").ok());
    folder_.Write("job.textproto",
                  "device: CPU\n"
                  "model { custom { name: \"two_tower\" options { dim: 6 negatives: 8 } } }\n"
                  "tables { name: \"item\" dim: 4 }\n"
                  "train { batch_size: 30 max_epochs: 100 max_steps: 12 }\n");
  }

  // Runs the program with a job of the folder. `out_` gets what it printed, `err_` its errors.
  int Run(const std::vector<std::string>& arguments,
          const std::vector<tasks::Kind>& kinds = {tasks::Add<TwoTower>("two_tower")}) {
    std::vector<std::string> all{"program"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : all) argv.push_back(argument.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = Main(static_cast<int>(argv.size()), argv.data(), kinds);
    err_ = testing::internal::GetCapturedStderr();
    out_ = testing::internal::GetCapturedStdout();
    return code;
  }

  int Launch(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"launch",
                                       folder_ / "job.textproto",
                                       "--local",
                                       "--set",
                                       "data.path=" + (folder_ / "log.txt"),
                                       "--trainers",
                                       "2",
                                       "--out",
                                       folder_ / out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }

  std::string HashOf(const std::string& out) {
    const std::string summary = ReadBytes(folder_ / out + "/summary.json");
    const size_t at = summary.find("\"params_hash\"");
    return at == std::string::npos ? "none" : summary.substr(at, 50);
  }

  const support::TempFolder folder_;
  std::string out_, err_;
};

TEST_F(ProgramTest, AModelOfItsOwnTrainsResumesAndIsEvaluated) {
  ASSERT_EQ(Launch("unbroken"), 0) << err_;
  ASSERT_EQ(Launch("broken", {"--set", "train.max_steps=5"}), 0) << err_;
  ASSERT_NE(HashOf("broken"), HashOf("unbroken"));
  ASSERT_EQ(Launch("broken", {"--resume"}), 0) << err_;
  EXPECT_EQ(HashOf("broken"), HashOf("unbroken"));

  const std::string saved = folder_ / "broken/checkpoints";
  EXPECT_EQ(Run({"eval", folder_ / "job.textproto", "--set", "data.path=" + (folder_ / "log.txt"),
                 "--checkpoint", saved, "--dump", folder_ / "dump.tsv"}),
            0)
      << err_;
  EXPECT_NE(out_.find("hr@10"), std::string::npos) << out_;
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\0'), 0);
  EXPECT_NE(ReadBytes(folder_ / "dump.tsv").find('\t'), std::string::npos);
  EXPECT_EQ(Run({"inspect", saved}), 0) << err_;
  EXPECT_NE(out_.find("job, two_tower, seed 0"), std::string::npos) << out_;
  EXPECT_EQ(Run({"generate", "--checkpoint", saved}), 4);
  EXPECT_NE(err_.find("holds no language model"), std::string::npos) << err_;
}

TEST_F(ProgramTest, ACheckpointOfOtherOptionsIsNotResumed) {
  ASSERT_EQ(Launch("run", {"--set", "train.max_steps=2"}), 0) << err_;
  EXPECT_EQ(Launch("run", {"--resume", "--set", "model.options.dim=5"}), 4);
  EXPECT_NE(err_.find("checkpoint of another model: model.custom.options"), std::string::npos)
      << err_;
  EXPECT_EQ(Launch("run", {"--resume", "--set", "model.options.dim=0x6"}), 0)
      << "6 in another spelling" << err_;
}

TEST_F(ProgramTest, ARowTableOrADenseOneGivesTheModelItsItems) {
  ASSERT_EQ(Launch("rows"), 0) << err_;
  ASSERT_EQ(Launch("dense", {"--set", "placement=REPLICATED"}), 0) << err_;
  EXPECT_NE(HashOf("rows"), HashOf("dense")) << "the items are a parameter";
}

TEST_F(ProgramTest, WrongOptionsAreConfigurationErrors) {
  EXPECT_EQ(Launch("run", {"--set", "model.options.negativs=3"}), 2);
  EXPECT_NE(err_.find("did you mean \"negatives\"?"), std::string::npos) << err_;
  EXPECT_EQ(Launch("run", {"--set", "train.select_by=VALID_LOSS"}), 2);
  EXPECT_NE(err_.find("VALID_MRR, VALID_SAMPLED_MRR with two_tower"), std::string::npos) << err_;
  EXPECT_EQ(Launch("run", {"--set", "train.precision=BF16"}), 2);
  EXPECT_NE(err_.find("F32 with two_tower"), std::string::npos) << err_;
}

TEST_F(ProgramTest, AProgramWithoutTheModelRefusesItsJobsAndStillReadsItsCheckpoints) {
  ASSERT_EQ(Launch("run", {"--set", "train.max_steps=2"}), 0) << err_;
  EXPECT_EQ(Run({"launch", folder_ / "job.textproto", "--set", "data.path=log"}, {}), 2);
  EXPECT_NE(err_.find("model.custom.name is \"two_tower\""), std::string::npos) << err_;
  EXPECT_EQ(Run({"inspect", folder_ / "run/checkpoints"}, {}), 0) << err_;
  EXPECT_EQ(Run({"generate", "--checkpoint", folder_ / "run/checkpoints"}, {}), 4) << err_;
}

}  // namespace
}  // namespace tandem
