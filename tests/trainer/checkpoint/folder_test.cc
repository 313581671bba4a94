// Which checkpoints stay, which one is taken, and the folder after a kill between any two renames.
#include "trainer/checkpoint/folder.h"

#include "tests/trainer/checkpoint/file_damage.h"
#include "tests/trainer/checkpoint/small_checkpoint.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;
using NameList = std::vector<std::string>;

class FolderTest : public CheckpointTest {
 protected:
  void WriteStep(uint64_t step, int keep, uint64_t best_step = 0) {
    Train(step);
    const absl::Status written = Write(step, keep, best_step);
    ASSERT_TRUE(written.ok()) << written;
  }
  uint64_t StepOf(const std::string& path, Choice choice = Choice::NEWEST) {
    const auto checkpoint = OpenCheckpoint(path, choice);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return checkpoint.ok() ? checkpoint->manifest.step() : 0;
  }
  void Rename(const std::string& from, const std::string& to) {
    fs::rename(folder_ / from, folder_ / to);
  }
};

TEST_F(FolderTest, NewestIsTakenAndOldOnesGo) {
  for (uint64_t step = 1; step <= 4; ++step) WriteStep(step, /*keep=*/2);
  EXPECT_EQ(Names(folder_.path()), (NameList{"step-00000003", "step-00000004"}));
  EXPECT_EQ(StepOf(folder_.path()), 4u);
  EXPECT_EQ(StepOf(folder_ / "step-00000003"), 3u);
}

TEST_F(FolderTest, BestOneStaysUntilAnotherIs) {
  const uint64_t best_of_step[] = {0, 0, 2, 2, 2, 2, 6, 6};
  for (uint64_t step = 1; step <= 7; ++step) {
    WriteStep(step, /*keep=*/1, best_of_step[step]);
    if (step == 5) {
      EXPECT_EQ(Names(folder_.path()), (NameList{"step-00000002", "step-00000005"}));
      EXPECT_EQ(StepOf(folder_.path(), Choice::BEST), 2u);
      EXPECT_EQ(StepOf(folder_.path(), Choice::NEWEST), 5u);
    }
  }
  EXPECT_EQ(Names(folder_.path()), (NameList{"step-00000006", "step-00000007"}))
      << "step 2 is the best no longer";
  EXPECT_EQ(StepOf(folder_.path(), Choice::BEST), 6u);
}

TEST_F(FolderTest, BestOneMayBeAmongTheNewest) {
  for (uint64_t step = 1; step <= 4; ++step) WriteStep(step, /*keep=*/3, /*best_step=*/3);
  EXPECT_EQ(Names(folder_.path()), (NameList{"step-00000002", "step-00000003", "step-00000004"}));
  EXPECT_EQ(StepOf(folder_.path(), Choice::BEST), 3u);
}

TEST_F(FolderTest, WithoutABestOneTheNewestIsTaken) {
  for (uint64_t step = 1; step <= 3; ++step)
    WriteStep(step, /*keep=*/3, /*best_step=*/step == 3 ? 1 : 0);
  EXPECT_EQ(StepOf(folder_.path(), Choice::BEST), 3u) << "step 1 did not know";
  EXPECT_EQ(*BestCheckpoint(folder_.path()), *NewestCheckpoint(folder_.path()));
}

TEST_F(FolderTest, UnreadableManifestIsNamedByBestAndNotRemoved) {
  for (uint64_t step = 1; step <= 2; ++step) WriteStep(step, /*keep=*/2);
  WriteBytes(folder_ / "step-00000001/manifest.textproto", "garbage");
  const absl::Status best = BestCheckpoint(folder_.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(best)) << best;
  EXPECT_NE(best.message().find("step-00000001/manifest.textproto"), absl::string_view::npos)
      << best;
  EXPECT_EQ(StepOf(folder_.path(), Choice::NEWEST), 2u);
  WriteStep(3, /*keep=*/1);
  EXPECT_EQ(Names(folder_.path()), (NameList{"step-00000001", "step-00000003"}))
      << "it may be the best";
  WriteStep(4, /*keep=*/1, /*best_step=*/4);
  EXPECT_EQ(Names(folder_.path()), (NameList{"step-00000004"})) << "now it is known not to be";
}

TEST_F(FolderTest, AnotherRunsCheckpointsGoWholeOrAreNamed) {
  WriteStep(1, /*keep=*/1);
  const std::string folder = folder_ / "checkpoints", aside = folder + ".removed";
  fs::create_directories(folder + "/step-00000001");
  fs::create_directories(aside + "/step-00000009");  // of a run that died while it removed them
  ASSERT_TRUE(RemoveCheckpoints(folder).ok());
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_FALSE(fs::exists(aside));
  EXPECT_TRUE(RemoveCheckpoints(folder).ok()) << "there is none";
  const std::string unmovable = folder_ / std::string(250, 'x');  // no name is left for it
  fs::create_directories(unmovable + "/step-00000001");
  const absl::Status status = RemoveCheckpoints(unmovable);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find(unmovable), absl::string_view::npos) << status;
  EXPECT_TRUE(fs::exists(unmovable + "/step-00000001"));
}

