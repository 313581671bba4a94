// Whole runs on a CUDA device compared with runs on the CPU: one loop, equal models.
// Runs on a GPU (label gpu), and everywhere on the emulated device.
#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "kernels/base/device.h"
#include "kernels/memory/block_cache.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/job/job_config.h"
#include "trainer/job/job_options.h"
#include "trainer/loop/train_loop.h"
#include "trainer/tasks/ranking/sequence_data.h"
#include "trainer/tasks/text/text_data.h"

namespace tandem::loop {
namespace {

constexpr char kLanguageJob[] = R"(
data { path: "text" }
model { gpt { max_length: 16 layers: 1 heads: 2 dim: 32 dropout: 0.1 norm_bias: true linear_bias: true } }
optimizer { kind: ADAMW learning_rate: 1e-2 weight_decay: 0.01 max_grad_norm: 1 }
train { batch_size: 3 max_steps: 5 eval_every_steps: 5 }
)";

constexpr char kSequenceJob[] = R"(
data { path: "log" }
model { sequence_rec { max_length: 8 layers: 1 heads: 2 ffn_dim: 16 dropout: 0.2 init_stddev: 0.1 num_negatives: 8 } }
tables { name: "item" dim: 16 learning_rate: 1e-2 init_stddev: 0.1 }
optimizer { kind: ADAM learning_rate: 1e-2 }
train { batch_size: 12 max_steps: 4 eval_every_steps: 4 }
)";

data::Text SmallText() {
  data::Text text;
  text.vocabulary = data::Vocabulary(U" .acdeghimnost");
  for (uint64_t i = 0; i < 700; ++i)
    text.train.push_back(static_cast<int32_t>(RandomBelow({1, 2}, 0, i, 3) + i % 11));
  text.valid.assign(text.train.end() - 100, text.train.end());
  text.train.resize(600);
  return text;
}

SequenceRecData SmallLog() {
  return SequenceRecData(
      {.interactions =
           data::Generate({.seed = 5, .users = 30, .items = 30, .min_length = 3, .max_length = 12})
               .log,
       .path = "log"});
}

// The 4 users of each step have equal numbers of items, so steps have equal shapes. Only the last
// step of an epoch has 2 users.
constexpr char kEvenSequenceJob[] = R"(
data { path: "log" }
placement: REPLICATED
model { sequence_rec { max_length: 8 layers: 1 heads: 2 ffn_dim: 16 dropout: 0.2 init_stddev: 0.1 num_negatives: 8 } }
tables { name: "item" dim: 16 learning_rate: 1e-2 init_stddev: 0.1 }
optimizer { kind: ADAM learning_rate: 1e-2 }
train { batch_size: 4 max_steps: 12 eval_every_steps: 11 }
)";

SequenceRecData EvenLog() {
  return SequenceRecData(
      {.interactions =
           data::Generate({.seed = 5, .users = 38, .items = 30, .min_length = 9, .max_length = 9})
               .log,
       .path = "log"});
}

struct Result {
  report::RunSummary summary;
  std::vector<double> losses;
  std::vector<int64_t> launched;        // steps whose passes were one graph
  std::vector<uint64_t> system_blocks;  // after each step
  std::string printed;
  report::StepRecord last;
  RoleTrace trace;  // of the trainer

  auto params_hash() const { return summary.params_hash; }
};

class CudaRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaInfo info = QueryCuda();
    if (info.num_devices == 0) GTEST_SKIP() << info.why_none;
  }

  Result Run(const char* text, const tasks::JobData& data, std::vector<std::string> sets,
             const char* device) {
    const support::TempFolder folder;
    return RunIn(folder / "out", text, data, std::move(sets), device);
  }

  // Resumes from `resume`, if given. Ends after `stop_after` steps of its own, if positive.
  Result RunIn(const std::string& out, const char* text, const tasks::JobData& data,
               std::vector<std::string> sets, const char* device,
               const checkpoint::Checkpoint* resume = nullptr, int stop_after = 0) {
    sets.push_back(std::string("device=") + device);
    const auto job =
        ParseJob(text, "job", sets, {.models = OurKinds().models(), .num_trainers = 1});
    EXPECT_TRUE(job.ok()) << job.status();
    const auto place = job::DeviceOf(*job, 0, 1);
    EXPECT_TRUE(place.ok()) << place.status();
    testing::internal::CaptureStdout();
    auto output = report::RunOutput::Create(out, report::LogFormat::TEXT);
    ps::TableHost host(1);
    ps::LocalClient client(host, 0, 1);
    const auto groups = comm::ThreadGroup::Create(1, "dp");
    Result result;
    int asked = 0;
    ReplicaEnvironment environment;
    environment.resume = resume;
    environment.stop_requested = [&] { return ++asked == stop_after; };
    environment.device = place->device;
    environment.group = groups[0].get();
    environment.clients = ps::ClientsOf(client);
    environment.output = output->get();
    if (!by_default_) environment.compute = bf16_.empty() ? DType::F32 : DType::BF16;
    report::OnStep on_step([&](const report::StepRecord& record) {
      result.losses.push_back(record.loss);
      result.last = record;
      if (record.launched_graph) result.launched.push_back(record.step);
      result.system_blocks.push_back(BlockCache::num_system_blocks());
    });
    environment.observer = &on_step;
    environment.on_trace = [&](const std::vector<RoleTrace>& traces) { result.trace = traces[0]; };
    const auto summary = RunReplica(*job, data, environment);
    result.printed = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(summary.ok()) << summary.status();
    if (summary.ok()) result.summary = *summary;
    return result;
  }

  // Expects each step's loss and the evaluation's figures within `tolerance` of the CPU's. Two runs
  // agree to the bit.
  void ExpectLikeCpu(const char* text, const tasks::JobData& data,
                     const std::vector<std::string>& sets, double tolerance) {
    const Result cpu = Run(text, data, sets, "CPU"), cuda = Run(text, data, sets, "CUDA"),
                 again = Run(text, data, sets, "CUDA");
    ASSERT_EQ(cuda.losses.size(), cpu.losses.size());
    for (size_t i = 0; i < cpu.losses.size(); ++i)
      EXPECT_NEAR(cuda.losses[i] / cpu.losses[i], 1, tolerance) << "step " << i + 1;
    EXPECT_NE(cpu.losses.front(), cpu.losses.back());
    EXPECT_EQ(cuda.losses, again.losses);
    EXPECT_EQ(cuda.summary.params_hash, again.summary.params_hash);
    ASSERT_FALSE(cpu.summary.metrics.empty());
    for (const auto& [name, value] : cpu.summary.metrics) {
      EXPECT_NEAR(cuda.summary.metrics.at(name), value, 0.02 + tolerance * std::abs(value)) << name;
    }
  }

  // Stops after two steps on one device and resumes on another.
  Result RunBroken(const char* text, const tasks::JobData& data,
                   const std::vector<std::string>& sets, const char* first, const char* then) {
    const support::TempFolder folder;
    const Result begun = RunIn(folder / "out", text, data, sets, first, nullptr, 2);
    EXPECT_EQ(begun.summary.status, report::kStopped);
    const auto saved =
        checkpoint::OpenCheckpoint(folder / "out/checkpoints", checkpoint::Choice::NEWEST);
    EXPECT_TRUE(saved.ok()) << saved.status();
    if (!saved.ok()) return begun;
    EXPECT_EQ(saved->manifest.step(), 2u);
    Result resumed = RunIn(folder / "out", text, data, sets, then, &*saved);
    resumed.losses.insert(resumed.losses.begin(), begun.losses.begin(), begun.losses.end());
    return resumed;
  }

  // Expects equal bits on the first device, and equality up to rounding on the other device.
  void ExpectResumes(const char* text, const tasks::JobData& data,
                     const std::vector<std::string>& sets) {
    const Result unbroken = Run(text, data, sets, "CUDA"),
                 resumed = RunBroken(text, data, sets, "CUDA", "CUDA");
    EXPECT_EQ(resumed.losses, unbroken.losses);
    EXPECT_EQ(resumed.summary.params_hash, unbroken.summary.params_hash);
    EXPECT_EQ(resumed.summary.metrics, unbroken.summary.metrics);
    for (const auto& [first, then] : {std::pair("CPU", "CUDA"), std::pair("CUDA", "CPU")}) {
      const Result moved = RunBroken(text, data, sets, first, then);
      ASSERT_EQ(moved.losses.size(), unbroken.losses.size());
      for (size_t i = 0; i < moved.losses.size(); ++i)
        EXPECT_NEAR(moved.losses[i] / unbroken.losses[i], 1, 2e-5) << first << " " << i;
    }
  }

  // Expects equal losses, weights and figures with and without graphs, and the steps `launched` as
  // graphs.
  void ExpectGraphsChangeNothing(const char* text, const tasks::JobData& data,
                                 std::vector<std::string> sets,
                                 const std::vector<int64_t>& launched) {
    const Result with = Run(text, data, sets, "CUDA");
    sets.push_back("runtime.cuda_graphs=false");
    const Result without = Run(text, data, sets, "CUDA");
    EXPECT_EQ(with.launched, launched);
    EXPECT_EQ(without.launched, std::vector<int64_t>());
    EXPECT_EQ(with.losses, without.losses);
    EXPECT_EQ(with.summary.params_hash, without.summary.params_hash);
    EXPECT_EQ(with.summary.metrics, without.summary.metrics);
    EXPECT_EQ(with.printed.find("without CUDA graphs"), std::string::npos) << with.printed;
  }

  std::string bf16_;
  bool by_default_ = false;  // the loop chooses the precision
};

