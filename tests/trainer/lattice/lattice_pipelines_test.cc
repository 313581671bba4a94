// Every layout with stages gives the numbers of one process: losses, norms, weights and moments, in
// f64, under every schedule.
#include <cstdio>
#include <gtest/gtest.h>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/lattice/lattice_run.h"

namespace tandem::lattice {
namespace {

constexpr double kTolerance = 1e-10;

// Batches of 13 windows, so that microbatches and replicas are uneven.
constexpr char kGpt[] = R"(
data { path: "text" }
model { gpt { max_length: 6 layers: 8 heads: 2 dim: 8 norm_bias: true linear_bias: true
              qkv_bias: true dropout: 0.1 init_stddev: 0.1 } }
train { batch_size: 13 max_steps: 3 log_every_steps: 1 eval_every_steps: 3 }
placement: REPLICATED
)";
constexpr char kLlama[] = R"(
data { path: "text" }
model { llama { max_length: 7 layers: 8 heads: 4 kv_heads: 2 dim: 8 ffn_dim: 12 dropout: 0.1
                init_stddev: 0.1 tied_embeddings: true } }
train { batch_size: 13 max_steps: 3 log_every_steps: 1 eval_every_steps: 3 }
placement: REPLICATED
)";

struct Variant {
  const char* name;
  const char* text;
  std::vector<std::string> sets;
};

const std::vector<Variant>& Variants() {
  static const auto* const variants = new std::vector<Variant>{
      {"GptSgd", kGpt, {"optimizer.kind=SGD", "optimizer.learning_rate=0.5"}},
      {"GptTiedAdamClipped",
       kGpt,
       {"model.gpt.tied_embeddings=true", "optimizer.kind=ADAMW", "optimizer.learning_rate=0.01",
        "optimizer.weight_decay=0.1", "optimizer.max_grad_norm=0.5"}},
      {"LlamaTied", kLlama, {"optimizer.kind=SGD", "optimizer.learning_rate=0.3"}}};
  return *variants;
}

// The values of a layout on the axes of the lattice.
std::vector<std::string> ValuesOf(const Layout& layout) {
  return {absl::StrCat("dp ", layout.dp),
          absl::StrCat("tp ", layout.tp),
          absl::StrCat("zero ", layout.zero),
          absl::StrCat("pp ", layout.pp),
          layout.schedule,
          layout.recompute ? "recompute" : "no recompute",
          absl::StrCat("microbatches ", layout.microbatches)};
}

// All layouts of up to 8 ranks. Also fewer microbatches than stages, and no multiple of them.
std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const int pp : {1, 2, 4}) {
    for (const int tp : {1, 2}) {
      for (const int dp : {1, 2}) {
        if (pp * tp * dp > 8) continue;
        for (const int zero : {0, 1}) {
          for (const char* schedule : {"GPIPE", "ONE_F_ONE_B", "INTERLEAVED", "ZB_H1"}) {
            for (const bool recompute : {false, true}) {
              for (const int microbatches : {1, 3, 4, 6}) {
                layouts.push_back({.dp = dp,
                                   .tp = tp,
                                   .zero = zero,
                                   .pp = pp,
                                   .schedule = schedule,
                                   .recompute = recompute,
                                   .microbatches = microbatches});
              }
            }
          }
        }
      }
    }
  }
  return layouts;
}

TEST(LatticePipelinesTest, EveryScheduleGivesTheNumbersOfOneProcess) {
  std::vector<Trained> serial;
  for (const Variant& variant : Variants()) {
    serial.push_back(Train(variant.text, variant.sets, {}));
    ASSERT_TRUE(serial.back().status.ok()) << serial.back().status;
    ASSERT_EQ(serial.back().losses.size(), 3u);
    EXPECT_LT(serial.back().losses.back(), serial.back().losses.front());
  }
  // Every third layout, which still has every pair of values of any two axes: they are counted.
  constexpr size_t kStride = 3;
  const std::vector<Layout> layouts = Layouts();
  std::set<std::string> all_pairs, pairs;
  int num_layouts = 0;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::vector<std::string> values = ValuesOf(layouts[i]);
    for (const std::string& a : values) {
      for (const std::string& b : values) {
        all_pairs.insert(a + ", " + b);
        if (i % kStride == 0) pairs.insert(a + ", " + b);
      }
    }
    if (i % kStride != 0) continue;
    const size_t v = i / kStride % Variants().size();
    const Trained run = Train(Variants()[v].text, Variants()[v].sets, layouts[i]);
    EXPECT_LT(LargestDifference(run, serial[v]), kTolerance)
        << Variants()[v].name << ", " << layouts[i].ToString() << ": " << run.status;
    ++num_layouts;
  }
  EXPECT_EQ(pairs, all_pairs);
  EXPECT_GE(num_layouts, 100);
  std::printf("%d of %zu layouts with stages give the numbers of one process\n", num_layouts,
              layouts.size());
}

TEST(LatticePipelinesTest, StagesMayBeUneven) {
  for (const Variant& variant : Variants()) {
    const Trained serial = Train(variant.text, variant.sets, {});
    for (const Layout& layout :
         {Layout{.pp = 3, .schedule = "ZB_H1", .microbatches = 5, .layers_per_stage = {1, 6, 1}},
          Layout{.dp = 2,
          .pp = 2,
          .schedule = "INTERLEAVED",
          .recompute = true,
          .microbatches = 4,
          .layers_per_stage = {1, 2, 4, 1}},
          Layout{.tp = 2, .cut_rows = false, .pp = 3, .schedule = "GPIPE", .microbatches = 2}}) {
      const Trained run = Train(variant.text, variant.sets, layout);
      EXPECT_LT(LargestDifference(run, serial), kTolerance)
          << variant.name << ", " << layout.ToString() << ": " << run.status;
    }
  }
}

// A run's checkpoint, written under one layout, goes on under another.
TEST(LatticePipelinesTest, ARunGoesOnUnderAnyOtherLayout) {
  const Variant& variant = Variants()[1];
  const Trained serial = Train(variant.text, variant.sets, {});
  const std::vector<Layout> layouts = {
      {},
      {.dp = 2, .zero = 3},
      {.pp = 4, .schedule = "ZB_H1", .microbatches = 4},
      {.dp = 2, .tp = 2, .zero = 1, .pp = 2, .schedule = "INTERLEAVED", .microbatches = 3}};
  std::vector<std::string> first = variant.sets;
  first.insert(first.end(), {"train.max_steps=2", "train.eval_every_steps=2"});
  for (const Layout& before : layouts) {
    for (const Layout& after : layouts) {
      const support::TempFolder folder;
      const std::string out = folder.path() + "/out";
      Trained whole = TrainIn(out, variant.text, first, before);
      const Trained rest = TrainIn(out, variant.text, variant.sets, after);
      whole.losses.insert(whole.losses.end(), rest.losses.begin(), rest.losses.end());
      whole.norms.insert(whole.norms.end(), rest.norms.begin(), rest.norms.end());
      whole.valid_loss = rest.valid_loss;
      whole.tensors = rest.tensors;
      EXPECT_LT(LargestDifference(whole, serial), kTolerance)
          << before.ToString() << ", then " << after.ToString() << ": " << rest.status;
    }
  }
}

}  // namespace
}  // namespace tandem::lattice
