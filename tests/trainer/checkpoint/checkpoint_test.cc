// Writer and reader together: what is on disk, what stays, and that no damage goes unnoticed.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "absl/strings/str_format.h"
#include "kernels/base/checked_file.h"
#include "ps/client_local.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/checkpoint/file_damage.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/writer.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

TableSpec Spec() {
  TableSpec spec;
  spec.set_name("item");
  spec.set_number(1);
  spec.set_dim(3);
  spec.set_optimizer(SPARSE_ADAM);
  spec.set_beta1(0.9f);
  spec.set_beta2(0.999f);
  spec.set_epsilon(1e-8f);
  spec.set_init_stddev(0.1f);
  spec.set_seed(5);
  return spec;
}

Job SmallJob() {
  Job job;
  job.set_name("small");
  job.mutable_model()->mutable_sequence_rec()->set_layers(2);
  Table* table = job.add_tables();
  table->set_name("item");
  table->set_dim(3);
  return job;
}

// A model of two parameters and one table, trained for some steps.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    parameters_.Normal("layer.weight", Shape{4, 3}, 1);
    parameters_.Constant("layer.bias", Shape{3}, 0.5);
    optimizer_ = std::make_unique<optim::DenseOptimizer>(optim::DenseOptions{}, &parameters_);
    for (size_t i = 0; i < 2; ++i) optimizer_->slots(i)[1].Set(0, 42);
    EXPECT_TRUE(client_.CreateTables({Spec()}, absl::Seconds(30)).ok());
  }

  void Train(uint64_t step) {
    std::vector<uint64_t> ids{1000 + step};
    for (uint64_t id = 1; id <= 20; ++id) ids.push_back(id);
    const std::vector<float> gradients(3 * ids.size(), 0.5f);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    ASSERT_TRUE(client_.Accumulate(step, 0, {{1, ids, gradients.data()}}).Wait(deadline).ok());
    ASSERT_TRUE(client_.Commit({step, {{1, 0.1f}}, 1, false}).Wait(deadline).ok());
  }

  absl::Status Write(uint64_t step, int keep = 1) {
    WriteArgs args{.folder = folder_.path(),
                   .manifest = {},
                   .parameters = &parameters_,
                   .optimizer = optimizer_.get(),
                   .client = &client_,
                   .keep = keep,
                   .deadline = absl::Now() + absl::Seconds(30)};
    *args.manifest.mutable_job() = SmallJob();
    args.manifest.set_step(step);
    args.manifest.set_samples_consumed(100 * step);
    args.manifest.set_best_selection(1.0 / 3);
    *args.manifest.add_tables() = Spec();
    return WriteCheckpoint(args);
  }

  std::vector<std::string> Names(const std::string& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string Step1() const { return folder_ / "step-00000001"; }

  const support::TempFolder folder_;
  ps::TableHost host_{2};
  ps::LocalClient client_{host_, 0, 1};
  ParameterSet parameters_{1, DType::F32};
  std::unique_ptr<optim::DenseOptimizer> optimizer_;
};

TEST_F(CheckpointTest, FolderHoldsManifestDenseAndRowsAndNoDraft) {
  Train(1);
  ASSERT_TRUE(Write(1).ok());
  EXPECT_EQ(Names(folder_.path()), std::vector<std::string>{"step-00000001"});
  const std::vector<std::string> names = Names(Step1());
  ASSERT_EQ(names.size(), 4u) << "rows of two workers";
  EXPECT_EQ(names[0], "dense.safetensors");
  EXPECT_EQ(names[1], "manifest.textproto");
  for (size_t i : {2, 3}) EXPECT_EQ(names[i].substr(0, 11), "table-item-");
}

TEST_F(CheckpointTest, DenseFileHasParametersAndSlotsByName) {
  Train(1);
  ASSERT_TRUE(Write(1).ok());
  const auto dense = ReadSafetensors(Step1() + "/dense.safetensors");
  ASSERT_TRUE(dense.ok()) << dense.status();
  std::map<std::string, double> first;
  for (const NamedTensor& named : dense->tensors) first[named.name] = named.tensor.At(0);
  EXPECT_EQ(first.size(), 6u);
  EXPECT_EQ(first.at("layer.bias"), 0.5);
  EXPECT_EQ(first.at("layer.weight#m"), 0);
  EXPECT_EQ(first.at("layer.weight#v"), 42);
}

