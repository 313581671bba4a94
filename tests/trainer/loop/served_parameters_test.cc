// Whole runs whose dense parameters live on parameter servers, compared with runs by data
// parallelism. Also runs whose rows alone are spread over servers and threads.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "ps/wire/router.h"
#include "tests/ps/cluster.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/loop/small_text.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/job/job_config.h"
#include "trainer/job/job_options.h"
#include "trainer/job/parameter_placement.h"
#include "trainer/loop/train_loop.h"
#include "trainer/parallel/data_parallel/ddp.h"
#include "trainer/tasks/ranking/sequence_data.h"
#include "trainer/tasks/text/text_data.h"

namespace tandem::loop {
namespace {

// Parameters of several chunks: chunks span parameters and parameters span chunks.
constexpr char kGpt[] = R"(
data { path: "text" }
model { gpt { max_length: 16 layers: 2 heads: 2 dim: 32 norm_bias: true linear_bias: true } }
optimizer { kind: ADAM learning_rate: 3e-3 schedule: COSINE warmup_steps: 7 }
train { batch_size: 6 max_steps: 40 eval_every_steps: 20 }
)";
constexpr char kRecommender[] = R"(
data { path: "log" }
tables { name: "item" dim: 16 }
model { sequence_rec { max_length: 8 layers: 1 heads: 2 dropout: 0.2 init_stddev: 0.1 } }
optimizer { kind: ADAM learning_rate: 1e-2 }
train { batch_size: 16 max_steps: 100 eval_every_steps: 50 }
)";
constexpr char kServed[] = "parameters { match: \"*\" placement: PS }\n";

std::unique_ptr<tasks::JobData> DataOf(const Job& job) {
  if (job.model().has_gpt()) return std::make_unique<GptData>(tasks::TextFile{SmallText()});
  return std::make_unique<SequenceRecData>(tasks::SequenceFiles{
      .interactions =
          data::Generate({.seed = 5, .users = 70, .items = 30, .min_length = 3, .max_length = 12})
              .log,
      .path = "log"});
}

struct RunArgs {
  int replicas = 1;
  int servers = 0;  // 0: tables in this process
  std::vector<std::string> sets = {};
  std::optional<DType> compute = std::nullopt;
  std::string out = "";  // "": a folder that goes with the run
  const checkpoint::Checkpoint* resume = nullptr;
  int stop_after = -1;  // steps of this process
  std::function<void(comm::ProcessGroup&)> on_group = nullptr;
};

struct Result {
  absl::Status status;
  report::RunSummary summary;
  std::vector<double> losses, norms;
};

Result Train(const std::string& text, const RunArgs& args) {
  const auto job = ParseJob(text, "job", args.sets,
                            {.models = OurKinds().models(), .num_trainers = args.replicas});
  EXPECT_TRUE(job.ok()) << job.status();
  const std::unique_ptr<tasks::JobData> data = DataOf(*job);
  const support::TempFolder folder;
  testing::internal::CaptureStdout();
  std::unique_ptr<report::RunOutput> output =
      report::RunOutput::Create(args.out.empty() ? folder.path() : args.out,
                                report::LogFormat::JSON)
          .value();
  ps::TableHost host(job->ps().threads());
  ps::PsCluster cluster(args.servers, job->ps().threads());
  const auto groups = comm::ThreadGroup::Create(args.replicas, "dp");
  Result result;
  std::vector<absl::Status> ends(static_cast<size_t>(args.replicas));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < args.replicas; ++rank) {
    threads.emplace_back([&, rank] {
      ps::ClientStack client;
      const auto trainer = static_cast<uint32_t>(rank),
                 trainers = static_cast<uint32_t>(args.replicas);
      const ps::RemoteClientOptions options{.timeout = absl::Seconds(30),
                                            .message_bytes = 10000,
                                            .consistency = job::ConsistencyOf(*job)};
      if (args.servers > 0)
        client = cluster.MakeClient(trainer, trainers, options);
      else
        client =
            std::make_unique<ps::LocalClient>(host, trainer, trainers, job::ConsistencyOf(*job));
      int asked = 0;
      ReplicaEnvironment environment;
      environment.resume = args.resume;
      environment.group = groups[rank].get();
      environment.clients = client;
      environment.output = rank == 0 ? output.get() : nullptr;
      environment.stop_requested = [&] { return ++asked == args.stop_after; };
      environment.compute = args.compute;
      report::OnStep on_step([&](const report::StepRecord& record) {
        result.losses.push_back(record.loss);
        result.norms.push_back(record.grad_norm);
      });
      if (rank == 0) environment.observer = &on_step;
      const auto summary = RunReplica(*job, *data, environment);
      ends[static_cast<size_t>(rank)] = summary.status();
      if (rank == 0 && summary.ok()) result.summary = *summary;
    });
  }
  for (std::thread& thread : threads) thread.join();
  testing::internal::GetCapturedStdout();
  for (const absl::Status& end : ends) result.status.Update(end);
  return result;
}

