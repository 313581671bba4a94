// The manifest: files that are no manifest, and manifests of another run.
#include "trainer/checkpoint/manifest.h"

#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_format.h"
#include "kernels/base/checked_file.h"
#include "tests/trainer/checkpoint/file_damage.h"
#include "tests/trainer/checkpoint/small_checkpoint.h"
#include "tests/trainer/our_kinds.h"

namespace tandem::checkpoint {
namespace {

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
  // A valid file of a later version has a valid checksum.
  FileWriter writer(folder / "scratch");
  writer.Append(text.data(), text.size());
  WriteBytes(folder / "manifest.textproto",
             text + absl::StrFormat("# crc32c %08x\n", writer.Finish()->crc32c));
  const absl::Status status = ReadManifest(folder.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("format version 2; this tandem reads 1"), absl::string_view::npos)
      << status;
}

TEST(ManifestTest, WhatIsNoFileOrFarTooLargeIsRefusedUnread) {
  const support::TempFolder folder;
  const std::string path = folder / "manifest.textproto";
  for (const bool large : {false, true}) {
    if (large) {
      std::filesystem::remove(path);
      WriteBytes(path, "");
      std::filesystem::resize_file(path, (uint64_t{64} << 20) + 1);  // takes no place on disk
    } else {
      std::filesystem::create_directories(path);
    }
    const absl::Status status = ReadManifest(folder.path()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(large ? "67108865 bytes" : "as a file"),
              absl::string_view::npos)
        << status;
  }
}

TEST(ManifestTest, NamesThatLeaveTheFolderOrRepeatAreRefused) {
  const support::TempFolder folder;
  for (const char* name :
       {"", "..", "../x", "/etc/passwd", "a/b", ".hidden", "dense.safetensors"}) {
    CheckpointManifest manifest = SmallManifest();
    manifest.mutable_rows(0)->set_name(name);
    ASSERT_TRUE(WriteManifest(folder.path(), manifest).ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(ReadManifest(folder.path()).status())) << name;
  }
}

void ExpectRefused(const absl::Status& status, const std::string& word) {
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find(word), absl::string_view::npos) << status << "\nwanted: " << word;
}

TEST(ManifestTest, FolderOfAnotherStepIsRefusedNamingBoth) {
  const support::TempFolder folder;
  CheckpointManifest manifest = SmallManifest();
  manifest.set_step(30);
  for (const char* name : {"step-00000030", "step-00000031", ".replaced-step-00000029", "copy"}) {
    const std::string path = folder / name;
    std::filesystem::create_directories(path);
    ASSERT_TRUE(WriteManifest(path, manifest).ok());
    const auto read = ReadManifest(path);
    if (std::string(name) == "step-00000030" || std::string(name) == "copy") {
      EXPECT_TRUE(read.ok()) << read.status();
    } else {
      ExpectRefused(read.status(), "is of step 30");
    }
  }
}

TEST(ManifestTest, FileThatTheManifestLeavesOutIsRefused) {
  for (const char* name : {"table-item-0512.rows", "other.safetensors", "notes.txt"}) {
    const support::TempFolder folder;
    ASSERT_TRUE(WriteManifest(folder.path(), SmallManifest()).ok());
    WriteBytes(folder / name, "bytes");
    const auto read = ReadManifest(folder.path());
    if (std::string(name) == "notes.txt") {
      EXPECT_TRUE(read.ok()) << read.status();
    } else {
      ExpectRefused(read.status(), name);
    }
  }
}

// Each case seals the manifest again with one count that no run can have.
TEST(ManifestTest, CountsThatNoRunHasAreRefused) {
  const std::vector<std::pair<std::string, std::function<void(CheckpointManifest&)>>> absurd{
      {"step is", [](auto& m) { m.set_step(uint64_t{1} << 60); }},
      {"best_step", [](auto& m) { m.set_best_step(101); }},
      {"epoch is", [](auto& m) { m.set_epoch(102); }},
      {"best_epoch", [](auto& m) { m.set_best_epoch(102); }},
      {"epoch_steps", [](auto& m) { m.set_epoch_steps(101); }},
      {"epoch_skipped_steps", [](auto& m) { m.set_epoch_skipped_steps(1); }},
      {"evaluations_since_best", [](auto& m) { m.set_evaluations_since_best(101); }},
      {"samples_consumed", [](auto& m) { m.set_samples_consumed(808); }},
      {"not finite", [](auto& m) { m.set_best_selection(std::nan("")); }},
      {"not finite", [](auto& m) { m.set_epoch_loss(std::numeric_limits<double>::infinity()); }},
  };
  const support::TempFolder folder;
  CheckpointManifest manifest = SmallManifest();
  manifest.mutable_job()->mutable_train()->set_batch_size(8);
  manifest.set_step(100);
  manifest.set_samples_consumed(800);
  ASSERT_TRUE(WriteManifest(folder.path(), manifest).ok());
  EXPECT_TRUE(ReadManifest(folder.path()).ok());
  for (const auto& [words, change] : absurd) {
    CheckpointManifest changed = manifest;
    change(changed);
    ASSERT_TRUE(WriteManifest(folder.path(), changed).ok());
    ExpectRefused(ReadManifest(folder.path()).status(), words);
  }
}

