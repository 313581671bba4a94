// The lattice can fail. Every fault planted here, one at a time, is seen under some layout.
#include <cstdio>
#include <gtest/gtest.h>
#include <mutex>

#include "tests/trainer/lattice/lattice_run.h"
#include "tests/trainer/loop/small_text.h"
#include "tests/trainer/our_kinds.h"

namespace tandem::lattice {
namespace {

constexpr double kTolerance = 1e-10;

// Clipped, so that a norm counts, by SGD, which a gradient of the wrong size cannot deceive.
constexpr char kTrain[] = R"(
data { path: "text" }
optimizer { kind: SGD learning_rate: 0.5 max_grad_norm: 0.5 }
train { batch_size: 6 max_steps: 3 log_every_steps: 1 eval_every_steps: 3 }
placement: REPLICATED
)";
constexpr char kGpt[] = R"(
model { gpt { max_length: 7 layers: 1 heads: 4 dim: 16 norm_bias: true linear_bias: true
              qkv_bias: true init_stddev: 0.1 } }
)";
constexpr char kLlama[] = R"(
model { llama { max_length: 7 layers: 1 heads: 4 kv_heads: 2 dim: 16 ffn_dim: 24
                init_stddev: 0.1 } }
)";

const Layout kLayouts[] = {{.dp = 2},
                           {.dp = 2, .tp = 2},
                           {.dp = 1, .tp = 4, .cut_rows = false},
                           {.dp = 2, .tp = 4, .zero = 1}};

struct Fault {
  std::string name;
  // Changes the records of a model, once its parameters are made.
  std::function<void(const ParameterSet&)> change_records = nullptr;
  bool keep_padding = false;       // rows that pad a sum are not cleared
  bool count_own_targets = false;  // the loss is divided by a replica's own targets
};

class UnclearedGroup final : public parallel::TensorGroup {
 public:
  using TensorGroup::TensorGroup;

 private:
  void ClearPadding(const Tensor& rows, Stream& stream) const override {
    kernels::Fill(rows.view(), 1, stream);
  }
};

template <class Task>
class FaultyTask final : public Task {
 public:
  FaultyTask(const Job& job, const tasks::TextData* data, const tasks::TaskEnvironment& environment,
             const Fault& fault, std::unique_ptr<parallel::TensorGroup> group)
      : Task(job, data, With(environment, group.get())),
        num_replicas_(environment.group->size()),
        fault_(fault),
        group_(std::move(group)) {
    if (fault.change_records) fault.change_records(*environment.parameters);
  }
  std::unique_ptr<tasks::StepInput> Prepare(int64_t step) const override {
    auto input = Task::Prepare(step);
    if (fault_.count_own_targets) input->global_targets /= num_replicas_;
    return input;
  }

 private:
  static tasks::TaskEnvironment With(tasks::TaskEnvironment environment,
                                     const parallel::TensorGroup* group) {
    if (group != nullptr) environment.tp = group;
    return environment;
  }

  const int num_replicas_;
  const Fault& fault_;
  const std::unique_ptr<parallel::TensorGroup> group_;
};

template <class Task>
class FaultyData final : public tasks::TextData {
 public:
  explicit FaultyData(const Fault* fault)
      : TextData(tasks::TextFile{loop::SmallText()}), fault_(*fault) {}
  std::unique_ptr<tasks::Task> MakeTask(const Job& job,
                                        const tasks::TaskEnvironment& environment) const override {
    std::unique_ptr<parallel::TensorGroup> group;
    if (fault_.keep_padding && environment.tp != nullptr) {
      group =
          std::make_unique<UnclearedGroup>(&environment.tp->group(), environment.tp->cuts_rows());
    }
    return std::make_unique<FaultyTask<Task>>(job, this, environment, fault_, std::move(group));
  }

 private:
  const Fault& fault_;
};