TEST_F(CudaRunTest, LanguageModelTrainsAsOnTheCpu) {
  ExpectLikeCpu(kLanguageJob, GptData({SmallText()}), {}, 2e-5);
}

TEST_F(CudaRunTest, LanguageModelInBf16TrainsAsOnTheCpu) {
  bf16_ = "BF16";
  for (const char* activation : {"GELU", "GELU_TANH"}) {
    SCOPED_TRACE(activation);
    ExpectLikeCpu(kLanguageJob, GptData({SmallText()}),
                  {"train.precision=BF16", std::string("model.gpt.activation=") + activation},
                  2e-2);
  }
}

TEST_F(CudaRunTest, Bf16IsTheDefaultOfLanguageModelsAndARunKeepsWhatItBeganWith) {
  const GptData data({SmallText()});
  bf16_ = "BF16";
  const Result bf16 = Run(kLanguageJob, data, {}, "CUDA");
  by_default_ = true;
  EXPECT_EQ(Run(kLanguageJob, data, {}, "CUDA").params_hash(), bf16.params_hash());
  EXPECT_EQ(RunBroken(kLanguageJob, data, {}, "CUDA", "CUDA").params_hash(), bf16.params_hash());
  by_default_ = false;
  bf16_.clear();
  const Result f32 = Run(kLanguageJob, data, {}, "CUDA"),
               recommender = Run(kSequenceJob, SmallLog(), {}, "CUDA");
  by_default_ = true;
  EXPECT_EQ(Run(kLanguageJob, data, {"train.precision=F32"}, "CUDA").params_hash(),
            f32.params_hash());
  EXPECT_EQ(Run(kSequenceJob, SmallLog(), {}, "CUDA").params_hash(), recommender.params_hash());
  // A run that began on a CPU in f32 stays in f32.
  const Result moved = RunBroken(kLanguageJob, data, {}, "CPU", "CUDA");
  for (size_t i = 0; i < f32.losses.size(); ++i)
    EXPECT_NEAR(moved.losses[i] / f32.losses[i], 1, 2e-5) << i;
}