void ExpectSameBits(const Result& a, const Result& b) {
  EXPECT_TRUE(a.status.ok() && b.status.ok()) << a.status << b.status;
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.summary.params_hash, b.summary.params_hash);
  EXPECT_EQ(a.summary.metrics, b.summary.metrics);
  EXPECT_EQ(a.summary.dense_parameters, b.summary.dense_parameters);
}

void ExpectSameToRounding(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5 * b[i]) << "step " << i + 1;
}

TEST(ServedParametersTest, AWholeModelTrainsOnServersWithTheBitsOfDataParallelism) {
  for (const char* text : {kGpt, kRecommender}) {
    for (const int replicas : {1, 2}) {  // two addends have one sum
      const Result ddp = Train(text, {.replicas = replicas});
      ASSERT_TRUE(ddp.status.ok()) << ddp.status;
      EXPECT_LT(ddp.losses.back(), 0.99 * ddp.losses.front());
      ExpectSameBits(Train(absl::StrCat(text, kServed), {.replicas = replicas}), ddp);
    }
  }
}

TEST(ServedParametersTest, AnyNumberOfServersGivesTheSameBits) {
  const std::string text = absl::StrCat(kGpt, kServed);
  const Result local = Train(text, {.replicas = 2});
  for (const int servers : {1, 2, 3})
    ExpectSameBits(Train(text, {.replicas = 2, .servers = servers}), local);
}

// PaddlePaddle/Paddle#2224: servers that own nothing wait for ever.
TEST(ServedParametersTest, MoreServersThanChunksTrainToo) {
  const std::string text = absl::StrCat(kRecommender, kServed);
  ExpectSameBits(Train(text, {.servers = 7, .sets = {"train.max_steps=5"}}),
                 Train(text, {.sets = {"train.max_steps=5"}}));
}

