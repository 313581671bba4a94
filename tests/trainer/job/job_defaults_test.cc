// Every default of job.proto, and the loaded job's description of itself.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/job/job_config.h"

namespace tandem {
namespace {

constexpr char kMinimal[] =
    "data { path: \"log\" } model { sequence_rec { } } tables { name: \"item\" }";

Job Load(const std::string& text, const std::vector<std::string>& sets = {}, int num_trainers = 2) {
  const support::TempFolder folder;
  const std::string path = folder.Write("defaults.textproto", text);
  absl::StatusOr<Job> job =
      LoadJob(path, sets, {.models = OurKinds().models(), .num_trainers = num_trainers});
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(Job());
}

TEST(JobDefaultsTest, EveryAbsentFieldTakesItsDefault) {
  EXPECT_EQ(DumpJob(Load(kMinimal)), R"(name: "defaults"
data {
  path: "log"
  format: SEQUENCES
}
model {
  sequence_rec {
    max_length: 50
    layers: 2
    heads: 2
    ffn_dim: 256
    activation: GELU
    norm_epsilon: 1e-12
    init_stddev: 0.02
    loss: BCE
    num_negatives: 256
  }
}
train {
  max_epochs: 1
  batch_size: 256
  eval_every_epochs: 1
  log_every_steps: 1
  select_by: VALID_MRR
  accumulate: 1
}
optimizer {
  kind: ADAM
  learning_rate: 0.001
  beta1: 0.9
  beta2: 0.999
  epsilon: 1e-08
}
tables {
  name: "item"
  dim: 64
  optimizer: ADAM
  init_stddev: 0.02
  learning_rate: 0.001
  storage: F32
  non_finite: REJECT
}
parallel {
  dp: 2
  tp: 1
  pp: 1
  microbatches: 1
  schedule: ONE_F_ONE_B
  virtual_stages: 1
}
ps {
  threads: 1
  storage: F32
  wire: F32
}
checkpoint {
  keep: 1
  timeout_seconds: 600
}
runtime {
  threads: 1
  timeout_seconds: 60
  cuda_graphs: true
}
placement: PS
trace {
  first_step: 5
  steps: 2
}
)");
}

TEST(JobDefaultsTest, ParametersStayWithTheirReplicasUnlessServedWhichIsForCpus) {
  const Job job = Load(std::string(kMinimal) + " parameters { match: \"a\" } ");
  EXPECT_EQ(job.parameters(0).placement(), Job::REPLICATED);
  EXPECT_EQ(job.device(), DEVICE_UNSPECIFIED);
  EXPECT_EQ(Load(std::string(kMinimal) + " parameters { match: \"a\" placement: PS } ").device(),
            CPU);
}

TEST(JobDefaultsTest, GptTakesItsDefaults) {
  const Job job = Load("data { path: \"text\" } model { gpt { } } train { max_steps: 9 }");
  EXPECT_EQ(job.data().format(), TEXT);
  EXPECT_EQ(job.data().train_fraction(), 0.9);
  EXPECT_EQ(job.placement(), Job::REPLICATED);
  EXPECT_EQ(job.tables_size(), 0);
  EXPECT_EQ(job.train().select_by(), VALID_LOSS);
  EXPECT_EQ(job.train().max_epochs(), 0) << "max_steps alone limits the run";
  EXPECT_EQ(DumpJob(job).substr(DumpJob(job).find("model {"), 251), R"(model {
  gpt {
    max_length: 256
    layers: 4
    heads: 4
    dim: 128
    ffn_dim: 512
    activation: GELU
    norm_epsilon: 1e-05
    attention_scale: 0.17677669529663687
    init: NORMAL
    init_stddev: 0.02
    embedding_stddev: 0.02
  }
}
)");
}

TEST(JobDefaultsTest, LlamaTakesItsDefaults) {
  const Job job = Load("data { path: \"text\" } model { llama { } } train { max_steps: 9 }");
  EXPECT_EQ(job.placement(), Job::REPLICATED);
  EXPECT_EQ(job.train().select_by(), VALID_LOSS);
  const std::string text = DumpJob(job);
  const std::string model = R"(model {
  llama {
    max_length: 256
    layers: 4
    heads: 4
    kv_heads: 4
    dim: 128
    ffn_dim: 352
    norm_epsilon: 1e-05
    rope_theta: 10000
    init_stddev: 0.02
    embedding_stddev: 0.02
  }
}
)";
  EXPECT_EQ(text.substr(text.find("model {"), model.size()), model);
}