TEST_F(CudaRunTest, TokenRowsOnServersAndAccumulationTrainAsOnTheCpu) {
  ExpectLikeCpu(kLanguageJob, GptData({SmallText()}), {"placement=PS", "train.accumulate=3"}, 2e-5);
}

TEST_F(CudaRunTest, RecommenderTrainsAsOnTheCpuWithEveryLoss) {
  const SequenceRecData data = SmallLog();
  for (const char* loss : {"BCE", "SAMPLED_SOFTMAX", "FULL_SOFTMAX"}) {
    for (const char* placement : {"PS", "REPLICATED"}) {
      SCOPED_TRACE(std::string(loss) + " " + placement);
      ExpectLikeCpu(
          kSequenceJob, data,
          {std::string("model.sequence_rec.loss=") + loss, std::string("placement=") + placement},
          2e-5);
    }
  }
}

TEST_F(CudaRunTest, StoppedAndResumedIsTheUnbrokenRun) {
  ExpectResumes(kLanguageJob, GptData({SmallText()}),
                {"placement=REPLICATED", "train.accumulate=3"});
  ExpectResumes(kSequenceJob, SmallLog(), {"placement=PS"});
}

TEST_F(CudaRunTest, InBf16StoppedAndResumedIsTheUnbrokenRun) {
  bf16_ = "BF16";
  const GptData data({SmallText()});
  const std::vector<std::string> sets{"train.precision=BF16"};
  const Result unbroken = Run(kLanguageJob, data, sets, "CUDA"),
               resumed = RunBroken(kLanguageJob, data, sets, "CUDA", "CUDA");
  EXPECT_EQ(resumed.losses, unbroken.losses);
  EXPECT_EQ(resumed.summary.params_hash, unbroken.summary.params_hash);
}

// A run with six steps before the recording, besides the traced steps: the fifth and the sixth.
std::vector<std::string> LongRun(std::initializer_list<std::string> more) {
  std::vector<std::string> sets{"model.gpt.dropout=0.2", "train.max_steps=14",
                                "train.eval_every_steps=5"};
  sets.insert(sets.end(), more);
  return sets;
}
const std::vector<int64_t> kLaunchedOfLongRun{9, 10, 11, 12, 13, 14};

TEST_F(CudaRunTest, StepsLaunchedAsGraphsHaveTheBitsOfOthers) {
  const GptData data({SmallText()});
  ExpectGraphsChangeNothing(kLanguageJob, data, LongRun({}), kLaunchedOfLongRun);
  ExpectGraphsChangeNothing(kLanguageJob, data,
                            LongRun({"train.accumulate=2", "model.gpt.tied_embeddings=true"}),
                            kLaunchedOfLongRun);
  bf16_ = "BF16";
  ExpectGraphsChangeNothing(kLanguageJob, data, LongRun({"train.precision=BF16"}),
                            kLaunchedOfLongRun);
}

TEST_F(CudaRunTest, TracedStepsAreNotLaunchedAsGraphsAndEndTheGraph) {
  const GptData data({SmallText()});
  const std::vector<std::string> sets =
      LongRun({"trace.first_step=9", "train.eval_every_steps=14"});
  ExpectGraphsChangeNothing(kLanguageJob, data, sets, {7, 8, 11, 12, 13, 14});
  const std::vector<uint64_t> blocks = Run(kLanguageJob, data, sets, "CUDA").system_blocks;
  EXPECT_GT(blocks[10], blocks[9] + 20) << "step 11 was not recorded anew";
}

TEST_F(CudaRunTest, AStepOfOtherShapesRunsBesideTheGraph) {
  // Steps 10 and 20 end an epoch. In the first epoch, steps 1 to 4 and 7 to 9 have equal shapes and
  // are not traced.
  for (const char* loss : {"SAMPLED_SOFTMAX", "FULL_SOFTMAX"}) {
    SCOPED_TRACE(loss);
    ExpectGraphsChangeNothing(kEvenSequenceJob, EvenLog(),
                              {std::string("model.sequence_rec.loss=") + loss}, {9, 11, 12});
  }
  ExpectGraphsChangeNothing(kEvenSequenceJob, EvenLog(),
                            {"model.sequence_rec.loss=BCE", "train.max_steps=22"},
                            {9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22});
}

