#include "ps/server/allowed_folders.h"

#include <filesystem>
#include <gtest/gtest.h>

namespace tandem::ps {
namespace {

TEST(AllowedFoldersTest, OnlyWhatIsBelowTheServersOwnFoldersIsAllowed) {
  const AllowedFolders folders(
      {.save_below = {"/job/out"}, .load_below = {"/job/out/", "/other/run"}});
  for (const char* inside :
       {"/job/out", "/job/out/checkpoints/step-1", "/job/./out//checkpoints", "/job/out/a/../b"}) {
    EXPECT_TRUE(folders.CheckSave(inside).ok()) << inside;
    EXPECT_TRUE(folders.CheckLoad(inside).ok()) << inside;
  }
  EXPECT_TRUE(folders.CheckLoad("/other/run/checkpoints").ok());
  for (const char* outside : {"", "/", "/job", "/job/output", "/job/out/../x", "/job/out/../../etc",
                              "job/out", "/other/run/x", "/tmp"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(folders.CheckSave(outside))) << outside;
  }
  const std::string message(folders.CheckSave("/tmp/x").message());
  EXPECT_NE(message.find("saves checkpoints below /job/out alone, not /tmp/x"), std::string::npos)
      << message;
}

TEST(AllowedFoldersTest, RelativeFoldersOfTheCommandLineLieInTheWorkingDirectory) {
  const AllowedFolders folders({.save_below = {"out/run"}, .load_below = {}});
  EXPECT_TRUE(
      folders.CheckSave((std::filesystem::current_path() / "out/run/checkpoints").string()).ok());
  EXPECT_FALSE(folders.CheckSave("out/run/checkpoints").ok());
  EXPECT_FALSE(
      folders.CheckLoad((std::filesystem::current_path() / "out/run/checkpoints").string()).ok());
}

TEST(AllowedFoldersTest, WithoutLimitsEverythingIsAllowed) {
  EXPECT_TRUE(AllowedFolders().CheckSave("/tmp").ok());
  EXPECT_TRUE(AllowedFolders().CheckLoad("relative").ok());
}

}  // namespace
}  // namespace tandem::ps
