#include "kernels/optimizer.h"

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/optimizer_plan.h"
#include "kernels/reduce.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

bool EvenCounts(const OptimizerRun& run) { return run.count % 2 == 0; }

TEST(OptimizerPlanTest, EveryChunkOfEveryRunHasOneBlock) {
  std::vector<OptimizerRun> runs(200);
  for (size_t r = 0; r < runs.size(); ++r)
    runs[r].count = r % 7 == 3 ? 0 : static_cast<int64_t>(RandomBelow({1, 1}, 0, r, 100));
  size_t next = 0;
  cuda::ForEachBatch(runs, 16, EvenCounts, [&](const cuda::RunBatch& batch, uint32_t num_blocks) {
    ASSERT_LE(batch.num_runs, cuda::RunBatch::kMaxRuns);
    uint32_t block = 0;
    for (int r = 0; r < batch.num_runs; ++r) {
      while (runs[next].count == 0) ++next;
      ASSERT_EQ(batch.runs[r].count, runs[next].count);
      ASSERT_EQ((batch.packs >> r & 1) != 0, EvenCounts(runs[next]));
      for (int64_t begin = 0; begin < runs[next].count; begin += 16, ++block) {
        ASSERT_EQ(cuda::RunOfBlock(batch.first_block, batch.num_runs, block), r);
        ASSERT_EQ(16 * (block - batch.first_block[r]), begin);
      }
      ++next;
    }
    ASSERT_EQ(num_blocks, block);
  });
  while (next < runs.size() && runs[next].count == 0) ++next;
  EXPECT_EQ(next, runs.size());
}

TEST(OptimizerPlanTest, ABatchEndsBeforeItsGridIsTooLarge) {
  std::vector<OptimizerRun> runs(5);
  for (OptimizerRun& run : runs) run.count = int64_t{3} << 38;  // 3 * 2^28 blocks of 1024
  int batches = 0, num_runs = 0;
  cuda::ForEachBatch(runs, 1024, EvenCounts, [&](const cuda::RunBatch& batch, uint32_t num_blocks) {
    EXPECT_LE(num_blocks, 0x7fffffffu);
    ++batches, num_runs += batch.num_runs;
  });
  EXPECT_EQ(batches, 3);
  EXPECT_EQ(num_runs, 5);
}

// One parameter, on the device and in f64.
struct Parameter {
  Array<double> weight, slots[2], gradient;
  std::unique_ptr<OnDevice<float>> device_weight, device_slots[2], device_gradient;
  std::unique_ptr<OnDevice<BFloat16>> shadow;
  OptimizerRun run;
};

class OptimizerDeviceTest : public DeviceTest {
 protected:
  // Begins the run `shift` elements into its arrays. With a shift, packs must not read them.
  Parameter Make(int64_t count, uint64_t seed, bool shadow, bool decay, int64_t shift = 0) {
    Parameter p;
    p.weight = RandomFor<float>({count}, seed),
    p.gradient = RandomFor<float>({count}, seed + 1000, 3);
    p.slots[0] = RandomFor<float>({count}, seed + 2000),
    p.slots[1] = RandomFor<float>({count}, seed + 3000);
    for (int64_t i = 0; i < count; ++i) p.slots[1][i] = std::fabs(p.slots[1][i]);
    const auto place = [&](const Array<double>& from) {
      Array<float> image({count + shift}, 77.0f);
      for (int64_t i = 0; i < count; ++i) image[i + shift] = static_cast<float>(from[i]);
      return std::make_unique<OnDevice<float>>(image, device());
    };
    p.device_weight = place(p.weight), p.device_gradient = place(p.gradient);
    for (int s = 0; s < 2; ++s) p.device_slots[s] = place(p.slots[s]);
    p.shadow = std::make_unique<OnDevice<BFloat16>>(Poisoned<BFloat16>({count + shift}), device());
    p.run.weight = p.device_weight->data() + shift,
    p.run.gradient = p.device_gradient->data() + shift;
    for (int s = 0; s < 2; ++s) p.run.slots[s] = p.device_slots[s]->data() + shift;
    p.run.shadow = shadow ? p.shadow->data() + shift : nullptr;
    p.run.count = count, p.run.decay = decay;
    return p;
  }

  std::vector<Parameter> MakeAll() {
    std::vector<Parameter> all;
    for (int64_t count : {0, 1, 3, 17, 64, 65, 4096, 5001}) {
      const uint64_t seed = all.size();
      all.push_back(Make(count, 10 * seed, true, true));
      all.push_back(Make(count, 10 * seed + 1, false, false));
      all.push_back(Make(count, 10 * seed + 2, true, false, 1));
    }
    for (uint64_t i = 0; i < 80; ++i)
      all.push_back(Make(20, 500 + i, i % 2 == 0, i % 3 == 0));  // more than one batch
    return all;
  }
  static std::vector<OptimizerRun> RunsOf(const std::vector<Parameter>& all) {
    std::vector<OptimizerRun> runs;
    for (const Parameter& p : all) runs.push_back(p.run);
    return runs;
  }
  static Array<double> Tail(const Array<float>& image, int64_t count) {
    Array<double> tail({count});
    for (int64_t i = 0; i < count; ++i) tail[i] = image[image.size() - count + i];
    return tail;
  }