// Faults in the record of the parameter `name`. Each changes something where layers are cut: a cut
// parameter with one holder has no sum over holders.
std::vector<Fault> FaultsOf(const std::string& name, bool has_holders) {
  const auto fault = [&](const char* what, void (*change)(GradientRecord&)) {
    return Fault{name + ": " + what, [name, change](const ParameterSet& parameters) {
                   for (const auto& parameter : parameters.all()) {
                     if (parameter->name == name) change(parameter->record);
                   }
                 }};
  };
  std::vector<Fault> faults{
      fault("partial over dp", [](GradientRecord& r) { r.partial_over_dp = !r.partial_over_dp; })};
  if (has_holders) {
    faults.push_back(fault("partial over tp", [](GradientRecord& r) {
      if (r.holders > 1) r.partial_over_tp = !r.partial_over_tp;
    }));
    faults.push_back(fault("one holder", [](GradientRecord& r) {  // all count it in the norm
      r.partial_over_tp = false;
      if (r.holders > 0) r.holders = 1;
    }));
  }
  return faults;
}

template <class Task>
void EveryFaultIsSeen(const std::string& model, int* tried, int* found) {
  const std::string text = kTrain + model;
  const Trained serial = Train(text, {}, {});
  ASSERT_TRUE(serial.status.ok()) << serial.status;
  // Names, and whether the parameter has several holders under the last layout.
  std::vector<std::pair<std::string, bool>> names;
  std::mutex mutex;
  const Fault look{"none", [&](const ParameterSet& parameters) {
                     const std::lock_guard<std::mutex> lock(mutex);
                     names.clear();
                     for (const auto& parameter : parameters.all())
                       names.emplace_back(parameter->name, parameter->record.holders > 1);
                   }};
  const auto train = [&](const Fault& fault, const Layout& layout) {
    return Train(text, {}, layout, {.make_data = [&](const Job&) {
                   return std::make_unique<FaultyData<Task>>(&fault);
                 }});
  };
  for (const Layout& layout : kLayouts)
    ASSERT_LT(LargestDifference(train(look, layout), serial), kTolerance) << layout.ToString();
  std::vector<Fault> faults{{.name = "padding is not cleared", .keep_padding = true},
                            {.name = "own targets are counted", .count_own_targets = true}};
  for (const auto& [name, has_holders] : names) {
    for (Fault& fault : FaultsOf(name, has_holders)) faults.push_back(std::move(fault));
  }
  for (const Fault& fault : faults) {
    ++*tried;
    bool seen = false;
    for (const Layout& layout : kLayouts)
      seen = seen || LargestDifference(train(fault, layout), serial) > kTolerance;
    EXPECT_TRUE(seen) << fault.name;
    *found += seen ? 1 : 0;
  }
}

TEST(LatticeFaultsTest, EveryFaultIsSeenUnderSomeLayout) {
  int tried = 0, found = 0;
  EveryFaultIsSeen<tasks::GptTask>(kGpt, &tried, &found);
  EveryFaultIsSeen<tasks::LlamaTask>(kLlama, &tried, &found);
  std::printf("%d faults tried, %d seen\n", tried, found);
  EXPECT_EQ(found, tried);
  EXPECT_GT(tried, 50);
}

// Both ends of a pipeline hold a tied table. Each has a part of its gradient, and one counts it.
TEST(LatticeFaultsTest, ATiedTableThatStagesDoNotSumIsSeen) {
  const std::string text = std::string(kTrain) + kGpt;
  const std::vector<std::string> sets{"model.gpt.layers=2", "model.gpt.tied_embeddings=true"};
  const Trained serial = Train(text, sets, {});
  const auto difference = [&](const std::function<void(GradientRecord&)>& change) {
    const Fault fault{"tied", [&](const ParameterSet& parameters) {
                        for (const auto& parameter : parameters.all()) change(parameter->record);
                      }};
    const RunOptions options{.make_data = [&](const Job&) {
      return std::make_unique<FaultyData<tasks::GptTask>>(&fault);
    }};
    return LargestDifference(Train(text, sets, {.pp = 2, .microbatches = 2}, options), serial);
  };
  EXPECT_LT(difference([](GradientRecord&) {}), kTolerance);
  EXPECT_GT(difference([](GradientRecord& record) { record.tied_over_pp = false; }), kTolerance);
}

}  // namespace
}  // namespace tandem::lattice
