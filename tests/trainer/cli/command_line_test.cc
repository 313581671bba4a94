// Command lines that are refused before any command runs.
#include "trainer/cli/command_line.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/bench/commands.h"
#include "trainer/cli/help_text.h"
#include "trainer/cli/run_folder.h"

namespace tandem::cli {
namespace {

int CodeOf(std::vector<std::string> arguments, std::string* errors) {
  arguments.insert(arguments.begin(), "tandem");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStderr();
  const int code = RunCommandLine(static_cast<int>(argv.size()), argv.data(), OurKinds(),
                                  {bench::AddBenchCommands});
  *errors = testing::internal::GetCapturedStderr();
  return code;
}

TEST(CommandLineTest, AnArgumentThatIsNoUtf8IsRefusedAtOnce) {
  const std::vector<std::vector<std::string>> lines = {
      {"launch", "job", "--set", "data.path=l\xE9.txt"},
      {"launch", "job", "--out", "f\xE9"},
      {"launch", "j\xE9"},
      {"eval", "job", "--checkpoint", "f\xE9"},
      {"inspect", "f\xE9"},
      {"launch", "job", "--set", "name=caf\xE9"}};
  for (const std::vector<std::string>& line : lines) {
    std::string errors;
    EXPECT_EQ(CodeOf(line, &errors), 2);
    EXPECT_EQ(errors.rfind("error: argument ", 0), 0u) << errors;
    EXPECT_NE(errors.find("\\xe9"), std::string::npos) << errors;
    EXPECT_EQ(errors.find('\xE9'), std::string::npos) << errors;
    EXPECT_EQ(errors.find("libprotobuf"), std::string::npos) << errors;
  }
}

TEST(CommandLineTest, ErrorsShowWhatATerminalWouldObey) {
  std::string errors;
  EXPECT_EQ(CodeOf({"launch", "/nowhere/\x1b[2Jjob\xC2\xA0", "--local"}, &errors), 2);
  EXPECT_EQ(errors, "error: job file /nowhere/\\x1b[2Jjob\\u00a0: No such file or directory\n");
}

TEST(CommandLineTest, AnUnknownFlagIsShownAsItCanBeSeen) {
  std::string errors;
  EXPECT_EQ(CodeOf({"launch", "job", "--resum\x1b"}, &errors), 2);
  EXPECT_NE(errors.find("--resum\\x1b"), std::string::npos) << errors;
  EXPECT_EQ(errors.find('\x1b'), std::string::npos) << errors;
}

TEST(CommandLineTest, AMistypedCommandNamesTheNearest) {
  std::string errors;
  EXPECT_EQ(CodeOf({"lauch", "job"}, &errors), 2);
  EXPECT_EQ(errors, "error: no command \"lauch\"; did you mean \"launch\"?\n");
  EXPECT_EQ(CodeOf({"bench", "stp"}, &errors), 2);
  EXPECT_EQ(errors, "error: no command \"bench stp\"; did you mean \"bench step\"?\n");
  EXPECT_EQ(CodeOf({"help", "bench", "xyzzy"}, &errors), 2);
  EXPECT_EQ(errors,
            "error: no command \"bench xyzzy\"; there are store, step, pull-push, allreduce, "
            "schedule, sync\n");
}

TEST(CommandLineTest, HelpNamesTheCommandInItsUsageLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> lines = {
      {{}, "Usage: tandem [OPTIONS] SUBCOMMAND"},
      {{"help"}, "Usage: tandem [OPTIONS] SUBCOMMAND"},
      {{"help", "launch"}, "Usage: tandem launch [OPTIONS] job"},
      {{"help", "bench", "step"}, "Usage: tandem bench step [OPTIONS]"},
      {{"launch", "--help"}, "Usage: tandem launch [OPTIONS] job"}};
  for (const auto& [line, usage] : lines) {
    testing::internal::CaptureStdout();
    std::string errors;
    EXPECT_EQ(CodeOf(line, &errors), 0) << errors;
    const std::string printed = testing::internal::GetCapturedStdout();
    EXPECT_NE(printed.find(usage), std::string::npos) << printed;
  }
}

TEST(HelpTextTest, LinesBreakAtSpacesAndKeepTheirColumn) {
  const std::string flag = "  --flag VALUE                one two three";
  EXPECT_EQ(WrapHelp(flag, 80), flag + "\n");
  EXPECT_EQ(WrapHelp(flag, 38),
            "  --flag VALUE                one two\n                              three\n");
  EXPECT_EQ(WrapHelp("a sentence of words", 10), "a sentence\nof words\n");
  const std::string word(50, 'x');
  EXPECT_EQ(WrapHelp("  --flag VALUE                " + word + " y", 40),
            "  --flag VALUE                " + word + "\n" + std::string(30, ' ') + "y\n");
  EXPECT_EQ(WrapHelp("\n\n", 40), "\n\n");
}

TEST(CommandLineTest, VersionTellsTheCommitAndWhatItComputesWith) {
  testing::internal::CaptureStdout();
  std::string errors;
  EXPECT_EQ(CodeOf({"--version"}, &errors), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  for (const char* word : {"tandem 0.", "commit ", "CPU kernels: ", "CUDA: ", "NCCL: "}) {
    EXPECT_NE(printed.find(word), std::string::npos) << printed;
  }
}

TEST(CommandLineTest, AddressesAreCheckedBeforeAnythingWaits) {
  for (const char* address :
       {"127.0.0.1", "127.0.0.1:99999", "http://127.0.0.1:5000", "*:0", "::1:0"}) {
    std::string errors;
    EXPECT_EQ(CodeOf({"trainer", "job", "--master", address}, &errors), 2);
    EXPECT_NE(errors.find("expected HOST:PORT"), std::string::npos) << errors;
  }
}

TEST(CommandLineTest, AnOutFolderBelowAFolderThatIsNoUtf8IsRefused) {
  const support::TempFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directories(folder / "f\xE9");
  std::filesystem::current_path(folder / "f\xE9");
  RunOptions options;
  options.out = "out";
  const absl::Status status = CheckOutPath(options);
  std::filesystem::current_path(before);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("f\\xe9/out is not UTF-8"), absl::string_view::npos) << status;
  options.out = folder / "out";
  EXPECT_TRUE(CheckOutPath(options).ok());
}

}  // namespace
}  // namespace tandem::cli