TEST_F(CudaRunTest, RunWithGraphsGoesOnFromACheckpoint) {
  const GptData data({SmallText()});
  const std::vector<std::string> sets = LongRun({"train.max_steps=24"});
  const Result unbroken = Run(kLanguageJob, data, sets, "CUDA");
  const support::TempFolder folder;
  const Result begun = RunIn(folder / "out", kLanguageJob, data, sets, "CUDA", nullptr,
                             13);  // asked by two evaluations, too
  const auto saved =
      checkpoint::OpenCheckpoint(folder / "out/checkpoints", checkpoint::Choice::NEWEST);
  ASSERT_TRUE(saved.ok()) << saved.status();
  const Result resumed = RunIn(folder / "out", kLanguageJob, data, sets, "CUDA", &*saved);
  EXPECT_EQ(begun.launched, (std::vector<int64_t>{9, 10, 11}));
  EXPECT_EQ(resumed.launched, (std::vector<int64_t>{20, 21, 22, 23, 24}));
  EXPECT_EQ(resumed.summary.params_hash, unbroken.summary.params_hash);
  EXPECT_EQ(resumed.losses.back(), unbroken.losses.back());
}

// A task whose forward pass copies the loss to the host, which a graph cannot record.
class LookingTask : public tasks::Task {
 public:
  explicit LookingTask(std::unique_ptr<tasks::Task> task) : task_(std::move(task)) {}
  int64_t steps_per_epoch() const override { return task_->steps_per_epoch(); }
  std::unique_ptr<tasks::StepInput> Prepare(int64_t step) const override {
    return task_->Prepare(step);
  }
  Variable StageRows(Context& context, const tasks::StepInput& input, int part,
                     absl::Span<const Variable> rows, int chunk,
                     const Variable& before) const override {
    return task_->StageRows(context, input, part, rows, chunk, before);
  }
  Variable LossSum(Context& context, const tasks::StepInput& input, int part,
                   absl::Span<const Variable> rows, const Variable& hidden) const override {
    const Variable loss = task_->LossSum(context, input, part, rows, hidden);
    loss.value().ToHost(context.stream());
    return loss;
  }
  absl::StatusOr<tasks::Evaluation> Evaluate(tasks::EvaluationSplit split,
                                             const tasks::EvaluationArgs& args) override {
    return task_->Evaluate(split, args);
  }

 private:
  const std::unique_ptr<tasks::Task> task_;
};

class LookingData : public tasks::JobData {
 public:
  std::string Description() const override { return data_.Description(); }
  int64_t num_embeddings() const override { return data_.num_embeddings(); }
  std::unique_ptr<tasks::Task> MakeTask(const Job& job,
                                        const tasks::TaskEnvironment& environment) const override {
    return std::make_unique<LookingTask>(data_.MakeTask(job, environment));
  }
  std::vector<tasks::ReferenceColumn> References() const override { return data_.References(); }

 private:
  const SequenceRecData data_ = EvenLog();
};

TEST_F(CudaRunTest, AStepThatCannotBeRecordedIsWorthANoteAndNothingElse) {
  const LookingData data;
  const Result run = Run(kEvenSequenceJob, data, {}, "CUDA");
  const Result without = Run(kEvenSequenceJob, data, {"runtime.cuda_graphs=false"}, "CUDA");
  EXPECT_EQ(run.launched, std::vector<int64_t>());
  EXPECT_EQ(run.losses, without.losses);
  EXPECT_EQ(run.summary.params_hash, without.summary.params_hash);
  const size_t note =
      run.printed.find("steps run without CUDA graphs: a copy to the host cannot be recorded");
  ASSERT_NE(note, std::string::npos) << run.printed;
  EXPECT_EQ(run.printed.find("without CUDA graphs", note + 40), std::string::npos)
      << "once is enough: " << run.printed;
  EXPECT_EQ(without.printed.find("without CUDA graphs"), std::string::npos) << without.printed;
}