TEST_F(CheckpointTest, ManifestAndParametersComeBack) {
  Train(1);
  ASSERT_TRUE(Write(1).ok());
  const auto checkpoint = OpenCheckpoint(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->manifest.step(), 1u);
  EXPECT_EQ(checkpoint->manifest.samples_consumed(), 100u);
  EXPECT_EQ(checkpoint->manifest.best_selection(), 1.0 / 3);
  EXPECT_EQ(checkpoint->manifest.job().SerializeAsString(), SmallJob().SerializeAsString());
  EXPECT_EQ(checkpoint->manifest.tables(0).SerializeAsString(), Spec().SerializeAsString());
  ParameterSet loaded(99, DType::F32);
  loaded.Normal("layer.weight", Shape{4, 3}, 1);
  loaded.Constant("layer.bias", Shape{3}, 0);
  ASSERT_TRUE(LoadParameters(*checkpoint, loaded).ok());
  for (size_t i = 0; i < 2; ++i) {
    const Tensor &a = parameters_.all()[i]->variable.value(), &b = loaded.all()[i]->variable.value();
    EXPECT_EQ(0, std::memcmp(a.raw(), b.raw(), a.num_bytes()));
  }
}

TEST_F(CheckpointTest, NewestIsTakenAndOldOnesGo) {
  for (uint64_t step = 1; step <= 4; ++step) {
    Train(step);
    ASSERT_TRUE(Write(step, /*keep=*/2).ok());
  }
  EXPECT_EQ(Names(folder_.path()), (std::vector<std::string>{"step-00000003", "step-00000004"}));
  EXPECT_EQ(OpenCheckpoint(folder_.path())->manifest.step(), 4u);
  EXPECT_EQ(OpenCheckpoint(folder_ / "step-00000003")->manifest.step(), 3u);
}

TEST_F(CheckpointTest, DraftOfADeadRunIsNoCheckpointAndGoes) {
  fs::create_directories(folder_ / ".draft-step-00000009");
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenCheckpoint(folder_.path()).status()));
  Train(1);
  ASSERT_TRUE(Write(1).ok());
  EXPECT_EQ(Names(folder_.path()), std::vector<std::string>{"step-00000001"});
}

TEST_F(CheckpointTest, RowsOfAnotherStepAreNotSaved) {
  Train(1);
  ASSERT_TRUE(Write(1).ok());
  const absl::Status status = Write(2);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(Names(folder_.path()), std::vector<std::string>{"step-00000001"}) << "the older one stays, no draft does";
}

TEST_F(CheckpointTest, FlippedByteInAnyFileIsNoticed) {
  Train(1);
  ASSERT_TRUE(Write(1).ok());
  ASSERT_TRUE(OpenCheckpoint(Step1()).ok());
  for (const std::string& name : Names(Step1())) {
    const std::string path = Step1() + "/" + name;
    for (size_t i = 0; i < fs::file_size(path); ++i) {
      FlipByte(path, i);
      const absl::Status status = OpenCheckpoint(Step1()).status();
      ASSERT_TRUE(absl::IsFailedPrecondition(status)) << name << " byte " << i << ": " << status;
      ASSERT_NE(status.message().find(name), absl::string_view::npos) << status;
      ASSERT_EQ(status.message().substr(0, 11), "checkpoint ") << status;
      FlipByte(path, i);
    }
  }
  EXPECT_TRUE(OpenCheckpoint(Step1()).ok());
}

TEST_F(CheckpointTest, TruncatedLongerAndMissingFilesAreNoticed) {
  Train(1);
  ASSERT_TRUE(Write(1).ok());
  for (const std::string& name : Names(Step1())) {
    const std::string path = Step1() + "/" + name, bytes = ReadBytes(path);
    for (const std::string& damaged : {std::string(), bytes.substr(0, bytes.size() - 1), bytes + "x", bytes + bytes}) {
      WriteBytes(path, damaged);
      const absl::Status status = OpenCheckpoint(Step1()).status();
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << name << " of " << damaged.size();
      EXPECT_NE(status.message().find(name == "manifest.textproto" ? "cut short" : "were written"), absl::string_view::npos)
          << status;
    }
    fs::remove(path);
    const absl::Status missing = OpenCheckpoint(Step1()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
    EXPECT_NE(missing.message().find(name), absl::string_view::npos) << missing;
    WriteBytes(path, bytes);
  }
}

TEST_F(CheckpointTest, FolderThatIsNotThereIsAFailedPrecondition) {
  const absl::Status status = OpenCheckpoint(folder_ / "nowhere").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("nowhere"), absl::string_view::npos) << status;
}