CheckpointManifest ManifestOf(const Job& job) {
  CheckpointManifest manifest = SmallManifest();
  *manifest.mutable_job() = job;
  if (job.tables().empty()) manifest.clear_tables();
  return manifest;
}

Job GptJob() {
  Job job;
  job.mutable_model()->mutable_gpt()->set_layers(3);
  job.mutable_data()->set_format(TEXT);
  return job;
}

TEST(ManifestTest, SymbolsOfAnyAlphabetComeBack) {
  const support::TempFolder folder;
  CheckpointManifest manifest = SmallManifest();
  constexpr char kSymbols[] = "\0\n\t \"\\#'aé中🜂";
  manifest.set_symbols(std::string(kSymbols, sizeof kSymbols - 1));
  ASSERT_TRUE(WriteManifest(folder.path(), manifest).ok());
  const auto read = ReadManifest(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->symbols(), manifest.symbols());
}

TEST(SameModelTest, AnotherModelIsRefusedNamingTheField) {
  const CheckpointManifest manifest = SmallManifest();
  EXPECT_TRUE(CheckSameModel(SmallJob(), manifest, OurKinds().models()).ok());
  Job trained = SmallJob();
  trained.mutable_model()->mutable_sequence_rec()->set_dropout(0.3f);
  trained.mutable_tables(0)->set_learning_rate(7);
  trained.mutable_tables(0)->set_optimizer(SGD);
  trained.mutable_data()->set_path("elsewhere");
  EXPECT_TRUE(CheckSameModel(trained, manifest, OurKinds().models()).ok())
      << "evaluation reads none of these";
  Job layers = SmallJob(), dim = SmallJob(), name = SmallJob();
  layers.mutable_model()->mutable_sequence_rec()->set_layers(3);
  dim.mutable_tables(0)->set_dim(8);
  name.mutable_tables(0)->set_name("user");
  ExpectRefused(CheckSameModel(layers, manifest, OurKinds().models()),
                "model.sequence_rec.layers: 2 -> 3");
  ExpectRefused(CheckSameModel(dim, manifest, OurKinds().models()), "tables[0].dim: 3 -> 8");
  ExpectRefused(CheckSameModel(name, manifest, OurKinds().models()),
                "tables[0].name: \"item\" -> \"user\"");
}

TEST(SameModelTest, GptIsComparedAndIsNoSequenceRec) {
  const CheckpointManifest manifest = ManifestOf(GptJob());
  EXPECT_TRUE(CheckSameModel(GptJob(), manifest, OurKinds().models()).ok());
  Job trained = GptJob(), layers = GptJob(), tied = GptJob();
  trained.mutable_model()->mutable_gpt()->set_dropout(0.1f);
  trained.mutable_model()->mutable_gpt()->set_init(UNIFORM_FAN_IN);
  EXPECT_TRUE(CheckSameModel(trained, manifest, OurKinds().models()).ok());
  layers.mutable_model()->mutable_gpt()->set_layers(4);
  tied.mutable_model()->mutable_gpt()->set_tied_embeddings(true);
  ExpectRefused(CheckSameModel(layers, manifest, OurKinds().models()), "model.gpt.layers: 3 -> 4");
  ExpectRefused(CheckSameModel(tied, manifest, OurKinds().models()), "model.gpt.tied_embeddings");
  ExpectRefused(CheckSameModel(SmallJob(), manifest, OurKinds().models()), "model.");
  ExpectRefused(CheckSameModel(GptJob(), SmallManifest(), OurKinds().models()), "model.");
}

TEST(SameModelTest, PlacementIsTheSameAndHasADefault) {
  Job on_servers = SmallJob(), replicated = SmallJob(), gpt = GptJob();
  on_servers.set_placement(Job::PS);
  replicated.set_placement(Job::REPLICATED);
  gpt.set_placement(Job::REPLICATED);
  EXPECT_TRUE(CheckSameModel(on_servers, ManifestOf(SmallJob()), OurKinds().models()).ok());
  EXPECT_TRUE(CheckSameModel(gpt, ManifestOf(GptJob()), OurKinds().models()).ok());
  ExpectRefused(CheckSameModel(replicated, ManifestOf(on_servers), OurKinds().models()),
                "placement: PS -> REPLICATED");
  CheckpointManifest without_rows = ManifestOf(replicated);
  without_rows.clear_tables();
  without_rows.clear_rows();
  EXPECT_TRUE(CheckSameModel(replicated, without_rows, OurKinds().models()).ok())
      << "a replicated table is a parameter";
}

