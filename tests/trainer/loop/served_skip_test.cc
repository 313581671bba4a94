// In one step, one replica's gradient of one served parameter is not finite. All replicas and
// servers leave the step out.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/ps/cluster.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_config.h"
#include "trainer/job/job_options.h"
#include "trainer/loop/train_loop.h"

namespace tandem::loop {
namespace {

constexpr int kReplicas = 2;
// A job must have a model, but the task below has parameters of its own.
// A matrix decays and a vector does not, so their gradients are pushed as two buckets.
constexpr char kJob[] = R"(
data { path: "none" }
model { gpt { max_length: 16 layers: 1 heads: 2 dim: 32 } }
optimizer { kind: ADAMW learning_rate: 1e-3 weight_decay: 0.1 }
parameters { match: "*" placement: PS }
train { batch_size: 2 eval_every_steps: 1000 non_finite: SKIP }
runtime { timeout_seconds: 10 }
)";

using Weights = std::vector<double>;

// A replica's loss is matrix + vector. In step 2 the last replica scales its vector twice.
// f32 then holds the loss, but not the gradient.
class TwoParameters : public tasks::Task {
 public:
  TwoParameters(const tasks::TaskEnvironment& environment, std::vector<Weights>* last)
      : rank_(environment.group->rank()), parameters_(*environment.parameters), last_(*last) {
    matrix_ = parameters_.Normal("matrix", Shape{1, 4}, 1);
    vector_ = parameters_.Constant("vector", Shape{4}, 0);
  }
  int64_t steps_per_epoch() const override { return 1000; }
  std::unique_ptr<tasks::StepInput> Prepare(int64_t) const override {
    auto input = std::make_unique<tasks::StepInput>();
    input->global_samples = input->global_tokens = input->global_targets = kReplicas;
    return input;
  }
  Variable LossSum(Context& context, const tasks::StepInput&, int, absl::Span<const Variable>,
                   const Variable&) const override {
    const bool overflows = rank_ == kReplicas - 1 && context.step() == 2;
    const Variable scaled = ops::Scale(context, ops::Scale(context, vector_, overflows ? 1e38 : 1),
                                       overflows ? 100 : 1);
    const Variable loss = ops::Add(context, ops::Reshape(context, matrix_, Shape{4}), scaled);
    EXPECT_TRUE(std::isfinite(loss.value().At(0)));
    return loss;
  }
  absl::StatusOr<tasks::Evaluation> Evaluate(tasks::EvaluationSplit split,
                                             const tasks::EvaluationArgs&) override {
    Weights& weights = last_[static_cast<size_t>(rank_)];
    weights.clear();
    for (const auto& parameter : parameters_.all()) {
      for (int64_t i = 0; i < 4; ++i) weights.push_back(parameter->variable.value().At(i));
    }
    tasks::Evaluation evaluation;
    if (split == tasks::EvaluationSplit::VALID) evaluation.metrics["loss"] = 1;
    return evaluation;
  }

 private:
  const int rank_;
  ParameterSet& parameters_;
  std::vector<Weights>& last_;
  Variable matrix_, vector_;
};

class TwoParametersData : public tasks::JobData {
 public:
  explicit TwoParametersData(std::vector<Weights>* last) : last_(last) {}
  std::string Description() const override { return "two parameters"; }
  int64_t num_embeddings() const override { return 1; }
  std::unique_ptr<tasks::Task> MakeTask(const Job&,
                                        const tasks::TaskEnvironment& environment) const override {
    return std::make_unique<TwoParameters>(environment, last_);
  }
  std::vector<tasks::ReferenceColumn> References() const override { return {}; }

 private:
  std::vector<Weights>* const last_;
};

struct Result {
  absl::Status status;
  decltype(report::RunSummary::params_hash) params_hash = {};
  std::vector<Weights> weights =
      std::vector<Weights>(kReplicas);  // [replica], behind the last step
};

// `servers`: 0 for tables in this process.
Result Train(int steps, int servers) {
  const auto job = ParseJob(kJob, "job", {absl::StrCat("train.max_steps=", steps)},
                            {.models = OurKinds().models(), .num_trainers = kReplicas});
  EXPECT_TRUE(job.ok()) << job.status();
  Result result;
  const TwoParametersData data(&result.weights);
  const support::TempFolder folder;
  testing::internal::CaptureStdout();
  const auto output = report::RunOutput::Create(folder.path(), report::LogFormat::JSON).value();
  ps::TableHost host(2);
  ps::PsCluster cluster(servers, 1);
  const auto groups = comm::ThreadGroup::Create(kReplicas, "dp");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kReplicas; ++rank) {
    threads.emplace_back([&, rank] {
      ps::ClientStack client =
          std::make_unique<ps::LocalClient>(host, static_cast<uint32_t>(rank), kReplicas);
      if (servers > 0)
        client = cluster.MakeClient(static_cast<uint32_t>(rank), kReplicas,
                                    {.timeout = absl::Seconds(10)});
      ReplicaEnvironment environment;
      environment.group = groups[static_cast<size_t>(rank)].get();
      environment.clients = client;
      environment.output = rank == 0 ? output.get() : nullptr;
      const auto summary = RunReplica(*job, data, environment);
      if (rank != 0) return;
      result.status = summary.status();  // a replica that fails frees the others with its error
      if (summary.ok()) result.params_hash = summary->params_hash;
    });
  }
  for (std::thread& thread : threads) thread.join();
  testing::internal::GetCapturedStdout();
  return result;
}

TEST(ServedSkipTest, AStepWithOneGradientThatIsNotFiniteIsLeftOutWholeByAllReplicas) {
  for (const int servers : {0, 2}) {
    SCOPED_TRACE(absl::StrCat(servers, " servers"));
    const Result before = Train(1, servers);
    ASSERT_TRUE(before.status.ok()) << before.status;
    const Result skipped = Train(2, servers);
    ASSERT_TRUE(skipped.status.ok()) << skipped.status;
    const Result after = Train(3, servers);
    ASSERT_TRUE(after.status.ok()) << after.status;
    EXPECT_EQ(skipped.params_hash, before.params_hash);
    for (int rank = 0; rank < kReplicas; ++rank) {
      EXPECT_EQ(skipped.weights[rank], before.weights[rank]) << "replica " << rank;
      EXPECT_EQ(after.weights[rank], after.weights[0]) << "replica " << rank;
    }
    EXPECT_NE(after.params_hash, before.params_hash) << "training goes on behind the step";
  }
}

}  // namespace
}  // namespace tandem::loop