TEST_F(CheckpointTest, ParametersOfAnotherModelAreRefusedAndNothingChanges) {
  Train(1);
  ASSERT_TRUE(Write(1).ok());
  const auto checkpoint = OpenCheckpoint(Step1());
  const auto refused = [&](ParameterSet& model, const char* word) {
    const std::vector<double> before{model.all()[0]->variable.value().At(0)};
    const absl::Status status = LoadParameters(*checkpoint, model);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
    EXPECT_EQ(model.all()[0]->variable.value().At(0), before[0]);
  };
  ParameterSet more(2, DType::F32), fewer(2, DType::F32), shape(2, DType::F32), dtype(2, DType::F64);
  for (ParameterSet* model : {&more, &fewer, &shape, &dtype}) model->Normal("layer.weight", Shape{4, 3}, 1);
  for (ParameterSet* model : {&more, &dtype}) model->Constant("layer.bias", Shape{3}, 0);
  more.Constant("layer.extra", Shape{1}, 0);
  shape.Constant("layer.bias", Shape{4}, 0);
  refused(more, "layer.extra");
  refused(fewer, "2 parameters");
  refused(shape, "layer.bias");
  refused(dtype, "f64");
}

CheckpointManifest SmallManifest() {
  CheckpointManifest manifest;
  *manifest.mutable_job() = SmallJob();
  *manifest.add_tables() = Spec();
  manifest.mutable_dense()->set_name("dense.safetensors");
  manifest.add_rows()->set_name("table-item-0000.rows");
  return manifest;
}

TEST(ManifestTest, OtherVersionIsRefusedNamingBoth) {
  const support::TempFolder folder;
  ASSERT_TRUE(WriteManifest(folder.path(), SmallManifest()).ok());
  std::string text = ReadBytes(folder / "manifest.textproto");
  text = text.substr(0, text.find("# crc32c"));
  text.replace(text.find("format_version: 1"), 17, "format_version: 2");
  // An honest file of a later version has an honest checksum.
  FileWriter writer(folder / "scratch");
  writer.Append(text.data(), text.size());
  WriteBytes(folder / "manifest.textproto", text + absl::StrFormat("# crc32c %08x\n", writer.Finish()->crc32c));
  const absl::Status status = ReadManifest(folder.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("format version 2; this tandem reads 1"), absl::string_view::npos) << status;
}

TEST(ManifestTest, NamesThatLeaveTheFolderOrRepeatAreRefused) {
  const support::TempFolder folder;
  for (const char* name : {"", "..", "../x", "/etc/passwd", "a/b", ".hidden", "dense.safetensors"}) {
    CheckpointManifest manifest = SmallManifest();
    manifest.mutable_rows(0)->set_name(name);
    ASSERT_TRUE(WriteManifest(folder.path(), manifest).ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(ReadManifest(folder.path()).status())) << name;
  }
}

TEST(ManifestTest, AnotherModelIsRefusedNamingTheField) {
  const CheckpointManifest manifest = SmallManifest();
  EXPECT_TRUE(CheckSameModel(SmallJob(), manifest).ok());
  Job trained = SmallJob();
  trained.mutable_model()->mutable_sequence_rec()->set_dropout(0.3f);
  trained.mutable_tables(0)->set_learning_rate(7);
  trained.mutable_data()->set_path("elsewhere");
  EXPECT_TRUE(CheckSameModel(trained, manifest).ok()) << "evaluation reads none of these";
  Job layers = SmallJob(), dim = SmallJob(), name = SmallJob();
  layers.mutable_model()->mutable_sequence_rec()->set_layers(3);
  dim.mutable_tables(0)->set_dim(8);
  name.mutable_tables(0)->set_name("user");
  for (const auto& [job, word] : {std::pair(layers, "model.sequence_rec.layers: 2 -> 3"),
                                  std::pair(dim, "tables[0].dim: 3 -> 8"), std::pair(name, "tables[0].name")}) {
    const absl::Status status = CheckSameModel(job, manifest);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
  }
}

TEST(ManifestTest, TablesThatContradictTheJobAreRefused) {
  CheckpointManifest manifest = SmallManifest();
  manifest.mutable_tables(0)->set_dim(64);
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckSameModel(SmallJob(), manifest)));
  manifest.clear_tables();
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckSameModel(SmallJob(), manifest)));
}

}  // namespace
}  // namespace tandem::checkpoint
