// The lock of an --out folder: its owner, its end, and the file that it leaves.
#include "trainer/cli/process/folder_lock.h"

#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/temp_folder.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

TEST(FolderLockTest, SecondIsRefusedNamingTheOwner) {
  const support::TempFolder folder;
  const auto lock = FolderLock::Take(folder.path(), "launch");
  ASSERT_TRUE(lock.ok()) << lock.status();
  const absl::Status second = FolderLock::Take(folder.path(), "trainer-0").status();
  EXPECT_TRUE(absl::IsInvalidArgument(second)) << second;
  EXPECT_NE(second.message().find("launch on "), absl::string_view::npos) << second;
  EXPECT_NE(second.message().find(absl::StrCat("pid ", getpid())), absl::string_view::npos)
      << second;
}

TEST(FolderLockTest, EndsWithItsOwnerAndLeavesNothing) {
  const support::TempFolder folder;
  const std::string out = folder / "a/b/c/";
  for (int i = 0; i < 2; ++i) {
    const auto lock = FolderLock::Take(out, "launch");
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_TRUE(fs::exists(out + ".lock"));
  }
  EXPECT_FALSE(fs::exists(folder / "a")) << "nothing came into the folders that were made for it";
  {
    const auto lock = FolderLock::Take(out, "launch");
    fs::create_directories(out + "checkpoints");
  }
  EXPECT_TRUE(fs::exists(out + "checkpoints"));
  EXPECT_FALSE(fs::exists(out + ".lock"));
}

TEST(FolderLockTest, OwnerThatIsEndingIsWaitedFor) {
  const support::TempFolder folder;
  auto lock = FolderLock::Take(folder.path(), "launch");
  ASSERT_TRUE(lock.ok()) << lock.status();
  (*lock)->MarkEnding();
  std::thread ending([&lock] {
    absl::SleepFor(absl::Seconds(1));  // longer than an owner that goes on is asked
    lock->reset();
  });
  const auto next = FolderLock::Take(folder.path(), "launch");
  ending.join();
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST(FolderLockTest, KilledOwnerLeavesNoLockButToWhomTheLockWasGiven) {
  const support::TempFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    const auto lock = FolderLock::Take(folder.path(), "launch");
    const auto child =
        lock.ok() ? FolderLock::Adopt(folder.path(), dup((*lock)->fd())) : lock.status();
    if (!child.ok() || write(ready[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(FolderLock::Take(folder.path(), "launch").status()));
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  EXPECT_TRUE(fs::exists(folder / ".lock")) << "a killed owner cannot remove its file";
  const auto next = FolderLock::Take(folder.path(), "launch");
  EXPECT_TRUE(next.ok()) << next.status();
  close(ready[0]);
  close(ready[1]);
}

TEST(FolderLockTest, OnlyTheFoldersOwnLockCanBeGivenOn) {
  const support::TempFolder folder, other;
  const auto lock = FolderLock::Take(other.path(), "launch");
  ASSERT_TRUE(lock.ok()) << lock.status();
  for (const int fd : {(*lock)->fd(), 0, 999}) {
    EXPECT_TRUE(absl::IsInvalidArgument(FolderLock::Adopt(folder.path(), fd).status())) << fd;
  }
}

TEST(FolderLockTest, FolderThatCannotBeIsRefused) {
  const support::TempFolder folder;
  const std::string file = folder.Write("file", "");
  const absl::Status status = FolderLock::Take(file + "/out", "launch").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("Not a directory"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tandem::cli
