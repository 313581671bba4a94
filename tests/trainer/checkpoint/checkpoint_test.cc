// Writer and reader together: the files on disk, and that no damage goes unnoticed.
#include <map>

#include "tests/trainer/checkpoint/file_damage.h"
#include "tests/trainer/checkpoint/small_checkpoint.h"
#include "trainer/checkpoint/safetensors.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

TEST_F(CheckpointTest, FolderHoldsManifestDenseAndRowsAndNoDraft) {
  TrainAndWrite(1);
  EXPECT_EQ(Names(folder_.path()), std::vector<std::string>{"step-00000001"});
  const std::vector<std::string> names = Names(Step1());
  ASSERT_EQ(names.size(), 4u) << "rows of two workers";
  EXPECT_EQ(names[0], "dense.safetensors");
  EXPECT_EQ(names[1], "manifest.textproto");
  for (size_t i : {2, 3}) EXPECT_EQ(names[i].substr(0, 11), "table-item-");
}

TEST_F(CheckpointTest, DenseFileHasParametersAndSlotsByName) {
  TrainAndWrite(1);
  const auto dense = ReadSafetensors(Step1() + "/dense.safetensors");
  ASSERT_TRUE(dense.ok()) << dense.status();
  std::map<std::string, double> first;
  for (const NamedTensor& named : dense->tensors) first[named.name] = named.tensor.At(0);
  EXPECT_EQ(first.size(), 6u);
  EXPECT_EQ(first.at("layer.bias"), run_.parameters().all()[1]->variable.value().At(0));
  EXPECT_EQ(first.at("layer.weight#m"), run_.optimizer().slots(0)[0].At(0));
  EXPECT_EQ(first.at("layer.weight#v"), run_.optimizer().slots(0)[1].At(0));
  EXPECT_NE(first.at("layer.weight#m"), first.at("layer.weight#v"));
}

TEST_F(CheckpointTest, ManifestComesBack) {
  TrainAndWrite(1);
  const auto checkpoint = OpenCheckpoint(folder_.path(), Choice::NEWEST);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->manifest.step(), 1u);
  EXPECT_EQ(checkpoint->manifest.samples_consumed(), 100u);
  EXPECT_EQ(checkpoint->manifest.best_selection(), 1.0 / 3);
  EXPECT_EQ(checkpoint->manifest.job().SerializeAsString(), SmallJob().SerializeAsString());
  EXPECT_EQ(checkpoint->manifest.tables(0).SerializeAsString(), Spec().SerializeAsString());
}

TEST_F(CheckpointTest, RowsOfAnotherStepAreNotSaved) {
  TrainAndWrite(1);
  const absl::Status status = Write(2);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(Names(folder_.path()), std::vector<std::string>{"step-00000001"})
      << "the older one stays, no draft does";
}

TEST_F(CheckpointTest, FlippedByteInAnyFileIsNoticed) {
  TrainAndWrite(1);
  ASSERT_TRUE(OpenCheckpoint(Step1(), Choice::NEWEST).ok());
  for (const std::string& name : Names(Step1())) {
    const std::string path = Step1() + "/" + name;
    for (size_t i = 0; i < fs::file_size(path); ++i) {
      FlipByte(path, i);
      const absl::Status status = OpenCheckpoint(Step1(), Choice::NEWEST).status();
      ASSERT_TRUE(absl::IsFailedPrecondition(status)) << name << " byte " << i << ": " << status;
      ASSERT_NE(status.message().find(name), absl::string_view::npos) << status;
      ASSERT_EQ(status.message().substr(0, 11), "checkpoint ") << status;
      FlipByte(path, i);
    }
  }
  EXPECT_TRUE(OpenCheckpoint(Step1(), Choice::NEWEST).ok());
}

TEST_F(CheckpointTest, TruncatedLongerAndMissingFilesAreNoticed) {
  TrainAndWrite(1);
  for (const std::string& name : Names(Step1())) {
    const std::string path = Step1() + "/" + name, bytes = ReadBytes(path);
    const auto expect_noticed = [&] {
      const absl::Status status = OpenCheckpoint(Step1(), Choice::NEWEST).status();
      ASSERT_TRUE(absl::IsFailedPrecondition(status)) << name << " of " << fs::file_size(path);
      ASSERT_NE(status.message().find(name), absl::string_view::npos) << status;
      ASSERT_NE(status.message().find(name == "manifest.textproto" ? "cut short" : "were written"),
                absl::string_view::npos)
          << status;
    };
    for (const std::string& tail : {std::string("x"), bytes}) {
      WriteBytes(path, bytes + tail);
      expect_noticed();
    }
    for (size_t size = bytes.size(); size-- > 0;) {
      fs::resize_file(path, size);
      expect_noticed();
    }
    fs::remove(path);
    const absl::Status missing = OpenCheckpoint(Step1(), Choice::NEWEST).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
    EXPECT_NE(missing.message().find(name), absl::string_view::npos) << missing;
    WriteBytes(path, bytes);
  }
}

TEST_F(CheckpointTest, FolderThatIsNotThereIsAFailedPrecondition) {
  const absl::Status status = OpenCheckpoint(folder_ / "nowhere", Choice::NEWEST).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("nowhere"), absl::string_view::npos) << status;
}

TEST_F(CheckpointTest, ForeignFolderIsAFailedPreconditionNamingTheManifest) {
  folder_.Write("notes.txt", "not a checkpoint");
  const absl::Status status = OpenCheckpoint(folder_.path(), Choice::BEST).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find(folder_ / "manifest.textproto"), absl::string_view::npos)
      << status;
}

TEST_F(CheckpointTest, EntriesThatAreNoPartsOfCheckpointsAreIgnored) {
  TrainAndWrite(1);
  WriteBytes(Step1() + "/README", "the user's");
  fs::create_directory(Step1() + "/notes");
  EXPECT_TRUE(OpenCheckpoint(Step1(), Choice::NEWEST).ok());
}

}  // namespace
}  // namespace tandem::checkpoint
