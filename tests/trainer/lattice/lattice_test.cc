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

// Windows of 7 symbols, so that ranks share rows unevenly, and 2 heads of keys and values for up to
// 8 ranks.
constexpr char kLlama[] = R"(
data { path: "text" }
model { llama { max_length: 7 layers: 2 heads: 8 kv_heads: 2 dim: 32 ffn_dim: 24 dropout: 0.1
                init_stddev: 0.1 } }
train { batch_size: 6 max_steps: 5 log_every_steps: 1 eval_every_steps: 5 }
placement: REPLICATED
)";

struct Variant {
  const char* name;
  const char* text;
  int largest_tp;
  std::vector<std::string> sets;
};

const std::vector<Variant>& Variants() {
  static const auto* const variants = new std::vector<Variant>{
      {"GptSgd",
       kGpt,
       4,
       {"optimizer.kind=SGD", "optimizer.learning_rate=1", "placement=REPLICATED"}},
      {"GptAdamClipped",
       kGpt,
       4,
       {"optimizer.kind=ADAMW", "optimizer.learning_rate=0.01", "optimizer.weight_decay=0.1",
        "optimizer.max_grad_norm=0.5", "placement=REPLICATED"}},
      {"GptTiedUniform",
       kGpt,
       4,
       {"model.gpt.tied_embeddings=true", "model.gpt.init=UNIFORM_FAN_IN", "optimizer.kind=ADAM",
        "optimizer.learning_rate=0.01", "placement=REPLICATED"}},
      {"LlamaSgd", kLlama, 8, {"optimizer.kind=SGD", "optimizer.learning_rate=0.3"}},
      {"LlamaTiedAdamClipped",
       kLlama,
       8,
       {"model.llama.tied_embeddings=true", "optimizer.kind=ADAMW", "optimizer.learning_rate=0.01",
        "optimizer.weight_decay=0.1", "optimizer.max_grad_norm=0.5"}},
      {"LlamaOneKvHead",
       kLlama,
       8,
       {"model.llama.kv_heads=1", "optimizer.kind=ADAM", "optimizer.learning_rate=0.01",
        "train.accumulate=2", "train.batch_size=17"}}};
  return *variants;
}

// All layouts of up to 8 ranks but that of one.
std::vector<Layout> Layouts(int largest_tp) {
  std::vector<Layout> layouts;
  for (int tp = 1; tp <= largest_tp; tp *= 2) {
    for (const int dp : {1, 2, 3, 4, 8}) {
      for (const int zero : {0, 1, 2, 3}) {
        for (const bool cut_rows : {false, true}) {
          if (dp * tp > 8 || (tp == 1 && cut_rows)) continue;
          if (dp * tp == 1 && zero == 0) continue;  // the serial run
          layouts.push_back({.dp = dp, .tp = tp, .zero = zero, .cut_rows = cut_rows});
        }
      }
    }
  }
  return layouts;
}

TEST(LatticeTest, EveryLayoutGivesTheNumbersOfOneProcess) {
  int num_layouts = 0;
  for (const Variant& variant : Variants()) {
    const Trained serial = Train(variant.text, variant.sets, {});
    ASSERT_TRUE(serial.status.ok()) << serial.status;
    ASSERT_EQ(serial.losses.size(), 5u);
    EXPECT_LT(serial.losses.back(), serial.losses.front());
    for (const Layout& layout : Layouts(variant.largest_tp)) {
      const Trained run = Train(variant.text, variant.sets, layout);
      EXPECT_LT(LargestDifference(run, serial), kTolerance)
          << variant.name << ", " << layout.ToString() << ": " << run.status;
      ++num_layouts;
    }
  }
  std::printf("%d layouts give the numbers of one process\n", num_layouts);
}

// Gradients of several passes add up in whole buckets if parallel.memory_bytes has room for them.
TEST(LatticeTest, GradientsMayStayWholeOverPasses) {
  const Variant& variant = Variants().back();
  const Trained serial = Train(variant.text, variant.sets, {});
  std::vector<std::string> sets = variant.sets;
  sets.push_back("parallel.memory_bytes=1000000");
  for (const int zero : {2, 3}) {
    const Layout layout{.dp = 3, .tp = 2, .zero = zero};
    EXPECT_LT(LargestDifference(Train(variant.text, sets, layout), serial), kTolerance)
        << layout.ToString();
  }
}

// Products in bf16, on every processor.
TEST(LatticeTest, CutModelsAgreeWithWholeOnesInBf16) {
  const std::vector<std::string> sets = {"optimizer.kind=ADAMW", "optimizer.learning_rate=0.003",
                                         "train.max_steps=20", "train.eval_every_steps=20"};
  const RunOptions bf16{.bf16 = true};
  const Trained serial = Train(kLlama, sets, {}, bf16), cut = Train(kLlama, sets, {.tp = 4}, bf16),
                whole = Train(kLlama, sets, {.tp = 4, .cut_rows = false}, bf16),
                gathered = Train(kLlama, sets, {.dp = 2, .tp = 2, .zero = 3}, bf16),
                staged = Train(
                    kLlama, sets,
                    {.tp = 2, .pp = 2, .schedule = "ZB_H1", .recompute = true, .microbatches = 3},
                    bf16),
                exact = Train(kLlama, sets, {});
  ASSERT_EQ(cut.losses.size(), 20u) << cut.status;
  ASSERT_EQ(whole.losses.size(), 20u) << whole.status;
  ASSERT_EQ(gathered.losses.size(), 20u) << gathered.status;
  ASSERT_EQ(staged.losses.size(), 20u) << staged.status;
  EXPECT_NE(serial.losses, exact.losses);
  for (size_t i = 0; i < cut.losses.size(); ++i) {
    EXPECT_NEAR(cut.losses[i] / whole.losses[i], 1, 0.01) << "step " << i;
    EXPECT_NEAR(cut.losses[i] / serial.losses[i], 1, 0.01) << "step " << i;
    EXPECT_NEAR(gathered.losses[i] / serial.losses[i], 1, 0.01) << "step " << i;
    EXPECT_NEAR(staged.losses[i] / serial.losses[i], 1, 0.01) << "step " << i;
  }
}

// A run's checkpoint, written under one layout, goes on under another.
TEST(LatticeTest, ARunGoesOnUnderAnyOtherLayout) {
  const std::vector<std::string>& sets = Variants()[1].sets;
  const Trained serial = Train(kGpt, sets, {});
  const std::vector<Layout> layouts = {{},
                                       {.dp = 2, .tp = 2, .zero = 1},
                                       {.dp = 3, .zero = 1},
                                       {.dp = 4, .zero = 3},
                                       {.dp = 2, .tp = 2, .zero = 2},
                                       {.tp = 4},
                                       {.dp = 2, .tp = 4, .cut_rows = false}};
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