// The device's kernels lie in the phases of the traced step, on the device's own row. The host's
// waits are not among them.
TEST_F(CudaRunTest, ItsTraceHasTheDevicesKernels) {
  const Result run = Run(kLanguageJob, GptData({SmallText()}),
                         {"placement=PS", "trace.first_step=2", "trace.steps=1"}, "CUDA");
  uint32_t row = 0;
  for (const TraceThread& thread : run.trace.threads()) {
    if (thread.name() == "cuda:0") row = thread.number();
  }
  ASSERT_NE(row, 0u);
  std::map<std::string, std::vector<const RecordedSpan*>> spans;
  for (const RecordedSpan& span : run.trace.spans()) {
    if (span.thread() == row)
      spans[run.trace.names(static_cast<int>(span.name()))].push_back(&span);
  }
  for (const char* name :
       {"step", "forward", "backward", "commit", "dense_update", "gradient_norm"}) {
    ASSERT_EQ(spans[name].size(), 1u) << name;
  }
  const auto inside = [&](const char* kernel, const char* phase) {
    EXPECT_FALSE(spans[kernel].empty()) << kernel;
    const RecordedSpan& outer = *spans[phase][0];
    for (const RecordedSpan* span : spans[kernel]) {
      EXPECT_GE(span->begin_ns(), outer.begin_ns()) << kernel;
      EXPECT_LE(span->begin_ns() + span->duration_ns(), outer.begin_ns() + outer.duration_ns())
          << kernel;
    }
  };
  inside("attention_forward", "forward");
  inside("linear_cross_entropy", "forward");
  inside("attention_backward", "backward");
  inside("scatter_add_rows", "backward");
  inside("dense_update", "commit");
  inside("gemm", "step");
}

TEST_F(CudaRunTest, ItsStepsSayWhereTheirTimeGoesAndWhatOfThePeakTheyReach) {
  const Result run =
      Run(kSequenceJob, SmallLog(), {"placement=PS", "train.log_every_steps=4"}, "CUDA");
  EXPECT_GT(run.last.compute_ms, 0);
  EXPECT_GE(run.last.pull_ms, 0);
  EXPECT_GE(run.last.push_ms, 0);
  const double step_ms = 1e3 * 12 / run.last.samples_per_second;
  EXPECT_LE(run.last.compute_ms + run.last.collective_ms + run.last.pull_ms + run.last.push_ms,
            step_ms);
  EXPECT_GT(run.last.compute_ms + run.last.collective_ms + run.last.pull_ms + run.last.push_ms,
            0.5 * step_ms);
  if (PeakFlops({DeviceKind::CUDA, 0}, DType::F32) > 0) {
    EXPECT_GT(run.last.mfu, 0);
    EXPECT_LT(run.last.mfu, 1);
  }
}

TEST_F(CudaRunTest, GpusAreTheDefaultWhereThereAreEnoughAndAreSharedOnDemand) {
  const int num_devices = QueryCuda().num_devices;
  Job job;
  EXPECT_EQ(job::DeviceOf(job, num_devices - 1, num_devices)->device,
            (Device{DeviceKind::CUDA, num_devices - 1}));
  EXPECT_FALSE(job::DeviceOf(job, 0, num_devices)->shared);
  EXPECT_FALSE(job::DeviceOf(job, 0, num_devices + 1)->device.is_cuda());
  job.set_device(CUDA);
  EXPECT_EQ(job::DeviceOf(job, num_devices, num_devices + 1)->device,
            (Device{DeviceKind::CUDA, 0}));
  EXPECT_TRUE(job::DeviceOf(job, 0, num_devices + 1)->shared);
  job.set_device(CPU);
  EXPECT_FALSE(job::DeviceOf(job, 0, 1)->device.is_cuda());
}

}  // namespace
}  // namespace tandem::loop