TEST(JobDefaultsTest, RowsAreCutWhereLayersAre) {
  const std::string llama = "data { path: \"text\" } model { llama { } } ";
  EXPECT_FALSE(Load(llama).parallel().sequence_parallel());
  EXPECT_TRUE(Load(llama + "parallel { tp: 2 }", {}, 2).parallel().sequence_parallel());
  EXPECT_FALSE(Load(llama + "parallel { tp: 2 sequence_parallel: false }", {}, 2)
                   .parallel()
                   .sequence_parallel());
}

TEST(JobDefaultsTest, ServedTokensGetATable) {
  const std::string gpt =
      "data { path: \"text\" } model { gpt { dim: 8 heads: 2 embedding_stddev: 1 } }";
  for (const Job& job : {Load(gpt, {"placement=PS"}), Load(gpt + " tables { name: \"token\" }")}) {
    EXPECT_EQ(job.placement(), Job::PS);
    ASSERT_EQ(job.tables_size(), 1);
    EXPECT_EQ(job.tables(0).name(), "token");
    EXPECT_EQ(job.tables(0).dim(), 8);
    EXPECT_EQ(job.tables(0).init_stddev(), 1);
  }
}

TEST(JobDefaultsTest, GivenValuesStay) {
  const std::vector<std::string> sets = {"name=n",
                                         "seed=18446744073709551615",
                                         "device=CPU",
                                         "numerics=FAST",
                                         "data.path=p",
                                         "data.format=PAIRS",
                                         "data.negatives_path=q",
                                         "data.num_items=9",
                                         "model.sequence_rec.max_length=7",
                                         "model.sequence_rec.layers=3",
                                         "model.sequence_rec.heads=4",
                                         "model.sequence_rec.ffn_dim=5",
                                         "model.sequence_rec.activation=RELU",
                                         "model.sequence_rec.dropout=0.25",
                                         "model.sequence_rec.norm_epsilon=1e-5",
                                         "model.sequence_rec.init_stddev=0.5",
                                         "model.sequence_rec.loss=SAMPLED_SOFTMAX",
                                         "model.sequence_rec.num_negatives=6",
                                         "train.max_epochs=11",
                                         "train.max_steps=12",
                                         "train.min_epochs=13",
                                         "train.batch_size=14",
                                         "train.eval_every_epochs=15",
                                         "train.patience=16",
                                         "train.log_every_steps=17",
                                         "train.select_by=VALID_MRR",
                                         "train.accumulate=7",
                                         "optimizer.kind=SGD",
                                         "optimizer.learning_rate=0.5",
                                         "optimizer.beta1=0.25",
                                         "optimizer.beta2=0.75",
                                         "optimizer.epsilon=0.125",
                                         "optimizer.weight_decay=0.0625",
                                         "optimizer.max_grad_norm=2",
                                         "optimizer.schedule=COSINE",
                                         "optimizer.warmup_steps=19",
                                         "optimizer.min_learning_rate=0.25",
                                         "optimizer.schedule_steps=20",
                                         "tables[item].dim=8",
                                         "tables[item].optimizer=ADAGRAD",
                                         "tables[item].init_stddev=0.75",
                                         "tables[item].learning_rate=3",
                                         "tables[item].storage=INT8",
                                         "parallel.dp=2",
                                         "ps.consistency=BSP",
                                         "ps.threads=21",
                                         "ps.storage=BF16",
                                         "ps.wire=F16",
                                         "checkpoint.keep=22",
                                         "checkpoint.timeout_seconds=20.5",
                                         "runtime.threads=23",
                                         "runtime.timeout_seconds=24.5",
                                         "runtime.cuda_graphs=false"};
  EXPECT_EQ(DumpJob(Load(kMinimal, sets)), R"(name: "n"
seed: 18446744073709551615
device: CPU
data {
  path: "p"
  format: PAIRS
  negatives_path: "q"
  num_items: 9
}
model {
  sequence_rec {
    max_length: 7
    layers: 3
    heads: 4
    ffn_dim: 5
    activation: RELU
    dropout: 0.25
    norm_epsilon: 1e-05
    init_stddev: 0.5
    loss: SAMPLED_SOFTMAX
    num_negatives: 6
  }
}
train {
  max_epochs: 11
  max_steps: 12
  min_epochs: 13
  batch_size: 14
  eval_every_epochs: 15
  patience: 16
  log_every_steps: 17
  select_by: VALID_MRR
  accumulate: 7
}
optimizer {
  kind: SGD
  learning_rate: 0.5
  beta1: 0.25
  beta2: 0.75
  epsilon: 0.125
  weight_decay: 0.0625
  max_grad_norm: 2
  schedule: COSINE
  warmup_steps: 19
  min_learning_rate: 0.25
  schedule_steps: 20
}
tables {
  name: "item"
  dim: 8
  optimizer: ADAGRAD
  init_stddev: 0.75
  learning_rate: 3
  storage: INT8
  non_finite: REJECT
}
parallel {
  dp: 2
  tp: 1
  pp: 1
  microbatches: 7
  schedule: ONE_F_ONE_B
  virtual_stages: 1
}
ps {
  threads: 21
  storage: BF16
  wire: F16
}
checkpoint {
  keep: 22
  timeout_seconds: 20.5
}
runtime {
  threads: 23
  timeout_seconds: 24.5
  cuda_graphs: false
}
placement: PS
trace {
  first_step: 5
  steps: 2
}
)");
}

