// After a power loss a machine has the old checkpoint or the new one whole: files and folders are
// synced in the right order.
// This program defines fsync and rename itself. They record their arguments, then do what the C
// library's do.
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/trainer/checkpoint/small_checkpoint.h"

namespace tandem::checkpoint {
namespace {

ABSL_CONST_INIT absl::Mutex calls_mutex(absl::kConstInit);
std::vector<std::string>* calls = nullptr;  // null: nobody wants to know

void Note(const std::string& call) {
  absl::MutexLock lock(&calls_mutex);
  if (calls != nullptr) calls->push_back(call);
}

std::string PathOf(int fd) {
  std::error_code ignored;
  return std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd), ignored).string();
}

}  // namespace
}  // namespace tandem::checkpoint

extern "C" int fsync(int fd) {
  tandem::checkpoint::Note("fsync " + tandem::checkpoint::PathOf(fd));
  return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  tandem::checkpoint::Note(absl::StrCat("rename ", from, " to ", to));
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace tandem::checkpoint {
namespace {

class DurabilityTest : public CheckpointTest {
 protected:
  // Writes a checkpoint and returns the calls.
  std::vector<std::string> WriteAndListen(uint64_t step) {
    std::vector<std::string> heard;
    {
      absl::MutexLock lock(&calls_mutex);
      calls = &heard;
    }
    const absl::Status written = run_.Write(checkpoints_, step);
    absl::MutexLock lock(&calls_mutex);
    calls = nullptr;
    EXPECT_TRUE(written.ok()) << written;
    return heard;
  }
  // The place of the call. Expects that the call was made once.
  static std::ptrdiff_t PlaceOf(const std::vector<std::string>& heard, const std::string& call) {
    EXPECT_EQ(std::count(heard.begin(), heard.end(), call), 1) << call;
    return std::find(heard.begin(), heard.end(), call) - heard.begin();
  }

  const std::string checkpoints_ = folder_ / "checkpoints";
  const std::string draft_ = checkpoints_ + "/.draft-step-00000001",
                    step_ = checkpoints_ + "/step-00000001";
};

TEST_F(DurabilityTest, FilesAndTheirFolderReachTheDiskBeforeTheRenameAndTheRenameBeforeTheEnd) {
  Train(1);
  const std::vector<std::string> heard = WriteAndListen(1);
  const auto renamed = PlaceOf(heard, absl::StrCat("rename ", draft_, " to ", step_));
  const std::vector<std::string> names = Names(step_);
  ASSERT_EQ(names.size(), 4u) << "manifest, dense parameters and the rows of two workers";
  const auto folder_synced = PlaceOf(heard, "fsync " + draft_);
  for (const std::string& name : names) {
    EXPECT_LT(PlaceOf(heard, absl::StrCat("fsync ", draft_, "/", name)), folder_synced)
        << "its entry is on disk with the folder: " << name;
  }
  EXPECT_LT(folder_synced, renamed);
  EXPECT_GT(PlaceOf(heard, "fsync " + checkpoints_), renamed) << "the rename itself";
  EXPECT_LT(PlaceOf(heard, "fsync " + folder_.path()), renamed)
      << "the folder of checkpoints is new";
}

TEST_F(DurabilityTest, AnOlderCheckpointOfTheStepGoesWhenTheNewOneIsOnDisk) {
  Train(1);
  WriteAndListen(1);
  const std::vector<std::string> heard = WriteAndListen(1);
  const std::string replaced = checkpoints_ + "/.replaced-step-00000001";
  const auto aside = PlaceOf(heard, absl::StrCat("rename ", step_, " to ", replaced));
  const auto renamed = PlaceOf(heard, absl::StrCat("rename ", draft_, " to ", step_));
  const auto synced = PlaceOf(heard, "fsync " + checkpoints_);
  const auto removed =
      PlaceOf(heard, absl::StrCat("rename ", replaced, " to ", checkpoints_, "/.removed"));
  EXPECT_LT(aside, renamed);
  EXPECT_LT(renamed, synced);
  EXPECT_LT(synced, removed);
}

TEST_F(DurabilityTest, AWriteThatFailsPublishesNothing) {
  Train(1);
  std::vector<std::string> heard;
  {
    absl::MutexLock lock(&calls_mutex);
    calls = &heard;
  }
  EXPECT_FALSE(run_.Write(checkpoints_, 2).ok()) << "the rows are of step 1";
  absl::MutexLock lock(&calls_mutex);
  calls = nullptr;
  for (const std::string& call : heard) EXPECT_EQ(call.find("rename"), std::string::npos) << call;
  EXPECT_EQ(Names(checkpoints_), std::vector<std::string>());
}

}  // namespace
}  // namespace tandem::checkpoint
