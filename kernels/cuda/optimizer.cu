#include <cmath>

#include "kernels/cuda/device/total.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/optimizer_plan.h"

// Every sum with a product is an explicit fmaf, so that the compiler has no choice. An element's
// new value depends neither on its place in a run nor on how it is read.
namespace tandem::kernels::cuda {

namespace {

constexpr int kThreads = 256, kWidth = kPackOf<float>;
constexpr int64_t kChunk = 4 * kThreads * kWidth;  // elements per block

// A rule computes the new weight from (weight, gradient, slots), with kSlots slots per element.
// `keep` is 1 minus the weight decay of the step.
struct SgdRule {
  static constexpr int kSlots = 0;
  float rate, scale, keep;

  __device__ float operator()(float weight, float gradient, float keep_weight, float (&)[2]) const {
    return fmaf(-rate, gradient * scale, weight * keep_weight);
  }
};

struct AdagradRule {
  static constexpr int kSlots = 1;
  float rate, scale, epsilon, keep = 1;

  __device__ float operator()(float weight, float gradient, float, float (&slots)[2]) const {
    const float g = gradient * scale;
    slots[0] = fmaf(g, g, slots[0]);
    return weight - rate * g / (sqrtf(slots[0]) + epsilon);
  }
};

struct AdamRule {
  static constexpr int kSlots = 2;
  float rate, scale, keep, beta1, beta2, rest1, rest2, correction, epsilon;