TEST(JobDefaultsTest, DependentDefaultsFollowTheirSource) {
  EXPECT_EQ(Load(kMinimal, {"tables[item].dim=10"}).model().sequence_rec().ffn_dim(), 40);
  EXPECT_EQ(Load(kMinimal, {"data.negatives_path=n"}).train().select_by(), VALID_SAMPLED_MRR);
  const Job sgd = Load(kMinimal, {"optimizer.kind=SGD", "optimizer.learning_rate=0.5",
                                  "optimizer.weight_decay=0.1"});
  EXPECT_EQ(sgd.tables(0).optimizer(), SGD);
  EXPECT_EQ(sgd.tables(0).learning_rate(), 0.5);
  EXPECT_EQ(Load(kMinimal, {"optimizer.kind=ADAMW"}).tables(0).optimizer(), ADAM);
  EXPECT_EQ(Load(kMinimal, {"optimizer.kind=ADAMW", "tables[item].weight_decay=0.1"})
                .tables(0)
                .optimizer(),
            ADAMW);
  EXPECT_EQ(Load(kMinimal, {}).tables(0).storage(), ParameterServer::F32);
  EXPECT_EQ(Load(kMinimal, {"ps.storage=BF16"}).tables(0).storage(), ParameterServer::BF16);
  EXPECT_EQ(Load(kMinimal, {"ps.wire=INT8"}).ps().wire(), ParameterServer::Wire::INT8);
  EXPECT_EQ(Load(kMinimal, {"ps.storage=BF16", "tables[item].storage=INT8"}).tables(0).storage(),
            ParameterServer::INT8);
  EXPECT_EQ(Load(kMinimal, {}, 4).parallel().dp(), 4);
  EXPECT_EQ(Load(kMinimal, {"ps.consistency=GEO"}).ps().geo_steps(), 10);
  EXPECT_EQ(Load(kMinimal, {"ps.consistency=ROW_BOUND"}).ps().cache_rows(), 65536);
  EXPECT_EQ(Load(kMinimal, {"ps.consistency=ASP"}).ps().cache_rows(), 0);
}

