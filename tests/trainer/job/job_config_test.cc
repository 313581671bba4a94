// The messages that a user reads when a job is wrong: exact text, every mistake at once.
#include "trainer/job/job_config.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/job/layout.h"

namespace tandem {
namespace {

class JobConfigTest : public testing::Test {
 protected:
  // Returns LoadJob's error for `text`, with the file called "job"; "" if the job is valid.
  std::string Complaint(const std::string& text, const std::vector<std::string>& sets = {},
                        int num_trainers = 2) {
    const support::TempFolder folder;
    const std::string path = folder.Write("job_config_test.textproto", text);
    const absl::StatusOr<Job> job =
        LoadJob(path, sets, {.models = OurKinds().models(), .num_trainers = num_trainers});
    if (job.ok()) return "";
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    std::string message(job.status().message());
    for (size_t at = 0; (at = message.find(path, at)) != std::string::npos; at += 3)
      message.replace(at, path.size(), "job");
    return message;
  }

  // A valid job, apart from the fields that a test adds or sets.
  static constexpr char kGood[] =
      "data { path: \"log\" }\nmodel { sequence_rec { } }\ntables { name: \"item\" }\n";
  std::string Added(const std::string& text) { return Complaint(std::string(kGood) + text); }
  std::string Set(const std::string& assignment) { return Complaint(kGood, {assignment}); }
};

TEST_F(JobConfigTest, MissingFileIsNamed) {
  const auto job = LoadJob("/nowhere/job.textproto", {}, {.models = OurKinds().models()});
  EXPECT_EQ(job.status(), absl::InvalidArgumentError(
                              "job file /nowhere/job.textproto: No such file or directory"));
}

TEST_F(JobConfigTest, DirectoryIsNotAJob) {
  EXPECT_EQ(LoadJob("/tmp", {}, {.models = OurKinds().models()}).status(),
            absl::InvalidArgumentError("job file /tmp: is a directory"));
}

TEST_F(JobConfigTest, EmptyFileLacksWhatIsRequired) {
  EXPECT_EQ(Complaint(""),
            "job: data.path is required: set it here or with --set data.path=FILE\n"
            "job: model has no kind; allowed: model { sequence_rec { } }, model { gpt { } }, model "
            "{ llama { } }, model { rec_llm { } }");
}

TEST_F(JobConfigTest, UnknownFieldsNameTheNearest) {
  EXPECT_EQ(Added("train { batch_sise: 3 }"),
            "job:4:9: unknown field \"batch_sise\" in Train; did you mean \"batch_size\"?");
  EXPECT_EQ(Added("Seed: 3"), "job:4:1: unknown field \"Seed\" in Job; did you mean \"seed\"?");
  EXPECT_EQ(Added("batch_size: 3"),
            "job:4:1: unknown field \"batch_size\" in Job; did you mean \"train.batch_size\"?");
  EXPECT_EQ(Added("max_lenght: 3"),
            "job:4:1: unknown field \"max_lenght\" in Job; did you mean "
            "\"model.sequence_rec.max_length\"?");
  EXPECT_EQ(Added("parallel { zzz { a: [1] } }"),
            "job:4:12: unknown field \"zzz\" in Parallel; Parallel has dp, transport, tp, zero, "
            "sequence_parallel, memory_bytes, pp, microbatches, schedule, virtual_stages, "
            "layers_per_stage, recompute");
}

TEST_F(JobConfigTest, DenseTablesAreNotStoredAsRowsAre) {
  EXPECT_EQ(Complaint(kGood, {"tables[item].storage=BF16"}), "");
  const std::string refused =
      Complaint(kGood, {"tables[item].storage=BF16", "placement=REPLICATED"});
  EXPECT_NE(refused.find("storage is BF16; allowed: F32 with placement REPLICATED"),
            std::string::npos)
      << refused;
}

TEST_F(JobConfigTest, UnknownEnumValuesListTheAllowed) {
  EXPECT_EQ(Added("optimizer {\n  kind: ADAN\n}"),
            "job:5:9: optimizer.kind takes one of SGD, ADAGRAD, ADAM, ADAMW, ROWWISE_ADAGRAD, "
            "MOMENTUM, NESTEROV, ADADELTA, RMSPROP, "
            "AMSGRAD, FTRL, GROUP_FTRL, DC_SGD; found ADAN; did you mean ADAM?");
  EXPECT_EQ(Added("device: QUANTUM"), "job:4:9: device takes one of CPU, CUDA; found QUANTUM");
  EXPECT_EQ(Added("device: \"CPU\""),
            "job:4:9: device takes one of CPU, CUDA; found \"CPU\"; did you mean CPU?");
  EXPECT_EQ(Set("numerics=fast"),
            "--set numerics: numerics takes one of FAST; found fast; did you mean FAST?");
}

TEST_F(JobConfigTest, WrongTypesSayWhatIsTaken) {
  EXPECT_EQ(Added("train { batch_size: \"64\" }"),
            "job:4:21: train.batch_size takes a whole number of 32 bits; found \"64\"");
  EXPECT_EQ(Added("train { batch_size: 6.5 }"),
            "job:4:21: train.batch_size takes a whole number of 32 bits; found 6.5");
  EXPECT_EQ(Added("train { batch_size: 2147483648 }"),
            "job:4:21: train.batch_size takes a whole number of 32 bits; found 2147483648");
  EXPECT_EQ(Added("train { max_steps: many }"),
            "job:4:20: train.max_steps takes a whole number; found many");
  EXPECT_EQ(Added("seed: -1"), "job:4:7: seed takes a whole number of at least 0; found -1");
  EXPECT_EQ(Added("optimizer { beta1: high }"),
            "job:4:20: optimizer.beta1 takes a number between -3.4e38 and 3.4e38; found high");
  EXPECT_EQ(Added("optimizer { beta1: nan }"),
            "job:4:20: optimizer.beta1 takes a number between -3.4e38 and 3.4e38; found nan");
  EXPECT_EQ(Added("optimizer { beta1: -inf }"),
            "job:4:20: optimizer.beta1 takes a number between -3.4e38 and 3.4e38; found -inf");
  EXPECT_EQ(Added("name: unquoted"), "job:4:7: name takes a quoted string; found unquoted");
  EXPECT_EQ(Added("train: 5"), "job:4:8: train takes fields in braces; found 5");
  EXPECT_EQ(Added("seed { a: 1 }"),
            "job:4:6: seed takes a whole number of at least 0; found fields in braces");
}

TEST_F(JobConfigTest, DuplicatesNameBothPlaces) {
  EXPECT_EQ(Added("seed: 1\nseed: 2"),
            "job:5:1: seed is given twice, first at job:4:1; allowed: once");
  EXPECT_EQ(Added("data { path: \"x\" }"),
            "job:4:1: data is given twice, first at job:1:1; allowed: once");
}

TEST_F(JobConfigTest, SyntaxErrorHidesWhatMayFollowIt) {
  EXPECT_EQ(Complaint("sead: 1\ntrain {\n  batch_size = 5\n}\ndata { path: \"x\" }", {"seeed=1"}),
            "job:1:1: unknown field \"sead\" in Job; did you mean \"seed\"?\n"
            "job:3:14: expected \":\" or \"{\" after batch_size, found =\n"
            "--set seeed: unknown field \"seeed\" in Job; did you mean \"seed\"?");
}

TEST_F(JobConfigTest, EverythingWrongIsReportedAtOnce) {
  EXPECT_EQ(
      Complaint("data { format: CSV }\n"
                "model { sequence_rec { heads: 3 dropout: 1 } }\n"
                "tables { name: \"item\" dimm: 8 }\n"
                "train {\n"
                "  batch_size: -2\n"
                "  max_epochs: \"two\"\n"
                "}\n",
                {"ps.threads=100", "checkpoint.kep=2"}),
      "job:1:16: data.format takes one of SEQUENCES, PAIRS, TEXT; found CSV\n"
      "job:3:23: unknown field \"dimm\" in Table; did you mean \"dim\"?\n"
      "job:6:15: train.max_epochs takes a whole number of 32 bits; found \"two\"\n"
      "--set checkpoint.kep: unknown field \"kep\" in CheckpointPolicy; did you mean \"keep\"?\n"
      "job:1:1: data.path is required: set it here or with --set data.path=FILE\n"
      "job:2:33: model.sequence_rec.dropout is 1; allowed: at least 0 and below 1\n"
      "job:2:24: model.sequence_rec.heads is 3 with tables[0].dim 64; allowed: a divisor of the "
      "dim\n"
      "job:5:3: train.batch_size is -2; allowed: 1 .. 1048576\n"
      "--set ps.threads: ps.threads is 100; allowed: 1 .. 64");
}

TEST_F(JobConfigTest, LimitsOfEveryField) {
  const std::vector<std::vector<std::string>> cases = {
      // path, refused values..., allowed
      {"model.sequence_rec.max_length", "-1", "0", "4097", "1 .. 4096"},
      {"model.sequence_rec.layers", "-1", "0", "65", "1 .. 64"},
      {"model.sequence_rec.heads", "-1", "0", "at least 1"},
      {"model.sequence_rec.ffn_dim", "-1", "0", "at least 1"},
      {"model.sequence_rec.dropout", "-0.5", "1", "at least 0 and below 1"},
      {"model.sequence_rec.norm_epsilon", "-1e-12", "0", "greater than 0"},
      {"model.sequence_rec.init_stddev", "-1", "0", "greater than 0"},
      {"model.sequence_rec.num_negatives", "-1", "0", "100001", "1 .. 100000"},
      {"data.num_items", "0", "1", "at least 2"},
      {"data.train_fraction", "-0.5", "0", "1", "greater than 0 and below 1"},
      {"train.max_epochs", "-1", "0", "at least 1"},
      {"train.max_steps", "-1", "at least 0"},
      {"train.min_epochs", "-1", "at least 0"},
      {"train.batch_size", "-1", "0", "1048577", "1 .. 1048576"},
      {"train.eval_every_epochs", "-1", "0", "at least 1"},
      {"train.patience", "-1", "at least 0"},
      {"train.log_every_steps", "-1", "0", "at least 1"},
      {"train.accumulate", "-1", "0", "at least 1"},
      {"optimizer.learning_rate", "-1", "0", "greater than 0"},
      {"optimizer.beta1", "-0.5", "1", "at least 0 and below 1"},
      {"optimizer.beta2", "-0.5", "1", "at least 0 and below 1"},
      {"optimizer.epsilon", "-1", "0", "greater than 0"},
      {"optimizer.weight_decay", "-1", "at least 0"},
      {"optimizer.max_grad_norm", "-1", "at least 0"},
      {"optimizer.warmup_steps", "-1", "at least 0"},
      {"optimizer.min_learning_rate", "-1", "0.5", "0 .. the learning rate, 0.001"},
      {"optimizer.schedule_steps", "-1", "0", "at least 1"},
      {"optimizer.kind", "ROWWISE_ADAGRAD", "MOMENTUM", "DC_SGD",
       "SGD, ADAGRAD, ADAM, ADAMW (only rows have one; see tables[].optimizer)"},
      {"tables[0].dim", "-1", "0", "65537", "1 .. 65536"},
      {"tables[0].init_stddev", "-1", "0", "greater than 0"},
      {"tables[0].learning_rate", "-1", "0", "greater than 0"},
      {"tables[0].max_row_norm", "-1", "at least 0"},
      {"tables[0].weight_decay", "-1", "at least 0"},
      {"tables[0].momentum", "-0.5", "1", "at least 0 and below 1"},
      {"tables[0].rho", "-0.5", "1", "at least 0 and below 1"},
      {"tables[0].beta", "-1", "0", "greater than 0"},
      {"tables[0].l1", "-1", "at least 0"},
      {"tables[0].l2", "-1", "at least 0"},
      {"tables[0].group_l1", "-1", "at least 0"},
      {"tables[0].delay_compensation", "-1", "at least 0"},
      {"tables[0].initial_accumulator", "-1", "at least 0"},
      {"tables[0].epsilon", "-1", "0", "greater than 0"},
      {"parallel.dp", "-1", "0", "at least 1"},
      {"parallel.zero", "-1", "4", "0 .. 3"},
      {"trace.first_step", "-1", "0", "at least 1"},
      {"trace.steps", "-2", "100001", "-1 .. 100000"},
      {"ps.threads", "-1", "0", "65", "1 .. 64"},
      {"checkpoint.keep", "-1", "0", "1001", "1 .. 1000"},
      {"checkpoint.timeout_seconds", "-1", "0", "0.5", "86401", "1 .. 86400"},
      {"runtime.threads", "-1", "0", "257", "1 .. 256"},
      {"runtime.timeout_seconds", "-1", "0", "0.5", "86401", "1 .. 86400"},
  };
  for (const std::vector<std::string>& row : cases) {
    for (size_t i = 1; i + 1 < row.size(); ++i) {
      const std::string& path = row[0];
      // An odd dim also breaks the rule about heads, which has a test of its own.
      const std::vector<std::string> sets = {"model.heads=1", path + "=" + row[i]};
      EXPECT_EQ(Complaint(kGood, sets),
                "--set " + path + ": " + path + " is " + row[i] + "; allowed: " + row.back());
    }
  }
}

TEST_F(JobConfigTest, AConsistencyHasABoundOrNone) {
  const auto complaint = [this](const std::string& mode, const std::string& staleness) {
    return Complaint(kGood, {"ps.consistency=" + mode, "ps.staleness=" + staleness});
  };
  const std::string is = "--set ps.staleness: ps.staleness is ";
  EXPECT_EQ(complaint("BSP", "1"),
            is + "1; allowed: 0 with ps.consistency BSP; SSP and PERMIT have one");
  EXPECT_EQ(complaint("ASP", "2"),
            is + "2; allowed: 0 with ps.consistency ASP; SSP and PERMIT have one");
  EXPECT_EQ(complaint("SSP", "1001"), is + "1001; allowed: 0 .. 1000");
  EXPECT_EQ(complaint("SSP", "-1"), is + "-1; allowed: 0 .. 1000");
  EXPECT_EQ(complaint("PERMIT", "65"), is + "65; allowed: 1 .. 64");
  for (const char* good : {"0", "1", "1000"}) EXPECT_EQ(complaint("SSP", good), "");
  EXPECT_EQ(complaint("PERMIT", "0"), is + "0; allowed: 1 .. 64");
  for (const char* good : {"1", "64"}) EXPECT_EQ(complaint("PERMIT", good), "");
  EXPECT_EQ(Complaint(kGood, {"ps.consistency=ASP", "optimizer.max_grad_norm=1"}),
            "--set optimizer.max_grad_norm: optimizer.max_grad_norm is 1 with ps.consistency ASP; "
            "allowed: 0, or BSP (else no trainer "
            "knows the others' rows)");
}

TEST_F(JobConfigTest, OnlyModesThatKeepRowsSayHowManyAndHowLong) {
  const auto complaint = [this](const std::string& mode, const std::string& path,
                                const std::string& value) {
    return Complaint(kGood, {"ps.consistency=" + mode, path + "=" + value});
  };
  const auto refused = [](const std::string& path, const std::string& value,
                          const std::string& allowed) {
    return "--set " + path + ": " + path + " is " + value + "; allowed: " + allowed;
  };
  EXPECT_EQ(complaint("ASP", "ps.geo_steps", "4"),
            refused("ps.geo_steps", "4", "0 with ps.consistency ASP; GEO has one"));
  EXPECT_EQ(complaint("BSP", "ps.read_bound", "1"),
            refused("ps.read_bound", "1", "0 with ps.consistency BSP; ROW_BOUND has one"));
  EXPECT_EQ(complaint("GEO", "ps.write_bound", "1"),
            refused("ps.write_bound", "1", "0 with ps.consistency GEO; ROW_BOUND has one"));
  EXPECT_EQ(complaint("GEO", "ps.cache_rows", "1"),
            refused("ps.cache_rows", "1", "0 with ps.consistency GEO"));
  EXPECT_EQ(complaint("GEO", "ps.geo_steps", "10001"),
            refused("ps.geo_steps", "10001", "1 .. 10000"));
  EXPECT_EQ(complaint("GEO", "ps.geo_steps", "0"), refused("ps.geo_steps", "0", "1 .. 10000"));
  EXPECT_EQ(complaint("BSP", "ps.geo_steps", "0"), "");
  EXPECT_EQ(complaint("ROW_BOUND", "ps.cache_rows", "0"),
            refused("ps.cache_rows", "0", "1 .. 1073741824"));
  EXPECT_EQ(complaint("ROW_BOUND", "ps.read_bound", "1000001"),
            refused("ps.read_bound", "1000001", "0 .. 1000000"));
  EXPECT_EQ(complaint("ROW_BOUND", "ps.write_bound", "-1"),
            refused("ps.write_bound", "-1", "0 .. 1000"));
  EXPECT_EQ(complaint("BSP", "ps.cache_rows", "-1"),
            refused("ps.cache_rows", "-1", "0 .. 1073741824"));
  EXPECT_EQ(complaint("GEO", "tables[0].mode", "CATCH_UP"),
            refused("tables[0].mode", "CATCH_UP", "LAZY with ps.consistency GEO"));
  for (const char* mode : {"BSP", "SSP", "ASP", "PERMIT", "ROW_BOUND"})
    EXPECT_EQ(complaint(mode, "ps.cache_rows", "1000"), "");
}

TEST_F(JobConfigTest, OnlyBspMergesPushes) {
  EXPECT_EQ(Complaint(kGood, {"ps.merge_pushes=true"}), "");
  for (const char* mode : {"SSP", "ASP", "PERMIT", "ROW_BOUND", "GEO"}) {
    EXPECT_EQ(
        Complaint(kGood, {std::string("ps.consistency=") + mode, "ps.merge_pushes=true"}),
        std::string(
            "--set ps.merge_pushes: ps.merge_pushes is true; allowed: false with ps.consistency ") +
            mode +
            ", where each trainer's pushes are applied by its own commit; BSP adds up those of "
            "all");
    EXPECT_EQ(Complaint(kGood, {std::string("ps.consistency=") + mode, "ps.merge_pushes=false"}),
              "");
  }
}

TEST_F(JobConfigTest, LimitsThemselvesAreAllowed) {
  for (const char* set :
       {"model.max_length=1", "model.max_length=4096", "model.layers=64", "model.dropout=0.99",
        "model.num_negatives=100000", "train.batch_size=1", "train.batch_size=1048576",
        "tables[0].dim=65536", "ps.threads=64", "checkpoint.keep=1000", "runtime.threads=256",
        "runtime.timeout_seconds=1", "runtime.timeout_seconds=86400", "train.patience=0",
        "optimizer.min_learning_rate=0.001", "parallel.dp=2"}) {
    EXPECT_EQ(Set(set), "");
  }
}

TEST_F(JobConfigTest, NumbersThatAnF32DoesNotHoldAreRefused) {
  for (const char* number : {"1e300", "-1e39", "nan", "inf", "-inf"}) {
    for (const char* path : {"tables[0].init_stddev", "optimizer.learning_rate", "optimizer.beta1",
                             "model.sequence_rec.dropout"}) {
      EXPECT_EQ(Set(std::string(path) + "=" + number),
                absl::StrCat("--set ", path, ": ", path,
                             " takes a number between -3.4e38 and 3.4e38; found ", number));
    }
  }
  EXPECT_EQ(Set("optimizer.epsilon=1e-50"),
            "--set optimizer.epsilon: optimizer.epsilon is 1e-50; allowed: at least 1.2e-38");
}

TEST_F(JobConfigTest, MappedIdsAreTheirOwnCatalogue) {
  EXPECT_EQ(Set("data.ids=MAP"), "");
  EXPECT_EQ(Complaint(kGood, {"data.ids=MAP", "data.num_items=9"}),
            "--set data.num_items: data.num_items is 9; allowed: none with data.ids MAP, where the "
            "catalogue is what occurs");
  EXPECT_EQ(Complaint("data { path: \"t\" ids: MAP } model { gpt { } }"),
            "job:1:18: data.ids is MAP; allowed: DENSE with gpt");
}

TEST_F(JobConfigTest, NoReplicaRunsPartsWithoutSamples) {
  const auto complaint = [this](int batch_size, int accumulate, int num_trainers) {
    return Complaint(kGood,
                     {absl::StrCat("train.batch_size=", batch_size),
                      absl::StrCat("train.accumulate=", accumulate)},
                     num_trainers);
  };
  EXPECT_EQ(complaint(4, 1000000, 1),
            "--set train.accumulate: train.accumulate is 1000000; allowed: 1 .. 4, the samples "
            "that a replica has of a batch of 4 over 1 "
            "replica");
  EXPECT_EQ(complaint(7, 4, 2),
            "--set train.accumulate: train.accumulate is 4; allowed: 1 .. 3, the samples that a "
            "replica has of a batch of 7 over 2 "
            "replicas");
  EXPECT_EQ(complaint(7, 3, 2), "");
  EXPECT_EQ(complaint(3, 1, 4), "") << "some replicas have no sample of such a batch in any case";
  EXPECT_NE(Set("train.accumulate=129"), "")
      << "half of the batch of 256 that a job without a batch size has";
  EXPECT_EQ(Set("train.accumulate=128"), "");
}

TEST_F(JobConfigTest, WhatALayoutDoesNotSayFollows) {
  const auto layout = [this](const std::vector<std::string>& sets, int num_trainers) {
    const Job job = *ParseJob(kGood, "job", sets,
                              {.models = OurKinds().models(), .num_trainers = num_trainers});
    return std::array{job::NumTrainers(job), job.parallel().dp(), job.parallel().tp()};
  };
  EXPECT_EQ(layout({}, 4), (std::array{4, 4, 1}));
  EXPECT_EQ(layout({"parallel.dp=3"}, 3), (std::array{3, 3, 1}));
  EXPECT_EQ(layout({}, job::kTrainersOfLayout), (std::array{1, 1, 1}));
  EXPECT_EQ(layout({"parallel.dp=3"}, job::kTrainersOfLayout), (std::array{3, 3, 1}));
  const auto cut_layout = [](std::vector<std::string> sets, int num_trainers) {
    sets.insert(sets.end(), {"model.gpt.heads=4", "parallel.tp=2"});
    const Job job = *ParseJob("data { path: \"t\" } model { gpt { } }", "job", sets,
                              {.models = OurKinds().models(), .num_trainers = num_trainers});
    return std::array{job::NumTrainers(job), job.parallel().dp(), job.parallel().tp()};
  };
  EXPECT_EQ(cut_layout({}, job::kTrainersOfLayout), (std::array{2, 1, 2}));
  EXPECT_EQ(cut_layout({"parallel.dp=3"}, job::kTrainersOfLayout), (std::array{6, 3, 2}));
  EXPECT_EQ(cut_layout({}, 8), (std::array{8, 4, 2}));
}

TEST_F(JobConfigTest, ZeroIsRefusedWithDenseParametersOnServers) {
  EXPECT_EQ(Set("parallel.zero=1"), "");
  EXPECT_EQ(Complaint(std::string(kGood) + "parameters { match: \"*\" placement: PS }",
                      {"parallel.zero=1"}),
            "--set parallel.zero: parallel.zero is 1; allowed: 0 with dense parameters on servers "
            "(parameters[].placement PS)");
}

TEST_F(JobConfigTest, ImpossibleCutsNameWhatTheyMustDivide) {
  constexpr char kGpt[] =
      "data { path: \"t\" }\nmodel { gpt { heads: 8 dim: 32 ffn_dim: 36 } }\nparallel { tp: 2 }\n";
  const auto complaint = [&](const std::vector<std::string>& sets, int num_trainers) {
    return Complaint(kGpt, sets, num_trainers);
  };
  EXPECT_EQ(complaint({}, 4), "");
  EXPECT_EQ(complaint({"parallel.dp=2"}, 4), "");
  EXPECT_EQ(complaint({"parallel.tp=3"}, 3),
            "--set parallel.tp: parallel.tp is 3; allowed: a divisor of model.gpt.heads, 8");
  EXPECT_EQ(complaint({"parallel.tp=8"}, 8),
            "--set parallel.tp: parallel.tp is 8; allowed: a divisor of model.gpt.ffn_dim, 36");
  EXPECT_EQ(complaint({"parallel.dp=2"}, 3),
            "--set parallel.dp: impossible layout: parallel.dp is 2 and parallel.tp 2 with 3 "
            "trainers; allowed: 4 trainers");
  EXPECT_EQ(complaint({}, 3),
            "job:3:12: impossible layout: parallel.tp is 2 with 3 trainers; allowed: a divisor of "
            "3");
  EXPECT_EQ(complaint({"placement=PS"}, 2), "");
  EXPECT_EQ(complaint({"parallel.sequence_parallel=false"}, 2), "");
  EXPECT_EQ(complaint({"parallel.tp=1", "parallel.sequence_parallel=true"}, 2),
            "--set parallel.sequence_parallel: parallel.sequence_parallel is true; allowed: false "
            "with parallel.tp 1");
  EXPECT_EQ(complaint({"device=CUDA"}, 2), "");
  EXPECT_EQ(Complaint(kGood, {"parallel.tp=2"}, 2), "");
  EXPECT_EQ(Complaint(kGood, {"parallel.tp=4"}, 4),
            "--set parallel.tp: parallel.tp is 4; allowed: a divisor of model.sequence_rec.heads, "
            "2");
}

TEST_F(JobConfigTest, HeadsOfALlamaFitEachOtherAndTheCut) {
  constexpr char kLlama[] =
      "data { path: \"t\" }\nmodel { llama { heads: 12 kv_heads: 3 dim: 48 ffn_dim: 96 } }\n";
  const auto complaint = [&](const std::vector<std::string>& sets, int num_trainers) {
    return Complaint(kLlama, sets, num_trainers);
  };
  EXPECT_EQ(complaint({"parallel.tp=3"}, 3), "");
  EXPECT_EQ(complaint({"parallel.tp=6"}, 6), "");
  EXPECT_EQ(complaint({"parallel.tp=2"}, 2),
            "--set parallel.tp: parallel.tp is 2; allowed: a divisor or a multiple of "
            "model.llama.kv_heads, 3");
  EXPECT_EQ(complaint({"model.llama.kv_heads=5"}, 1),
            "--set model.llama.kv_heads: model.llama.kv_heads is 5; allowed: a divisor of "
            "model.llama.heads, 12");
  EXPECT_EQ(complaint({"device=CUDA"}, 1), "");
  EXPECT_EQ(complaint({"model.llama.dim=36"}, 1),
            "job:2:17: model.llama.heads is 12; allowed: values with an even model.llama.dim / "
            "heads, whose halves are turned");
}

TEST_F(JobConfigTest, StagesFitTheModel) {
  constexpr char kGpt[] =
      "data { path: \"t\" }\nmodel { gpt { layers: 4 } }\ntrain { batch_size: 12 }\n"
      "parallel { pp: 2 }\n";
  const auto complaint = [&](const std::vector<std::string>& sets, int num_trainers) {
    return Complaint(kGpt, sets, num_trainers);
  };
  EXPECT_EQ(complaint({}, 2), "");
  EXPECT_EQ(complaint({"parallel.tp=2", "parallel.zero=1"}, 8), "");
  EXPECT_EQ(complaint({"parallel.pp=5"}, 5),
            "--set parallel.pp: parallel.pp is 5; allowed: 1 .. 4, the model's layers");
  EXPECT_EQ(complaint({"parallel.layers_per_stage=1,2"}, 2),
            "--set parallel.layers_per_stage: parallel.layers_per_stage is 1,2; allowed: 2 numbers "
            "above 0, one for each stage, with the sum 4, the model's layers");
  EXPECT_EQ(complaint({"parallel.layers_per_stage=3,1"}, 2), "");
  EXPECT_EQ(complaint({"parallel.layers_per_stage[0]=3"}, 2),
            "--set parallel.layers_per_stage[0]: parallel.layers_per_stage is a list of plain "
            "values; set all of them, as in parallel.layers_per_stage=A,B,C");
  EXPECT_EQ(complaint({"parallel.schedule=INTERLEAVED"}, 2), "");
  EXPECT_EQ(
      complaint({"parallel.schedule=INTERLEAVED", "parallel.virtual_stages=3"}, 2),
      "--set parallel.virtual_stages: parallel.virtual_stages is 3; allowed: stages of equal size: "
      "parallel.pp x parallel.virtual_stages, 2 x 3, divides the model's 4 layers; or "
      "parallel.layers_per_stage");
  EXPECT_EQ(complaint({"parallel.virtual_stages=2"}, 2),
            "--set parallel.virtual_stages: parallel.virtual_stages is 2; allowed: 1, or more with "
            "parallel.schedule INTERLEAVED and parallel.pp above 1");
  EXPECT_EQ(complaint({"parallel.microbatches=13"}, 2),
            "--set parallel.microbatches: parallel.microbatches is 13; allowed: 1 .. 12, the "
            "samples that a replica has of a batch of 12 over 1 replica");
  EXPECT_EQ(complaint({"parallel.microbatches=4", "train.accumulate=2"}, 2),
            "--set parallel.microbatches: parallel.microbatches is 4; allowed: 2, as "
            "train.accumulate, which is the same number, or none");
  EXPECT_EQ(complaint({"parallel.zero=2"}, 4),
            "--set parallel.zero: parallel.zero is 2; allowed: 0, 1 with parallel.pp above 1");
  EXPECT_EQ(complaint({"ps.consistency=ASP", "placement=PS"}, 2),
            "--set ps.consistency: ps.consistency is ASP; allowed: BSP with parallel.pp above 1");
  EXPECT_EQ(complaint({}, 3),
            "job:4:12: impossible layout: parallel.pp is 2 with 3 trainers; allowed: a divisor of "
            "3");
  EXPECT_EQ(complaint({"parallel.tp=2", "parallel.dp=2"}, 4),
            "--set parallel.dp: impossible layout: parallel.dp is 2 and parallel.tp 2 and "
            "parallel.pp 2 with 4 trainers; allowed: 1, the number of trainers divided by tp x pp");
}

TEST_F(JobConfigTest, MicrobatchesFollowFromTheStages) {
  const auto microbatches = [](const std::vector<std::string>& sets) {
    const auto job = ParseJob(
        "data { path: \"t\" }\nmodel { gpt { layers: 8 } }\ntrain { batch_size: 12 }\n", "job",
        sets, {.models = OurKinds().models(), .num_trainers = job::kTrainersOfLayout});
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->parallel().microbatches(), job->train().accumulate());
    return job->parallel().microbatches();
  };
  EXPECT_EQ(microbatches({}), 1);
  EXPECT_EQ(microbatches({"train.accumulate=3"}), 3);
  EXPECT_EQ(microbatches({"parallel.microbatches=3"}), 3);
  EXPECT_EQ(microbatches({"parallel.pp=2"}), 2);
  EXPECT_EQ(microbatches({"parallel.pp=3"}), 4);
  EXPECT_EQ(microbatches({"parallel.pp=5"}), 5);  // 8 does not divide 12
  EXPECT_EQ(microbatches({"parallel.pp=3", "parallel.dp=2"}), 3);
  EXPECT_EQ(microbatches({"parallel.pp=2", "train.accumulate=6"}), 6);
}

TEST_F(JobConfigTest, ImpossibleLayoutNamesBothNumbers) {
  EXPECT_EQ(Set("parallel.dp=4"),
            "--set parallel.dp: impossible layout: parallel.dp is 4 with 2 trainers; allowed: 2, "
            "the number of trainers");
  EXPECT_EQ(Complaint(std::string(kGood) + "parallel { dp: 2 }", {}, 1),
            "job:4:12: impossible layout: parallel.dp is 2 with 1 trainer; allowed: 1, the number "
            "of trainers");
}

TEST_F(JobConfigTest, CudaTakesAnyNumberOfTrainersAndEveryTransport) {
  for (const char* transport : {"NCCL", "HOST"}) {
    EXPECT_EQ(Complaint(kGood, {"device=CUDA", std::string("parallel.transport=") + transport}, 2),
              "");
  }
  EXPECT_NE(Set("parallel.transport=GLOO"), "");
}

TEST_F(JobConfigTest, HeadsDivideTheItemDim) {
  EXPECT_EQ(Complaint(kGood, {"tables[item].dim=6", "model.sequence_rec.heads=4"}),
            "--set model.sequence_rec.heads: model.sequence_rec.heads is 4 with tables[0].dim 6; "
            "allowed: a divisor of the dim");
  EXPECT_EQ(Set("tables[item].dim=7"),
            "--set tables[item].dim: model.sequence_rec.heads is 2 with tables[0].dim 7; allowed: "
            "a divisor of the dim");
}

TEST_F(JobConfigTest, SequenceRecWantsOneTableNamedItem) {
  const std::string head = "data { path: \"log\" }\nmodel { sequence_rec { } }\n";
  EXPECT_EQ(
      Complaint(head),
      "job: sequence_rec with 0 tables; allowed: exactly one table, tables { name: \"item\" }");
  EXPECT_EQ(Complaint(head + "tables { name: \"user\" }"),
            "job: sequence_rec with one table, named \"user\"; allowed: exactly one table, tables "
            "{ name: \"item\" }");
  EXPECT_EQ(
      Added("tables { name: \"item\" }\ntables { dim: 3 }"),
      "job: sequence_rec with 3 tables; allowed: exactly one table, tables { name: \"item\" }\n"
      "job:4:10: tables[1].name is \"item\", as an earlier table's; allowed: a name of its own\n"
      "job:5:1: tables[2].name is required");
}

TEST_F(JobConfigTest, ChoicesThatDoNotFitTogether) {
  EXPECT_EQ(Set("train.select_by=VALID_SAMPLED_MRR"),
            "--set train.select_by: train.select_by is VALID_SAMPLED_MRR without "
            "data.negatives_path; allowed: VALID_MRR");
  EXPECT_EQ(Set("optimizer.weight_decay=0.1"),
            "--set optimizer.weight_decay: optimizer.weight_decay is 0.1 with kind ADAM; allowed: "
            "0, or kind ADAMW or SGD");
  EXPECT_EQ(Complaint(kGood, {"optimizer.weight_decay=0.1", "optimizer.kind=ADAMW"}), "");
}

TEST_F(JobConfigTest, ServedParametersHaveAMatchAndAreForCpus) {
  const std::string served = "parameters { match: \"*\" placement: PS }\n";
  EXPECT_EQ(Added(served), "");
  EXPECT_EQ(Added("parameters { match: \"*\" placement: REPLICATED } device: CUDA optimizer { "
                  "kind: ADAMW }"),
            "");
  EXPECT_EQ(Added("parameters { placement: PS }"), "job:4:1: parameters[0].match is required");
  EXPECT_EQ(Added(served + "device: CUDA"),
            "job:4:25: parameters[0].placement is PS; allowed: REPLICATED with device CUDA");
  EXPECT_EQ(Added("parameters { match: \"a\" }\n" + served + served + "device: CUDA"),
            "job:5:25: parameters[1].placement is PS; allowed: REPLICATED with device CUDA");
  for (const char* kept :
       {"ps { consistency: GEO }", "ps { consistency: ROW_BOUND }", "ps { cache_rows: 100 }"}) {
    EXPECT_EQ(Added(served + kept),
              "job:4:25: parameters[0].placement is PS; allowed: REPLICATED with ps.consistency "
              "GEO or ROW_BOUND, or ps.cache_rows");
  }
  EXPECT_EQ(Added(served + "ps { consistency: ASP }"), "");
}

TEST_F(JobConfigTest, TablesDecayWithSgdAndAdamW) {
  EXPECT_EQ(Set("tables[0].weight_decay=0.1"),
            "--set tables[0].weight_decay: tables[0].weight_decay is 0.1 with optimizer ADAM; "
            "allowed: 0, or optimizer ADAMW or SGD");
  EXPECT_EQ(Set("tables[0].optimizer=ADAMW"), "");
  EXPECT_EQ(Complaint(kGood, {"tables[0].weight_decay=0.1", "tables[0].optimizer=SGD"}), "");
  EXPECT_EQ(Complaint(kGood, {"tables[0].weight_decay=0.1", "optimizer.kind=ADAMW"}), "");
}

TEST_F(JobConfigTest, ModesThatTheTableCannotHave) {
  for (const char* mode : {"CATCH_UP", "DENSE_EQUIVALENT"}) {
    const std::string set = std::string("tables[0].mode=") + mode;
    const std::string is =
        "--set tables[0].mode: tables[0].mode is " + std::string(mode) + "; allowed: ";
    for (const char* kind : {"SGD", "ADAGRAD", "ROWWISE_ADAGRAD", "ADAM", "ADAMW", "MOMENTUM",
                             "NESTEROV", "ADADELTA", "RMSPROP", "AMSGRAD"}) {
      EXPECT_EQ(Complaint(kGood, {set, std::string("tables[0].optimizer=") + kind}), "");
    }
    for (const char* kind : {"FTRL", "GROUP_FTRL", "DC_SGD"}) {
      EXPECT_EQ(Complaint(kGood, {std::string("tables[0].optimizer=") + kind, set}),
                is + "LAZY with optimizer " + kind);
    }
    EXPECT_EQ(Complaint(kGood, {"placement=REPLICATED", set}),
              is + "LAZY with placement REPLICATED (a dense parameter is updated whole)");
  }
  EXPECT_EQ(Complaint(kGood, {"ps.consistency=ASP", "tables[0].mode=CATCH_UP"}), "");
  EXPECT_EQ(Complaint(kGood, {"ps.consistency=ASP", "tables[0].mode=DENSE_EQUIVALENT"}),
            "--set tables[0].mode: tables[0].mode is DENSE_EQUIVALENT; allowed: LAZY, CATCH_UP "
            "with ps.consistency ASP (only in BSP "
            "is a step one update)");
  EXPECT_EQ(Complaint(kGood, {"ps.storage=INT8", "tables[0].mode=CATCH_UP"}), "");
  EXPECT_EQ(Complaint(kGood, {"ps.storage=INT8", "tables[0].storage=BF16",
                              "tables[0].mode=DENSE_EQUIVALENT"}),
            "");
  EXPECT_EQ(Complaint(kGood, {"ps.storage=INT8", "tables[0].mode=DENSE_EQUIVALENT"}),
            "--set tables[0].mode: tables[0].mode is DENSE_EQUIVALENT; allowed: LAZY, CATCH_UP "
            "with storage INT8");
}

TEST_F(JobConfigTest, SetReachesTablesByNameAndByIndex) {
  EXPECT_EQ(Set("tables[item].dim=8"), "");
  EXPECT_EQ(Set("tables[0].dim=8"), "");
  EXPECT_EQ(Set("tables[itme].dim=8"),
            "--set tables[itme].dim: tables has no element \"itme\"; it has item");
  EXPECT_EQ(Set("tables[1].dim=8"),
            "--set tables[1].dim: tables has no element \"1\"; it has item");
  EXPECT_EQ(Set("tables[-1].dim=8"),
            "--set tables[-1].dim: tables has no element \"-1\"; it has item");
  EXPECT_EQ(Set("tables.dim=8"),
            "--set tables.dim: tables is a list; select an element, as in tables[0]; it has item");
  EXPECT_EQ(Set("train[0].patience=8"), "--set train[0].patience: train is no list; leave out [0]");
}

TEST_F(JobConfigTest, SetPathsThatLeadNowhere) {
  EXPECT_EQ(Set("train.batch_sise=8"),
            "--set train.batch_sise: unknown field \"batch_sise\" in Train; did you mean "
            "\"batch_size\"?");
  EXPECT_EQ(
      Set("batch_size=8"),
      "--set batch_size: unknown field \"batch_size\" in Job; did you mean \"train.batch_size\"?");
  EXPECT_EQ(
      Set("model.lose=BCE"),
      "--set model.lose: unknown field \"lose\" in Model; did you mean \"sequence_rec.loss\"?");
  EXPECT_EQ(Set("train=8"),
            "--set train: train is a group of fields; set one of them, as in train.max_epochs");
  EXPECT_EQ(Set("seed.value=8"),
            "--set seed.value: seed takes a whole number of at least 0; it has no field value");
  for (const char* malformed : {"seed", "=3", "", "train..patience=1", "train.=1",
                                "tables[item.dim=1", "tables[item]dim=1"}) {
    EXPECT_EQ(Set(malformed), std::string("--set ") + malformed +
                                  ": expected path=value, as in train.batch_size=64");
  }
}

TEST_F(JobConfigTest, SetValuesOfTheWrongType) {
  EXPECT_EQ(Set("train.patience="),
            "--set train.patience: train.patience takes a whole number of 32 bits; found nothing");
  EXPECT_EQ(Set("train.patience=3 "),
            "--set train.patience: train.patience takes a whole number of 32 bits; found 3 ");
  EXPECT_EQ(Set("optimizer.learning_rate=1e-3x"),
            "--set optimizer.learning_rate: optimizer.learning_rate takes a number between -3.4e38 "
            "and 3.4e38; found 1e-3x");
  EXPECT_EQ(Set("seed=18446744073709551616"),
            "--set seed: seed takes a whole number of at least 0; found 18446744073709551616");
}

TEST_F(JobConfigTest, LaterSetsWinAndWinOverTheFile) {
  const support::TempFolder folder;
  const std::string path = folder.Write("sets.textproto", std::string(kGood) + "seed: 1");
  const auto job = LoadJob(path, {"seed=2", "seed=3", "data.path=a=b", "model.loss=FULL_SOFTMAX"},
                           {.models = OurKinds().models(), .num_trainers = 1});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->seed(), 3u);
  EXPECT_EQ(job->data().path(), "a=b") << "only the first = separates";
  EXPECT_EQ(job->model().sequence_rec().loss(), FULL_SOFTMAX)
      << "the oneof's member may be left out";
}

TEST_F(JobConfigTest, SetCanChooseTheModel) {
  EXPECT_EQ(Complaint("tables { name: \"item\" }", {"data.path=x", "model.sequence_rec.layers=1"}),
            "");
}

}  // namespace
}  // namespace tandem
