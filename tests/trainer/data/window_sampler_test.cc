#include "trainer/data/text/window_sampler.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <vector>

namespace tandem::data {
namespace {

using Numbers = std::vector<int64_t>;

// Symbol i of the training part is i, and of the validation part 1000 + i. So a window shows its
// origin.
Text Counting(int train, int valid) {
  Text text;
  for (int i = 0; i < train; ++i) text.train.push_back(i);
  for (int i = 0; i < valid; ++i) text.valid.push_back(1000 + i);
  return text;
}

void Append(const WindowBatch& part, WindowBatch& whole) {
  EXPECT_EQ(part.first_sample, whole.num_samples());
  const int64_t shift = whole.num_tokens();
  const auto append = [](Numbers& to, const Numbers& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (int64_t b = 0; b < part.num_samples(); ++b)
    whole.offsets.push_back(part.offsets[b + 1] + shift);
  append(whole.inputs, part.inputs);
  append(whole.targets, part.targets);
  append(whole.positions, part.positions);
  append(whole.row_index, part.row_index);
}

TEST(WindowSamplerTest, TargetsAreTheNextSymbols) {
  const Text text = Counting(50, 20);
  const WindowSampler sampler(&text, {.seed = 1, .batch_size = 3, .max_length = 4});
  const WindowBatch batch = sampler.TrainBatch(7, 0, 1);
  ASSERT_EQ(batch.num_samples(), 3);
  ASSERT_EQ(batch.num_tokens(), 12);
  EXPECT_EQ(batch.offsets, (Numbers{0, 4, 8, 12}));
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(batch.row_index, (Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  for (int64_t t = 0; t < 12; ++t) {
    EXPECT_EQ(batch.targets[t], batch.inputs[t] + 1);
    EXPECT_EQ(batch.inputs[t], batch.inputs[t - t % 4] + t % 4);
  }
  EXPECT_EQ(batch.global_samples, 3);
  EXPECT_EQ(batch.global_targets, 12);
}

TEST(WindowSamplerTest, ReplicasAndPartsCutTheSameWindows) {
  const Text text = Counting(900, 20);
  for (const int batch_size : {1, 4, 9}) {
    const WindowSampler sampler(&text, {.seed = 5, .batch_size = batch_size, .max_length = 6});
    const WindowBatch whole = sampler.TrainBatch(3, 0, 1);
    for (const int replicas : {1, 2, 3, 4, 7}) {
      for (const int parts : {1, 2, 3}) {
        WindowBatch joined;
        for (int replica = 0; replica < replicas; ++replica) {
          for (int part = 0; part < parts; ++part) {
            const WindowBatch share = sampler.TrainBatch(3, replica, replicas, part, parts);
            EXPECT_EQ(share.global_samples, batch_size);
            EXPECT_EQ(share.global_targets, batch_size * 6);
            Append(share, joined);
          }
        }
        EXPECT_EQ(joined.offsets, whole.offsets);
        EXPECT_EQ(joined.inputs, whole.inputs);
        EXPECT_EQ(joined.targets, whole.targets);
        EXPECT_EQ(joined.positions, whole.positions);
        EXPECT_EQ(joined.row_index, whole.row_index);
      }
    }
  }
}

TEST(WindowSamplerTest, WindowsChangeWithStepAndSeed) {
  const Text text = Counting(900, 20);
  const auto windows = [&](uint64_t seed, int64_t step) {
    return WindowSampler(&text, {.seed = seed, .batch_size = 8, .max_length = 6})
        .TrainBatch(step, 0, 1)
        .inputs;
  };
  EXPECT_EQ(windows(1, 2), windows(1, 2));
  EXPECT_NE(windows(1, 2), windows(1, 3));
  EXPECT_NE(windows(1, 2), windows(2, 2));
}

TEST(WindowSamplerTest, EveryPlaceOfTheTrainingPartIsAsLikely) {
  const Text text = Counting(13, 20);  // windows of 3 and their next symbol may start at 0 .. 9
  const WindowSampler sampler(&text, {.seed = 8, .batch_size = 10, .max_length = 3});
  std::map<int64_t, int> starts;
  for (int64_t step = 1; step <= 2000; ++step) {
    const WindowBatch batch = sampler.TrainBatch(step, 0, 1);
    for (int64_t b = 0; b < 10; ++b) ++starts[batch.inputs[batch.offsets[b]]];
  }
  ASSERT_EQ(starts.size(), 10u);
  EXPECT_EQ(starts.begin()->first, 0);
  EXPECT_EQ(starts.rbegin()->first, 9);
  for (const auto& [start, count] : starts) EXPECT_NEAR(count, 2000, 200) << start;  // sd 42
}

TEST(WindowSamplerTest, ValidationWindowsLieSideBySideAndTheIncompleteLastIsDropped) {
  const Text text = Counting(50, 12);
  const WindowSampler sampler(&text, {.seed = 1, .batch_size = 3, .max_length = 4});
  ASSERT_EQ(sampler.num_eval_windows(), 2);  // a third would need a 13th symbol as its last target
  const WindowBatch batch = sampler.EvalBatch(0, 2);
  EXPECT_EQ(batch.inputs, (Numbers{1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007}));
  EXPECT_EQ(batch.targets, (Numbers{1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008}));
  EXPECT_EQ(batch.global_targets, 8);
  const WindowBatch second = sampler.EvalBatch(1, 2);
  EXPECT_EQ(second.first_sample, 1);
  EXPECT_EQ(second.row_index, (Numbers{4, 5, 6, 7}));
  EXPECT_EQ(sampler.EvalBatch(1, 1).num_tokens(), 0);
}

TEST(WindowSamplerTest, AnEpochDrawsAsManySymbolsAsTheTrainingPartHas) {
  const Text text = Counting(50, 20);
  EXPECT_EQ(WindowSampler(&text, {.batch_size = 5, .max_length = 5}).steps_per_epoch(), 2);
  EXPECT_EQ(WindowSampler(&text, {.batch_size = 3, .max_length = 5}).steps_per_epoch(), 4);
  EXPECT_EQ(WindowSampler(&text, {.batch_size = 300, .max_length = 5}).steps_per_epoch(), 1);
}

}  // namespace
}  // namespace tandem::data