  // `reference` updates a parameter's f64 arrays.
  template <class Reference>
  void ExpectAsReference(std::vector<Parameter>& all, const Reference& reference) {
    for (Parameter& p : all) {
      reference(p);
      const Array<float> weight = p.device_weight->Get();
      EXPECT_LT(RelativeError(Tail(weight, p.run.count), p.weight), 1e-6) << p.run.count;
      for (int s = 0; s < 2; ++s) {
        EXPECT_LT(RelativeError(Tail(p.device_slots[s]->Get(), p.run.count), p.slots[s]), 1e-6)
            << p.run.count << " slot " << s;
      }
      const Array<BFloat16> shadow = p.shadow->Get();
      for (int64_t i = 0; i < shadow.size(); ++i) {
        const bool written = p.run.shadow != nullptr && i >= shadow.size() - p.run.count;
        ASSERT_EQ(shadow[i].bits, written ? ToBFloat16(weight[i]).bits : 0xffff)
            << i << " of " << p.run.count;
      }
      if (weight.size() > p.run.count) {
        EXPECT_EQ(weight[0], 77.0f) << "written before the run";
      }
    }
  }
};

TEST_F(OptimizerDeviceTest, SgdMatchesTheReference) {
  std::vector<Parameter> all = MakeAll();
  const SgdArgs args{0.1, 0.2, 0.5};
  cuda::SgdUpdate(RunsOf(all), args, device());
  ExpectAsReference(all, [&](Parameter& p) {
    SgdArgs own = args;
    if (!p.run.decay) own.weight_decay = 0;
    SgdUpdate(p.weight.values.data(), p.gradient.values.data(), p.run.count, own);
  });
}

TEST_F(OptimizerDeviceTest, AdagradMatchesTheReference) {
  std::vector<Parameter> all = MakeAll();
  for (Parameter& p : all) p.run.slots[0] = p.run.slots[1];  // an accumulator is not negative
  const AdagradArgs args{0.1, 1e-4, 0.5};
  cuda::AdagradUpdate(RunsOf(all), args, device());
  ExpectAsReference(all, [&](Parameter& p) {
    AdagradUpdate(p.weight.values.data(), p.slots[1].values.data(), p.gradient.values.data(),
                  p.run.count, args);
  });
}

TEST_F(OptimizerDeviceTest, AdamMatchesTheReferenceOverSteps) {
  std::vector<Parameter> all = MakeAll();
  AdamArgs args{0.01, 0.9, 0.999, 1e-8, 0.1, 2};
  for (args.step = 1; args.step <= 3; ++args.step) cuda::AdamUpdate(RunsOf(all), args, device());
  ExpectAsReference(all, [&](Parameter& p) {
    AdamArgs own = args;
    if (!p.run.decay) own.weight_decay = 0;
    for (own.step = 1; own.step <= 3; ++own.step) {
      AdamUpdate(p.weight.values.data(), p.slots[0].values.data(), p.slots[1].values.data(),
                 p.gradient.values.data(), p.run.count, own);
    }
  });
}

TEST_F(OptimizerDeviceTest, BitsDependNeitherOnPlaceNorOnAlignment) {
  const int64_t n = 5000;
  const Parameter whole = Make(n, 1, true, true), cut = Make(n, 1, true, true),
                  shifted = Make(n, 1, true, true, 1);
  AdamArgs args{0.01, 0.9, 0.999, 1e-8, 0.1, 2};
  cuda::AdamUpdate({whole.run}, args, device());
  cuda::AdamUpdate({shifted.run}, args, device());
  std::vector<OptimizerRun> pieces;
  for (int64_t begin = 0, length = 1; begin < n; begin += length, length = length * 3 % 101 + 1) {
    OptimizerRun piece = cut.run;
    piece.weight += begin, piece.slots[0] += begin, piece.slots[1] += begin,
        piece.gradient += begin, piece.shadow += begin;
    piece.count = std::min(length, n - begin);
    pieces.push_back(piece);
  }
  cuda::AdamUpdate(pieces, args, device());
  ExpectSameBits(whole.device_weight->Get(), cut.device_weight->Get());
  for (int s = 0; s < 2; ++s)
    ExpectSameBits(whole.device_slots[s]->Get(), cut.device_slots[s]->Get());
  ExpectSameBits(Tail(whole.device_weight->Get(), n), Tail(shifted.device_weight->Get(), n));
}

TEST_F(OptimizerDeviceTest, NoRunsAreAllowed) {
  cuda::SgdUpdate({}, {}, device());
  cuda::AdamUpdate({OptimizerRun{}}, {}, device());
  EXPECT_EQ(cuda::GradientSquaredNorm({}, device()), 0);
  EXPECT_EQ(cuda::GradientSquaredNorm({OptimizerRun{}}, device()), 0);
}

TEST_F(OptimizerDeviceTest, GradientSquaredNormSumsAllRunsInDoublePrecision) {
  std::vector<Parameter> all = MakeAll();
  all.push_back(Make(kSumBlock + 5, 900, false, false));
  all.push_back(Make(3 * kSumBlock, 901, false, false, 1));
  double wanted = 0;
  for (Parameter& p : all) wanted += SquaredNorm(p.gradient.values.data(), p.run.count);
  const double found = cuda::GradientSquaredNorm(RunsOf(all), device());
  EXPECT_NEAR(found, wanted, 1e-12 * wanted);
  EXPECT_EQ(cuda::GradientSquaredNorm(RunsOf(all), device()), found);
}

}  // namespace
}  // namespace tandem::kernels