  __device__ float operator()(float weight, float gradient, float keep_weight,
                              float (&slots)[2]) const {
    const float g = gradient * scale;
    slots[0] = fmaf(beta1, slots[0], rest1 * g);
    slots[1] = fmaf(beta2, slots[1], rest2 * (g * g));
    return fmaf(weight, keep_weight, -(rate * slots[0] / (sqrtf(slots[1] * correction) + epsilon)));
  }
};

// Updates the elements from i on: kWidth of them, or `left` if fewer.
template <bool kPacks, class Rule>
__device__ inline void UpdateElements(const OptimizerRun& run, const Rule& rule, float keep,
                                      int64_t i, int64_t left) {
  float weight[kWidth], gradient[kWidth], slots[2][kWidth] = {};
  ReadElements<kPacks>(run.weight + i, left, weight);
  ReadElements<kPacks>(run.gradient + i, left, gradient);
  TANDEM_UNROLL
  for (int s = 0; s < Rule::kSlots; ++s) ReadElements<kPacks>(run.slots[s] + i, left, slots[s]);
  TANDEM_UNROLL
  for (int e = 0; e < kWidth; ++e) {
    float of_element[2] = {slots[0][e], slots[1][e]};
    weight[e] = rule(weight[e], gradient[e], keep, of_element);
    slots[0][e] = of_element[0], slots[1][e] = of_element[1];
  }
  WriteElements<kPacks>(run.weight + i, left, weight);
  TANDEM_UNROLL
  for (int s = 0; s < Rule::kSlots; ++s) WriteElements<kPacks>(run.slots[s] + i, left, slots[s]);
  if (run.shadow != nullptr) WriteElements<kPacks>(run.shadow + i, left, weight);
}

template <class Rule>
__global__ void UpdateKernel(RunBatch batch, Rule rule) {
  const int r = RunOfBlock(batch.first_block, batch.num_runs, blockIdx.x);
  const OptimizerRun run = batch.runs[r];
  const bool packs = (batch.packs >> r & 1) != 0;
  const float keep = run.decay ? rule.keep : 1.0f;
  const int64_t begin = int64_t{blockIdx.x - batch.first_block[r]} * kChunk;
  const int64_t end = begin + kChunk < run.count ? begin + kChunk : run.count;
  for (int64_t i = begin + static_cast<int>(threadIdx.x) * kWidth; i < end;
       i += kThreads * kWidth) {
    if (packs && end - i >= kWidth)
      UpdateElements<true>(run, rule, keep, i, kWidth);
    else
      UpdateElements<false>(run, rule, keep, i, end - i);
  }
}

// partials[first_partial + b] = the sum of the squares of block b's gradients.
__global__ void SquaredNormKernel(RunBatch batch, int64_t first_partial, double* partials) {
  __shared__ double room[kReduceThreads / kWarp];
  const int r = RunOfBlock(batch.first_block, batch.num_runs, blockIdx.x);
  const OptimizerRun run = batch.runs[r];
  const int64_t begin = int64_t{blockIdx.x - batch.first_block[r]} * kSumBlock,
                left = run.count - begin;
  const bool packs = (batch.packs >> r & 1) != 0;
  const double total =
      BlockTotal<true>(run.gradient + begin, left < kSumBlock ? left : kSumBlock, packs, room);
  if (threadIdx.x == 0) partials[first_partial + blockIdx.x] = total;
}

// The gradient as an array, for error messages.
ArrayView GradientOf(const OptimizerRun& run) { return DenseView(run.gradient, {run.count}); }

template <class Rule>
bool TakesRunPacks(const OptimizerRun& run) {
  for (int s = 0; s < Rule::kSlots; ++s) {
    if (!TakesPacks<float>(run.slots[s], 0)) return false;
  }
  return TakesPacks<float>(run.weight, 0) && TakesPacks<float>(run.gradient, 0) &&
         TakesPacks<BFloat16>(run.shadow, 0);
}

template <class Rule>
void Update(const char* name, const std::vector<OptimizerRun>& runs, const Rule& rule,
            Stream& stream) {
  static_assert(sizeof(RunBatch) + sizeof(Rule) <= 4096);
  ForEachBatch(runs, kChunk, TakesRunPacks<Rule>, [&](const RunBatch& batch, uint32_t num_blocks) {
    const ArrayView first = GradientOf(batch.runs[0]);
    Launch(stream, {name, first}, Grid{num_blocks, kThreads}, UpdateKernel<Rule>, batch, rule);
  });
}

}  // namespace

void SgdUpdate(const std::vector<OptimizerRun>& runs, const SgdArgs& args, Stream& stream) {
  SgdRule rule = {};
  rule.rate = static_cast<float>(args.learning_rate),
  rule.scale = static_cast<float>(args.gradient_scale);
  rule.keep = static_cast<float>(1.0 - args.learning_rate * args.weight_decay);
  Update("sgd_update", runs, rule, stream);
}

void AdagradUpdate(const std::vector<OptimizerRun>& runs, const AdagradArgs& args, Stream& stream) {
  AdagradRule rule = {};
  rule.rate = static_cast<float>(args.learning_rate),
  rule.scale = static_cast<float>(args.gradient_scale);
  rule.epsilon = static_cast<float>(args.epsilon);
  Update("adagrad_update", runs, rule, stream);
}

void AdamUpdate(const std::vector<OptimizerRun>& runs, const AdamArgs& args, Stream& stream) {
  TANDEM_CHECK_GE(args.step, uint64_t{1});
  const double t = static_cast<double>(args.step);
  AdamRule rule = {};
  rule.rate = static_cast<float>(args.learning_rate / (1.0 - std::pow(args.beta1, t)));
  rule.correction = static_cast<float>(1.0 / (1.0 - std::pow(args.beta2, t)));
  rule.keep = static_cast<float>(1.0 - args.learning_rate * args.weight_decay);
  rule.beta1 = static_cast<float>(args.beta1), rule.rest1 = static_cast<float>(1.0 - args.beta1);
  rule.beta2 = static_cast<float>(args.beta2), rule.rest2 = static_cast<float>(1.0 - args.beta2);
  rule.epsilon = static_cast<float>(args.epsilon),
  rule.scale = static_cast<float>(args.gradient_scale);
  Update("adam_update", runs, rule, stream);
}

double GradientSquaredNorm(const std::vector<OptimizerRun>& runs, Stream& stream) {
  int64_t num_partials = 0;
  for (const OptimizerRun& run : runs) num_partials += CeilDiv(run.count, kSumBlock);
  if (num_partials == 0) return 0;
  const auto memory = DeviceScratch(stream, static_cast<size_t>(num_partials) * sizeof(double));
  double* partials = static_cast<double*>(memory->data());
  const auto takes_packs = [](const OptimizerRun& run) {
    return TakesPacks<float>(run.gradient, 0);
  };
  int64_t done = 0;
  ForEachBatch(runs, kSumBlock, takes_packs, [&](const RunBatch& batch, uint32_t num_blocks) {
    const ArrayView first = GradientOf(batch.runs[0]);
    Launch(stream, {"gradient_squared_norm", first}, Grid{num_blocks, kReduceThreads},
           SquaredNormKernel, batch, done, partials);
    done += num_blocks;
  });
  const ArrayView first = GradientOf(runs[0]);
  return SumOfPartials(partials, num_partials, {"gradient_squared_norm", first}, stream);
}

}  // namespace tandem::kernels::cuda