TEST(SameVocabularyTest, SymbolsAndTheirOrderAreCompared) {
  CheckpointManifest manifest = ManifestOf(GptJob());
  manifest.set_symbols("abc");
  EXPECT_TRUE(CheckSameVocabulary(GptJob(), "abc", manifest).ok());
  Job other = GptJob();
  other.mutable_data()->set_path("other.txt");
  for (const char* symbols : {"abd", "acb", "ab", "abcd", ""}) {
    ExpectRefused(CheckSameVocabulary(other, symbols, manifest), "other.txt");
  }
  EXPECT_TRUE(CheckSameVocabulary(SmallJob(), "", SmallManifest()).ok());
}

TEST(SameRunTest, WhatMayBeTunedOrMovedDoesNotMatter) {
  Job job = SmallJob();
  job.set_name("again");
  job.mutable_data()->set_path("elsewhere");
  Train* train = job.mutable_train();
  train->set_max_epochs(99);
  train->set_max_steps(12345);
  train->set_patience(3);
  train->set_accumulate(4);
  train->set_log_every_steps(7);
  train->set_eval_every_steps(7);
  job.mutable_parallel()->set_dp(8);
  job.mutable_ps()->set_threads(4);
  job.mutable_checkpoint()->set_keep(5);
  job.mutable_checkpoint()->set_every_steps(5);
  job.mutable_runtime()->set_threads(2);
  job.mutable_optimizer()->set_learning_rate(0.5);
  job.mutable_optimizer()->set_schedule(COSINE);
  job.mutable_tables(0)->set_learning_rate(0.5);
  EXPECT_TRUE(CheckSameRun(job, SmallManifest(), OurKinds().models()).ok())
      << CheckSameRun(job, SmallManifest(), OurKinds().models());
}

TEST(SameRunTest, AnotherRunIsRefusedNamingTheFieldAndBothValues) {
  Job saved = SmallJob();
  saved.set_seed(1);
  saved.mutable_train()->set_batch_size(64);
  saved.mutable_optimizer()->set_kind(ADAM);
  saved.mutable_optimizer()->set_beta2(0.5);
  saved.mutable_data()->set_format(PAIRS);
  saved.mutable_tables(0)->set_optimizer(ADAM);
  const CheckpointManifest manifest = ManifestOf(saved);
  EXPECT_TRUE(CheckSameRun(saved, manifest, OurKinds().models()).ok());
  const auto refused = [&](auto change, const std::string& word) {
    Job job = saved;
    change(job);
    ExpectRefused(CheckSameRun(job, manifest, OurKinds().models()), word);
  };
  refused([](Job& job) { job.set_seed(2); }, "seed: 1 -> 2");
  refused([](Job& job) { job.mutable_train()->set_batch_size(32); }, "train.batch_size: 64 -> 32");
  refused([](Job& job) { job.mutable_optimizer()->set_kind(ADAMW); },
          "optimizer.kind: ADAM -> ADAMW");
  refused([](Job& job) { job.mutable_optimizer()->set_beta2(0.25); },
          "optimizer.beta2: 0.5 -> 0.25");
  refused([](Job& job) { job.mutable_data()->set_format(SEQUENCES); },
          "data.format: PAIRS -> SEQUENCES");
  refused([](Job& job) { job.mutable_data()->set_num_items(77); }, "data.num_items");
  refused([](Job& job) { job.mutable_tables(0)->set_optimizer(SGD); },
          "tables[0].optimizer: ADAM -> SGD");
  refused([](Job& job) { job.mutable_model()->mutable_sequence_rec()->set_layers(1); },
          "layers: 2 -> 1");
  refused([](Job& job) { job.mutable_model()->mutable_sequence_rec()->set_loss(FULL_SOFTMAX); },
          "loss");
  refused([](Job& job) { job.set_placement(Job::REPLICATED); }, "placement: PS -> REPLICATED");
  refused(
      [](Job& job) {
        job.set_seed(2);
        job.mutable_train()->set_batch_size(32);
      },
      "seed: 1 -> 2; ");
}

TEST(SameModelTest, TablesThatContradictTheJobAreRefused) {
  CheckpointManifest manifest = SmallManifest();
  manifest.mutable_tables(0)->set_dim(64);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(CheckSameModel(SmallJob(), manifest, OurKinds().models())));
  manifest.clear_tables();
  EXPECT_TRUE(
      absl::IsFailedPrecondition(CheckSameModel(SmallJob(), manifest, OurKinds().models())));
}

}  // namespace
}  // namespace tandem::checkpoint
