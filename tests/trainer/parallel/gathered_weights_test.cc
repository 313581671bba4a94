#include "trainer/parallel/zero/gathered_weights.h"

#include <functional>
#include <gtest/gtest.h>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/parallel/zero/zero.h"

namespace tandem::parallel {
namespace {

using ::tandem::testing::StepFixture;

constexpr int kBlocks = 5, kReplicas = 2;

// Blocks of a matrix of 40 elements and a vector of 7.
struct Blocks {
  ParameterSet set;

  explicit Blocks(bool has_values) : set(3, DType::F32, nullptr, has_values) {
    for (int b = 0; b < kBlocks; ++b) {
      if (b > 0) set.NextBlock();
      set.Normal(absl::StrCat("matrix", b), Shape{8, 5}, 1);
      set.Uniform(absl::StrCat("vector", b), Shape{7}, 1);
    }
  }
  // Reads the values of a block, and returns their number that differ from those of `wanted`.
  int Differences(const Blocks& wanted, int block) const {
    int different = 0;
    for (size_t p = 0; p < set.all().size(); ++p) {
      if (set.all()[p]->block != block) continue;
      const Tensor &found = set.all()[p]->variable.value(),
                   &expected = wanted.set.all()[p]->variable.value();
      for (int64_t i = 0; i < expected.num_elements(); ++i)
        different += found.At(i) != expected.At(i) ? 1 : 0;
    }
    return different;
  }
  int num_whole() const {
    int whole = 0;
    for (const auto& parameter : set.all())
      whole += parameter->variable.leaf().held_value().defined() ? 1 : 0;
    return whole / 2;  // two parameters a block
  }
};

void OnReplicas(const std::function<void(comm::ProcessGroup&)>& body) {
  const auto groups = comm::ThreadGroup::Create(kReplicas, "replicas");
  std::vector<std::thread> threads;
  for (const auto& group : groups) threads.emplace_back([&] { body(*group); });
  for (std::thread& thread : threads) thread.join();
}

FlatLayout LayoutOf(const Blocks& blocks) {
  return ZeroLayout(blocks.set.pointers(), kReplicas, /*stage=*/3);
}

TEST(GatheredWeightsTest, TwoBlocksAtMostAreWholeAndTheNextOneTravelsAhead) {
  const Blocks serial(/*has_values=*/true);
  // A block has 40 and 7 elements, each from a multiple of 64 bytes, in units of 128 bytes.
  constexpr uint64_t kBlockBytes = 256;
  for (const bool has_values : {false, true}) {
    OnReplicas([&](comm::ProcessGroup& group) {
      StepFixture fixture;
      Blocks blocks(has_values);
      GatheredWeights gathered(&blocks.set, LayoutOf(blocks),
                               {.group = &group, .stream = &fixture.stream()});
      EXPECT_EQ(blocks.num_whole(), 0);
      for (int pass = 0; pass < 3; ++pass) {
        const uint64_t before = group.bytes_moved();
        gathered.BeginPass();
        EXPECT_EQ(group.bytes_moved() - before, pass == 0 ? 0 : kBlockBytes);
        for (int i = 0; i < 2 * kBlocks; ++i) {
          const int block = i < kBlocks ? i : 2 * kBlocks - 1 - i;
          EXPECT_EQ(blocks.Differences(serial, block), 0) << "block " << block;
          EXPECT_LE(blocks.num_whole(), 2);
          if (pass > 0 && i == 0) {
            EXPECT_EQ(group.bytes_moved() - before, 2 * kBlockBytes);
          }
        }
        // The last block on the way out is the first one on the way back.
        EXPECT_EQ(group.bytes_moved() - before, (kBlocks + kBlocks - 1) * kBlockBytes);
        gathered.Free();
        EXPECT_EQ(blocks.num_whole(), 0);
      }
      EXPECT_TRUE(gathered.status().ok()) << gathered.status();
    });
  }
}

TEST(GatheredWeightsTest, BlocksMayBeReadInAnyOrder) {
  const Blocks serial(/*has_values=*/true);
  OnReplicas([&](comm::ProcessGroup& group) {
    StepFixture fixture;
    Blocks blocks(/*has_values=*/false);
    GatheredWeights gathered(&blocks.set, LayoutOf(blocks),
                             {.group = &group, .stream = &fixture.stream()});
    uint32_t random = 1;
    for (int i = 0; i < 300; ++i) {
      random = random * 1664525 + 1013904223;
      if (random >> 29 == 0) gathered.Free();
      if (random >> 29 == 1) gathered.BeginPass();
      EXPECT_EQ(blocks.Differences(serial, static_cast<int>((random >> 16) % kBlocks)), 0);
      EXPECT_LE(blocks.num_whole(), 2);
    }
    EXPECT_TRUE(gathered.status().ok()) << gathered.status();
  });
}

TEST(GatheredWeightsTest, AReadWithoutPeersIsReportedAndStillGivesAnArray) {
  OnReplicas([&](comm::ProcessGroup& group) {
    StepFixture fixture;
    Blocks blocks(/*has_values=*/false);
    GatheredWeights gathered(&blocks.set, LayoutOf(blocks),
                             {.group = &group, .stream = &fixture.stream()});
    if (group.rank() == 1) return group.Abort(absl::UnavailableError("replica 1 is gone"));
    for (const auto& parameter : blocks.set.all())
      EXPECT_EQ(parameter->variable.value().shape(), parameter->shape());
    EXPECT_EQ(gathered.status().code(), absl::StatusCode::kUnavailable);
  });
}

}  // namespace
}  // namespace tandem::parallel
