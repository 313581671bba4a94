// Every layout gives the numbers of one process: losses, norms, weights and moments, in f64.
#include <cstdio>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/trainer/lattice/lattice_run.h"

namespace tandem::lattice {
namespace {

constexpr double kTolerance = 1e-10;

// Batches of 6 windows: some ranks of a layout have one more than others, or none at all.
constexpr char kGpt[] = R"(
data { path: "text" }
model { gpt { max_length: 8 layers: 2 heads: 4 dim: 16 norm_bias: true linear_bias: true
              qkv_bias: true dropout: 0.1 init_stddev: 0.1 } }
train { batch_size: 6 max_steps: 5 log_every_steps: 1 eval_every_steps: 5 }
)";

struct Variant {
  const char* name;
  std::vector<std::string> sets;
};

const std::vector<Variant>& Variants() {
  static const auto* const variants = new std::vector<Variant>{
      {"Sgd", {"optimizer.kind=SGD", "optimizer.learning_rate=1", "placement=REPLICATED"}},
      {"AdamClipped",
       {"optimizer.kind=ADAMW", "optimizer.learning_rate=0.01", "optimizer.weight_decay=0.1",
        "optimizer.max_grad_norm=0.5", "placement=REPLICATED"}},
      {"TiedUniform",
       {"model.gpt.tied_embeddings=true", "model.gpt.init=UNIFORM_FAN_IN", "optimizer.kind=ADAM",
        "optimizer.learning_rate=0.01", "placement=REPLICATED"}}};
  return *variants;
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const int tp : {1, 2, 4}) {
    for (const int dp : {1, 2, 3, 4, 8}) {
      for (const int zero : {0, 1}) {
        if (dp * tp > 8 || (dp * tp == 1 && zero == 0)) continue;  // the last is the serial run
        layouts.push_back({.dp = dp, .tp = tp, .zero = zero});
      }
    }
  }
  return layouts;
}

TEST(LatticeTest, EveryLayoutGivesTheNumbersOfOneProcess) {
  int num_layouts = 0;
  for (const Variant& variant : Variants()) {
    const Trained serial = Train(kGpt, variant.sets, {});
    ASSERT_EQ(serial.losses.size(), 5u);
    EXPECT_LT(serial.losses.back(), serial.losses.front());
    for (const Layout& layout : Layouts()) {
      const Trained run = Train(kGpt, variant.sets, layout);
      EXPECT_LT(LargestDifference(run, serial), kTolerance)
          << variant.name << ", " << layout.ToString();
      ++num_layouts;
    }
  }
  std::printf("%d layouts give the numbers of one process\n", num_layouts);
}

// A run's checkpoint, written under one layout, goes on under another.
TEST(LatticeTest, ARunGoesOnUnderAnyOtherLayout) {
  const std::vector<std::string>& sets = Variants()[1].sets;
  const Trained serial = Train(kGpt, sets, {});
  const std::vector<Layout> layouts = {
      {}, {.dp = 2, .tp = 2, .zero = 1}, {.dp = 3, .zero = 1}, {.tp = 4}, {.dp = 2, .tp = 4}};
  std::vector<std::string> first = sets;
  first.insert(first.end(), {"train.max_steps=3", "train.eval_every_steps=3"});
  for (const Layout& before : layouts) {
    for (const Layout& after : layouts) {
      const support::TempFolder folder;
      const std::string out = folder.path() + "/out";
      Trained whole = TrainIn(out, kGpt, first, before);
      const Trained rest = TrainIn(out, kGpt, sets, after);
      whole.losses.insert(whole.losses.end(), rest.losses.begin(), rest.losses.end());
      whole.norms.insert(whole.norms.end(), rest.norms.begin(), rest.norms.end());
      whole.valid_loss = rest.valid_loss;
      whole.tensors = rest.tensors;
      EXPECT_LT(LargestDifference(whole, serial), kTolerance)
          << before.ToString() << ", then " << after.ToString();
    }
  }
}

}  // namespace
}  // namespace tandem::lattice