TEST(JobDefaultsTest, TablesGetTheNumbersOfTheirOptimizerOnly) {
  const auto table = [](const char* kind) {
    return Load(kMinimal, {std::string("tables[item].optimizer=") + kind}).tables(0);
  };
  EXPECT_EQ(table("MOMENTUM").momentum(), 0.9);
  EXPECT_EQ(table("NESTEROV").momentum(), 0.9);
  EXPECT_EQ(table("RMSPROP").rho(), 0.9);
  EXPECT_EQ(table("ADADELTA").rho(), 0.9);
  EXPECT_EQ(table("ADADELTA").epsilon(), 1e-6);
  EXPECT_EQ(table("FTRL").beta(), 1);
  EXPECT_EQ(table("GROUP_FTRL").beta(), 1);
  EXPECT_EQ(table("DC_SGD").delay_compensation(), 0.04);
  EXPECT_FALSE(table("ADAM").has_momentum());
  EXPECT_EQ(table("ADAM").epsilon(), 0) << "the job's, which specifications take over";
  EXPECT_EQ(Load(kMinimal, {"tables[item].optimizer=MOMENTUM", "tables[item].momentum=0"})
                .tables(0)
                .momentum(),
            0);
}

TEST(JobDefaultsTest, WithoutTrainersTheLayoutIsNotChecked) {
  EXPECT_EQ(Load(kMinimal, {}, 0).parallel().dp(), 1);
  EXPECT_EQ(Load(kMinimal, {"parallel.dp=3"}, 0).parallel().dp(), 3);
}

TEST(JobDefaultsTest, ADumpedJobLoadsAsItself) {
  const Job job = Load(kMinimal, {"model.dropout=0.1", "train.patience=3"});
  EXPECT_EQ(DumpJob(Load(DumpJob(job))), DumpJob(job));
}

TEST(JobDefaultsTest, FingerprintSeesEverythingButTheName) {
  const uint64_t fingerprint = JobFingerprint(Load(kMinimal));
  EXPECT_EQ(JobFingerprint(Load(kMinimal)), fingerprint);
  EXPECT_EQ(JobFingerprint(Load(kMinimal, {"name=other"})), fingerprint);
  EXPECT_EQ(JobFingerprint(Load(kMinimal, {"train.batch_size=256"})), fingerprint)
      << "a default written out is the same job";
  EXPECT_NE(JobFingerprint(Load(kMinimal, {"seed=1"})), fingerprint);
  EXPECT_NE(JobFingerprint(Load(kMinimal, {"tables[0].dim=32"})), fingerprint);
}

TEST(JobDefaultsTest, ExampleJobsLoad) {
  const std::filesystem::path examples = std::filesystem::path(TANDEM_SOURCE_DIR) / "examples";
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(examples)) {
    if (entry.path().extension() != ".textproto") continue;
    ++found;
    if (entry.path().parent_path().filename() == "custom_model") continue;  // program_test loads it
    const auto job = LoadJob(entry.path(), {"data.path=log", "data.items_path=titles"},
                             {.models = OurKinds().models(), .num_trainers = 2});
    EXPECT_TRUE(job.ok()) << job.status();
    if (job.ok()) {
      EXPECT_EQ(job->name(), entry.path().stem());
    }
    EXPECT_FALSE(LoadJob(entry.path(), {}, {.models = OurKinds().models(), .num_trainers = 2}).ok())
        << entry.path() << " names a data file";
  }
  EXPECT_GE(found, 2);
}

TEST(JobDefaultsTest, ATableTakesThePolicyOfTheRunUnlessItHasItsOwn) {
  EXPECT_EQ(Load(kMinimal).train().non_finite(), Train::STOP);
  EXPECT_EQ(Load(kMinimal).tables(0).non_finite(), Table::REJECT);
  EXPECT_EQ(Load(kMinimal, {"train.non_finite=SKIP"}).tables(0).non_finite(), Table::SKIP);
  EXPECT_EQ(Load(kMinimal, {"train.non_finite=SKIP", "tables[item].non_finite=REJECT"})
                .tables(0)
                .non_finite(),
            Table::REJECT);
  EXPECT_EQ(Load(kMinimal, {"tables[item].non_finite=CLIP"}).tables(0).non_finite(), Table::CLIP);
}

}  // namespace
}  // namespace tandem
