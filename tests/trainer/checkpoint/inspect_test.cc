// `tandem inspect`: lists a checkpoint in lines that fit and names a damaged file.
#include <sstream>

#include "tests/trainer/checkpoint/file_damage.h"
#include "tests/trainer/checkpoint/small_checkpoint.h"
#include "trainer/cli/commands.h"
#include "trainer/report/run_output.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

class InspectTest : public CheckpointTest {
 protected:
  int Inspect(const std::string& path) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = cli::Inspect({path});
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }
  void ExpectLine(const std::string& line) {
    EXPECT_NE(out_.find("\n" + line + "\n"), std::string::npos)
        << "no line \"" << line << "\" in:\n"
        << out_;
  }

  void ExpectLinesFit() {
    std::istringstream lines(out_);
    for (std::string line; std::getline(lines, line);) {
      const bool is_path = line.find(folder_.path()) != std::string::npos;
      EXPECT_TRUE(is_path || line.size() <= 80) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << "\"" << line << "\"";
    }
  }

  std::string out_, err_;
};

TEST_F(InspectTest, LongAndHostileNamesAreShortenedAndEscaped) {
  ParameterSet parameters(1, DType::F32);
  const std::string long_name = "blocks." + std::string(200, 'x') + ".weight";
  parameters.Constant(long_name, Shape{1000000}, 0);
  parameters.Constant("red\x1b[31m", Shape{1}, 0);
  const optim::DenseOptimizer optimizer({}, &parameters);
  const optim::DenseState state = optimizer.State();
  WriteArgs args{.folder = folder_.path(),
                 .manifest = {},
                 .state = &state,
                 .tables = &run_.tables(),
                 .keep = 1,
                 .deadline = absl::Now() + absl::Seconds(30)};
  args.manifest.set_best_epoch(1);
  for (int i = 0; i < 9; ++i)
    (*args.manifest.mutable_best_metrics())["metric" + std::to_string(i)] = i;
  ASSERT_TRUE(WriteCheckpoint(args).ok());
  ASSERT_EQ(Inspect(folder_.path()), 0) << err_;
  ExpectLinesFit();
  EXPECT_NE(out_.find("\n  blocks.xxx"), std::string::npos) << out_;
  EXPECT_NE(out_.find("xxx.weight  f32   [1000000]  4,000,000  m, v             8,000,000\n"),
            std::string::npos)
      << out_;
  EXPECT_EQ(out_.find('\x1b'), std::string::npos);
  EXPECT_NE(out_.find("metric8 8.0000"), std::string::npos) << out_;
}

TEST_F(InspectTest, SymbolsOfATextAreEscapedAndCut) {
  const auto write = [&](const std::string& symbols) {
    const optim::DenseState state = run_.optimizer().State();
    WriteArgs args{.folder = folder_.path(),
                   .manifest = {},
                   .state = &state,
                   .tables = &run_.tables(),
                   .keep = 1,
                   .deadline = absl::Now() + absl::Seconds(30)};
    *args.manifest.mutable_job() = SmallJob();
    args.manifest.set_symbols(symbols);
    ASSERT_TRUE(WriteCheckpoint(args).ok());
    ASSERT_EQ(Inspect(folder_.path()), 0) << err_;
    ExpectLinesFit();
  };
  write("\n \"\x1bz\xc3\xa9");
  ExpectLine("  text      a vocabulary of 6 symbols");
  ExpectLine("  symbols   \"\\n \\\"\\033z\xc3\xa9\"");
  std::string many = "a", seen = "a";
  for (int i = 0; i < 200; ++i) many += "\xc3\xa9";
  for (int i = 0; i < 31; ++i)
    seen += "\xc3\xa9";  // 63 bytes; one more and quotes and dots would be 69
  write(many);
  ExpectLine("  symbols   \"" + seen + "\"..");
}

TEST_F(InspectTest, CheckpointIsListedInLinesThatFit) {
  TrainAndWrite(2);
  ASSERT_EQ(Inspect(folder_ / "step-00000002"), 0) << err_;
  EXPECT_EQ(err_, "");
  ExpectLine("  job       small, sequence_rec, seed 0");
  ExpectLine("  stands    after step 2, in epoch 0");
  ExpectLine("  consumed  200 samples, 0 tokens");
  ExpectLine("  dense tensor  type  shape   bytes  optimizer slots  bytes");
  ExpectLine("  layer.weight  f32   [4, 3]     48  m, v                96");
  ExpectLine("  2 tensors                      60                     120");
  ExpectLine("  table  rows  dim  optimizer  mode  storage  files");
  ExpectLine("params_hash " + report::HashText(run_.Hash()));
  ExpectLine("  item     22    3  ADAM       LAZY  F32          2");
  ExpectLinesFit();
  for (const std::string& name : Names(folder_ / "step-00000002")) {
    const size_t at = out_.find("  " + name + " ");
    ASSERT_NE(at, std::string::npos) << name << " in:\n" << out_;
    EXPECT_EQ(out_.substr(out_.find('\n', at) - 4, 4), "  ok") << name;
  }
}

TEST_F(InspectTest, OfAFolderAllAreCheckedAndTheNewestIsDescribed) {
  for (uint64_t step = 1; step <= 3; ++step) {
    Train(step);
    ASSERT_TRUE(Write(step, /*keep=*/3, /*best_step=*/step == 3 ? 2 : step).ok());
  }
  ASSERT_EQ(Inspect(folder_.path()), 0) << err_;
  EXPECT_NE(out_.find("ok  best\n  step-00000003"), std::string::npos) << out_;
  EXPECT_NE(out_.find("\n" + (folder_ / "step-00000003") + "\n"), std::string::npos) << out_;
  ExpectLine("  stands    after step 3, in epoch 0");
  FlipByte(folder_ / "step-00000001/dense.safetensors", 200);
  EXPECT_EQ(Inspect(folder_.path()), 4);
  EXPECT_NE(err_.find("step-00000001/dense.safetensors is damaged"), std::string::npos) << err_;
}

TEST_F(InspectTest, DamagedOrMissingFileIsNamed) {
  TrainAndWrite(1);
  for (const std::string& name : Names(Step1())) {
    const std::string path = Step1() + "/" + name, bytes = ReadBytes(path);
    const auto expect_named = [&] {
      EXPECT_EQ(Inspect(folder_.path()), 4) << name;
      EXPECT_EQ(out_, "");
      EXPECT_EQ(err_.find("error: checkpoint "), 0u) << err_;
      EXPECT_NE(err_.find(name), std::string::npos) << err_;
    };
    FlipByte(path, fs::file_size(path) / 2);
    expect_named();
    fs::remove(path);
    expect_named();
    WriteBytes(path, bytes);
  }
  EXPECT_EQ(Inspect(folder_.path()), 0) << err_;
  EXPECT_EQ(Inspect(folder_ / "nowhere"), 4);
  EXPECT_NE(err_.find("nowhere: no such folder"), std::string::npos) << err_;
}

}  // namespace
}  // namespace tandem::checkpoint