// tensorflow/tensorflow#24953: one server sends most of the bytes.
TEST(ServedParametersTest, ChunksLoadAllServersAlike) {
  constexpr int kServers = 4;
  std::vector<uint64_t> chunks(10'000);  // 40 MB of parameters
  std::iota(chunks.begin(), chunks.end(), 1);
  const auto split =
      ps::Router::RoundRobin(kServers).Split(2, "parameters", chunks.data(), chunks.size());
  ASSERT_TRUE(split.ok());
  for (const ps::OwnedIds& owned : *split)
    EXPECT_NEAR(static_cast<double>(owned.ids.size()), 2500, 250);
}

TEST(ServedParametersTest, ThreeTrainersAgreeToRounding) {
  const Result ddp = Train(kRecommender, {.replicas = 3}),
               served = Train(absl::StrCat(kRecommender, kServed), {.replicas = 3});
  ASSERT_TRUE(served.status.ok()) << served.status;
  ExpectSameToRounding(served.losses, ddp.losses);
}

TEST(ServedParametersTest, EveryOptimizerAccumulationAndPrecisionHasTheSameBits) {
  const std::vector<std::vector<std::string>> optimizers = {
      {"optimizer.kind=SGD", "optimizer.weight_decay=0.1", "optimizer.decay_all=true"},
      {"optimizer.kind=ADAGRAD"},
      {"optimizer.kind=ADAMW", "optimizer.weight_decay=0.1"}};  // of matrices: there are two tables
  for (const std::vector<std::string>& sets : optimizers) {
    ExpectSameBits(Train(absl::StrCat(kGpt, kServed), {.replicas = 2, .sets = sets}),
                   Train(kGpt, {.replicas = 2, .sets = sets}));
  }
  const std::vector<std::string> parts = {"train.accumulate=3", "train.max_steps=10"};
  ExpectSameBits(Train(absl::StrCat(kGpt, kServed), {.replicas = 2, .sets = parts}),
                 Train(kGpt, {.replicas = 2, .sets = parts}));
  // bf16 shadows follow the weights that arrive.
  const std::vector<std::string> bf16 = {"train.precision=BF16"};
  ExpectSameBits(Train(absl::StrCat(kGpt, kServed), {.sets = bf16, .compute = DType::BF16}),
                 Train(kGpt, {.sets = bf16, .compute = DType::BF16}));
}

TEST(ServedParametersTest, SomeParametersOnServersBesideReplicatedOnes) {
  const char* mixed =
      "parameters { match: \"blocks.*.bias\" } parameters { match: \"blocks.*\" placement: PS }";
  ExpectSameBits(Train(absl::StrCat(kGpt, mixed), {.replicas = 2}), Train(kGpt, {.replicas = 2}));
}

TEST(ServedParametersTest, ClippingSeesTheWholeGradient) {
  const char* mixed = "parameters { match: \"blocks.*\" placement: PS }";
  const std::vector<std::string> clipped = {"optimizer.max_grad_norm=0.1"};
  const Result ddp = Train(kGpt, {.replicas = 2, .sets = clipped}),
               free = Train(kGpt, {.replicas = 2});
  ASSERT_GT(std::abs(ddp.losses.back() / free.losses.back() - 1), 1e-3) << "nothing was clipped";
  for (const char* placement : {kServed, mixed}) {
    const Result served = Train(absl::StrCat(kGpt, placement), {.replicas = 2, .sets = clipped});
    ASSERT_TRUE(served.status.ok()) << served.status;
    ExpectSameToRounding(served.losses, ddp.losses);
    ExpectSameToRounding(served.norms, ddp.norms);
  }
}

TEST(ServedParametersTest, NoCollectiveSumsWhatIsServed) {
  // Collectives sum only `a`, which is not served, and a loss.
  ParameterSet parameters(1, DType::F32);
  parameters.Constant("a", Shape{4}, 1);
  parameters.Constant("b", Shape{4}, 1);
  Job job;
  job.add_parameters()->set_match("b");
  job.mutable_parameters(0)->set_placement(Job::PS);
  const auto placements = job::PlacementsOf(job, parameters);
  ASSERT_TRUE(placements.ok());
  ThreadPool pool(1);
  Stream stream(&pool);
  const auto groups = comm::ThreadGroup::Create(1, "dp");
  const auto replicated = PlacedAs(parameters, *placements, parallel::Placement::REPLICATED);
  const auto ddp = parallel::Ddp::Create(&parameters, replicated, groups[0].get(),
                                         /*holders=*/nullptr, &stream, {});
  ASSERT_TRUE(ddp.ok());
  (*ddp)->BeginStep(1);
  Context context({.stream = &stream});
  (*ddp)->Finish(context);
  EXPECT_TRUE(parameters.all()[0]->variable.leaf().has_gradient());
  EXPECT_FALSE(parameters.all()[1]->variable.leaf().has_gradient());
}

// A run resumes on another number of servers (tensorflow/recommenders-addons#65), and with
// collectives instead of servers.
// meta-pytorch/torchrec#2394: the names of optimizer state depend on its sharding. Weights and
// slots come from one step (DeepRec-AI/DeepRec#1023).
TEST(ServedParametersTest, AResumedRunGoesOnWithTheSameBitsAlsoWithAnotherPlacement) {
  const std::string served = absl::StrCat(kGpt, kServed);
  const Result unbroken = Train(served, {.replicas = 2});
  struct Leg {
    std::string first, second;
    int servers;
  };
  for (const Leg& leg : {Leg{served, served, 2}, Leg{served, kGpt, 0}, Leg{kGpt, served, 2}}) {
    const support::TempFolder folder;
    Train(leg.first, {.replicas = 2, .servers = 1, .out = folder.path(), .stop_after = 13});
    const auto saved =
        checkpoint::OpenCheckpoint(folder / "checkpoints", checkpoint::Choice::NEWEST);
    ASSERT_TRUE(saved.ok()) << saved.status();
    ASSERT_EQ(saved->manifest.step(), 13u);
    const auto job =
        ParseJob(leg.second, "job", {}, {.models = OurKinds().models(), .num_trainers = 2});
    EXPECT_TRUE(checkpoint::CheckSameRun(*job, saved->manifest, OurKinds().models()).ok());
    const Result resumed =
        Train(leg.second,
              {.replicas = 2, .servers = leg.servers, .out = folder.path(), .resume = &*saved});
    ASSERT_TRUE(resumed.status.ok()) << resumed.status;
    EXPECT_EQ(resumed.losses,
              std::vector<double>(unbroken.losses.begin() + 13, unbroken.losses.end()));
    EXPECT_EQ(resumed.summary.params_hash, unbroken.summary.params_hash);
  }
}

TEST(ServedParametersTest, EveryConsistencyTrainsAndEvaluatesAllReplicasAlike) {
  for (const char* consistency :
       {"ps.consistency=ASP", "ps.consistency=SSP", "ps.consistency=PERMIT"}) {
    SCOPED_TRACE(consistency);
    const Result run =
        Train(absl::StrCat(kGpt, kServed), {.replicas = 2, .servers = 2, .sets = {consistency}});
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_LT(run.losses.back(), 0.9 * run.losses.front());
    EXPECT_TRUE(run.summary.metrics.count("valid/loss"));
  }
}

TEST(ServedParametersTest, AStepWithoutFiniteGradientsIsSkippedAsByDataParallelism) {
  // The first step throws the weights so far that the second step's gradients overflow. From then
  // on the weights stay.
  const std::vector<std::string> sets = {"optimizer.learning_rate=1e38", "train.max_steps=4",
                                         "train.non_finite=SKIP"};
  const Result served = Train(absl::StrCat(kGpt, kServed), {.replicas = 2, .sets = sets});
  ASSERT_TRUE(served.status.ok()) << served.status;
  EXPECT_FALSE(std::isfinite(served.losses.back()));
  EXPECT_EQ(served.summary.params_hash,
            Train(absl::StrCat(kGpt, kServed),
                  {.replicas = 2, .sets = {sets[0], sets[2], "train.max_steps=1"}})
                .summary.params_hash);
  EXPECT_EQ(served.summary.params_hash,
            Train(kGpt, {.replicas = 2, .sets = sets}).summary.params_hash);
}

TEST(ServedParametersTest, AnEntryThatMatchesNothingIsRefusedNamingIt) {
  const Result result =
      Train(absl::StrCat(kGpt, kServed, "parameters { match: \"block.*\" placement: PS }"),
            {.replicas = 2});
  EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
  EXPECT_NE(result.status.message().find("parameters[1].match is \"block.*\""),
            absl::string_view::npos)
      << result.status;
}

// Each layout differs from the local one in two settings or more.
TEST(LayoutTest, NoNumberOfServersOrThreadsChangesABitOfAnyRecipe) {
  const std::vector<std::vector<std::string>> recipes{
      {"model.sequence_rec.loss=BCE"},
      {"model.sequence_rec.loss=SAMPLED_SOFTMAX", "model.sequence_rec.num_negatives=33",
       "optimizer.max_grad_norm=0.5", "train.accumulate=2", "tables[item].optimizer=SGD"},
      {"model.sequence_rec.loss=FULL_SOFTMAX", "tables[item].optimizer=ADAGRAD",
       "optimizer.kind=ADAMW", "optimizer.weight_decay=0.01"}};
  struct Layout {
    int servers, trainer_threads, server_threads;
  };
  for (const std::vector<std::string>& recipe : recipes) {
    SCOPED_TRACE(recipe[0]);
    const auto train = [&](int replicas, const Layout& layout) {
      std::vector<std::string> sets = recipe;
      sets.insert(sets.end(), {"train.max_steps=20", "train.eval_every_steps=20",
                               absl::StrCat("runtime.threads=", layout.trainer_threads),
                               absl::StrCat("ps.threads=", layout.server_threads)});
      return Train(kRecommender, {.replicas = replicas, .servers = layout.servers, .sets = sets});
    };
    for (const int replicas : {1, 2}) {
      const Result local = train(replicas, {0, 1, 1});
      ASSERT_EQ(local.losses.size(), 20u);
      for (const Layout& layout : {Layout{0, 2, 2}, {1, 1, 2}, {2, 2, 1}, {4, 2, 2}})
        ExpectSameBits(train(replicas, layout), local);
    }
  }
}

// Without other trainers no row is stale. The modes' servers count and apply as BSP's do.
TEST(LayoutTest, OneTrainersBitsAreThoseOfBspOverServersInEveryMode) {
  const std::vector<std::string> steps{"train.max_steps=20", "train.eval_every_steps=20"};
  const Result bsp = Train(kRecommender, {.sets = steps});
  for (const std::vector<std::string>& mode :
       {std::vector<std::string>{"ps.consistency=SSP", "ps.staleness=2"},
        {"ps.consistency=PERMIT", "ps.staleness=1"}}) {
    SCOPED_TRACE(mode[0]);
    std::vector<std::string> sets = steps;
    sets.insert(sets.end(), mode.begin(), mode.end());
    ExpectSameBits(Train(kRecommender, {.servers = 2, .sets = sets}), bsp);
  }
}

TEST(ParameterPlacementTest, StarsStandForAnyCharacters) {
  const struct {
    const char *pattern, *name;
    bool matches;
  } cases[] = {{"*", "a.b", true},
               {"*", "", true},
               {"", "a", false},
               {"a.b", "a.b", true},
               {"a.b", "a.bc", false},
               {"a.*", "a.b.c", true},
               {"*.c", "a.b.c", true},
               {"*.b", "a.b.c", false},
               {"a*b*c", "a.b.b.c", true},
               {"a*b*c", "a.b", false},
               {"**c", "c", true},
               {"a*", "a", true},
               {"*bias", "a.bias.bias", true},
               {"*b.c", "a.b.b.c", true}};
  for (const auto& c : cases)
    EXPECT_EQ(job::MatchesName(c.pattern, c.name), c.matches) << c.pattern << " " << c.name;
}

}  // namespace
}  // namespace tandem::loop