TEST_F(FolderTest, EmptyOrMissingFolderHasNone) {
  for (const std::string& path : {folder_.path(), folder_ / "nowhere"}) {
    for (const auto& found : {NewestCheckpoint(path), BestCheckpoint(path)}) {
      EXPECT_TRUE(absl::IsFailedPrecondition(found.status())) << found.status();
      EXPECT_NE(found.status().message().find(path), absl::string_view::npos) << found.status();
    }
  }
}

TEST_F(FolderTest, StepWrittenAgainReplacesTheOlder) {
  WriteStep(1, 1);
  ASSERT_TRUE(Write(1, 1, /*best_step=*/1).ok());
  EXPECT_EQ(Names(folder_.path()), NameList{"step-00000001"});
  EXPECT_EQ(OpenCheckpoint(folder_.path(), Choice::NEWEST)->manifest.best_step(), 1u);
}

TEST_F(FolderTest, DraftOfADeadRunIsNoCheckpointAndGoes) {
  fs::create_directories(folder_ / ".draft-step-00000009");
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenCheckpoint(folder_.path(), Choice::NEWEST).status()));
  WriteStep(1, 1);
  EXPECT_EQ(Names(folder_.path()), NameList{"step-00000001"});
}

TEST_F(FolderTest, KilledBetweenTheRenamesTheOlderIsStillFound) {
  WriteStep(1, 2);
  WriteStep(2, 2);
  // Imitates a kill while Publish replaces step 2: the old checkpoint is hidden, the new one still
  // a draft.
  Rename("step-00000002", ".replaced-step-00000002");
  fs::create_directories(folder_ / ".draft-step-00000002");
  EXPECT_EQ(StepOf(folder_.path()), 2u);
  WriteStep(3, 2);
  EXPECT_EQ(Names(folder_.path()), (NameList{".replaced-step-00000002", "step-00000003"}))
      << "it still counts";
  WriteStep(4, 2);
  EXPECT_EQ(Names(folder_.path()), (NameList{"step-00000003", "step-00000004"}));
}

TEST_F(FolderTest, KilledAfterTheRenamesTheNewerIsTakenAndTheOlderGoes) {
  WriteStep(1, 2);
  fs::copy(folder_ / "step-00000001", folder_ / ".replaced-step-00000001");
  WriteBytes(folder_ / ".replaced-step-00000001/manifest.textproto", "half removed");
  EXPECT_EQ(StepOf(folder_.path()), 1u);
  ASSERT_TRUE(Write(1, 2).ok());
  EXPECT_EQ(Names(folder_.path()), NameList{"step-00000001"});
}

TEST_F(FolderTest, KilledWhileRemovingNothingHalfLooksLikeACheckpoint) {
  WriteStep(1, 1);
  fs::create_directories(folder_ / ".removed");
  WriteBytes(folder_ / ".removed/manifest.textproto", "half removed");
  EXPECT_EQ(ListCheckpoints(folder_.path()), NameList{folder_ / "step-00000001"});
  WriteStep(2, 1);
  EXPECT_EQ(Names(folder_.path()), NameList{"step-00000002"});
}

TEST_F(FolderTest, RunThatWentBackReplacesItsOldFuture) {
  for (uint64_t step = 1; step <= 4; ++step) WriteStep(step, /*keep=*/4);
  WriteBytes(folder_ / "step-00000004/manifest.textproto", "damaged");
  SmallRun resumed;  // after step 2
  for (uint64_t step = 1; step <= 3; ++step) resumed.Train(step);
  ASSERT_TRUE(resumed.Write(folder_.path(), 3, /*keep=*/2).ok());
  EXPECT_EQ(Names(folder_.path()), (NameList{"step-00000002", "step-00000003"}));
  EXPECT_EQ(StepOf(folder_.path()), 3u);
}

TEST_F(FolderTest, OtherEntriesAreLeftAlone) {
  for (const char* name : {"step-1", "step-0000000x", "notes", ".hidden"})
    fs::create_directories(folder_ / name);
  WriteStep(1, 1);
  WriteStep(2, 1);
  EXPECT_EQ(Names(folder_.path()),
            (NameList{".hidden", "notes", "step-00000002", "step-0000000x", "step-1"}));
}

}  // namespace
}  // namespace tandem::checkpoint
