// The parts that attention's bf16 and f32 kernels share: arguments, the search for a block's rows,
// the dropout mask.
#pragma once

#include "kernels/attention.h"
#include "kernels/base/random.h"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/plan/attention_plan.h"

namespace tandem::kernels::cuda {

// A [T, heads, D] array: tokens lie `stride` elements apart, heads D elements apart.
template <class S>
struct TokenRows {
  S* data;
  int64_t stride;

  __device__ S* At(int64_t token, int head, int depth) const {
    return data + token * stride + static_cast<int64_t>(head) * depth;
  }
};

struct DropoutMask {
  uint64_t folded_key;
  const uint64_t* step;  // null without dropout
  int64_t max_length;
  uint32_t limit;  // drops words below it (an element's bits lie in the upper half); 0: no dropout
  float keep_scale;
};

// Per [H, T], for a backward pass: the log-sum-exp, and the dot product of output and output
// gradient.
struct alignas(8) RowStatistics {
  float log_sum, delta;
};

// The bounds of the sequences, and the parameters of a score.
struct AttentionShape {
  const int64_t *offsets, *row_index;
  int64_t num_tokens, num_sequences;
  int num_heads, sharing, depth;  // `sharing` heads of queries share a head of keys and values
  int first_head, all_heads;      // numbers for dropout
  bool causal;
  float scale, score_scale;  // score_scale: scale in units of log 2
  DropoutMask mask;
};

template <class S>
struct ForwardProblem {
  AttentionShape shape;
  TokenRows<const S> q, k, v;
  TokenRows<S> output;
  float* log_sum_exp;
};

template <class S>
struct BackwardProblem {
  AttentionShape shape;
  TokenRows<const S> q, k, v, grad_output;
  TokenRows<S> grad_q, grad_k, grad_v;
  const RowStatistics* statistics;
};

// Launchers. TensorCore: bf16 in tensor cores, for arrays that take 16-byte packs. Float: f32
// arithmetic on any storage type.
void TensorCoreForward(const ForwardProblem<BFloat16>& problem, const AttentionForwardArgs& args,
                       bool tall, Stream& stream);
void TensorCoreBackward(const BackwardProblem<BFloat16>& problem, const AttentionBackwardArgs& args,
                        bool tall, Stream& stream);
template <class S>
void FloatForward(const ForwardProblem<S>& problem, const AttentionForwardArgs& args, bool packs,
                  Stream& stream);
template <class S>
void FloatBackward(const BackwardProblem<S>& problem, const AttentionBackwardArgs& args, bool packs,
                   Stream& stream);

// The grids of kernels whose blocks own `rows` tokens of one head, of queries or of keys.
// blockIdx.z is the head of keys. Query blocks that read the same keys are neighbours. A key block
// walks over all heads of queries that share its head.
inline dim3 QueryBlocks(const AttentionShape& shape, int rows) {
  const int64_t slots = NumSlots(shape.num_tokens, shape.num_sequences, rows);
  return dim3(static_cast<unsigned>(slots), static_cast<unsigned>(shape.sharing),
              static_cast<unsigned>(shape.num_heads / shape.sharing));
}
inline dim3 KeyBlocks(const AttentionShape& shape, int rows) {
  dim3 blocks = QueryBlocks(shape, rows);
  blocks.y = 1;
  return blocks;
}
__device__ inline int KeyHead() { return static_cast<int>(blockIdx.z); }
// The head of a query block; the first head of a key block.
__device__ inline int QueryHead(const AttentionShape& shape) {
  return static_cast<int>(blockIdx.z) * shape.sharing + static_cast<int>(blockIdx.y);
}

// The rows of one block: tokens [first, first + kRows) of the sequence of `length` tokens that
// begins at token `begin`.
struct SequenceRows {
  int64_t begin;
  int length, first;

  __device__ bool empty() const { return first >= length; }
};

// Finds the rows of slot blockIdx.x. `last_first` reverses the blocks of a sequence, because in a
// causal pass the last rows have the most work.
template <int kRows>
__device__ inline SequenceRows FindRows(const AttentionShape& shape, bool last_first) {
  const int64_t slot = blockIdx.x;
  SlotSearch search{0, shape.num_sequences};
  while (!search.Done()) {
    const int64_t b = search.Probe(static_cast<int>(threadIdx.x % kWarp));
    const bool come = b < search.high && FirstSlot(__ldg(shape.offsets + b), b, kRows) <= slot;
    search.Narrow(__popc(__ballot_sync(kAllLanes, come)));
  }
  const int64_t begin = __ldg(shape.offsets + search.low),
                end = __ldg(shape.offsets + search.low + 1);
  DeviceCheck(0 <= begin && begin <= end && end <= shape.num_tokens &&
              end - begin < (int64_t{1} << 30));
  if (slot == 0)
    DeviceCheck(shape.offsets[0] == 0 && shape.offsets[shape.num_sequences] == shape.num_tokens);
  // The search never visits a sequence that ends before it begins, so check here. There are at
  // least as many slots as sequences.
  if (slot < shape.num_sequences)
    DeviceCheck(__ldg(shape.offsets + slot) <= __ldg(shape.offsets + slot + 1));
  const int64_t block = slot - FirstSlot(begin, search.low, kRows),
                count = CeilDiv(end - begin, kRows);
  if (block < 0 || block >= count) return {begin, 0, 0};
  return {begin, static_cast<int>(end - begin),
          static_cast<int>(last_first ? count - 1 - block : block) * kRows};
}

// A run of keys. If their places are consecutive, so are their elements of the dropout stream,
// eight to a Philox block.
struct KeyRun {
  const int64_t* row_index;
  int count;
  int64_t place;  // the first key's place
  bool contiguous;
};

// REQUIRES: the whole warp calls with the same arguments.
__device__ inline KeyRun FindKeyRun(const AttentionShape& shape, int64_t token, int count) {
  KeyRun run{shape.row_index + token, count, 0, true};
  if (count <= 0) return run;
  const int64_t first = __ldg(run.row_index);
  bool follows = true;
  for (int j = static_cast<int>(threadIdx.x % kWarp); j < count; j += kWarp)
    follows &= __ldg(run.row_index + j) == first + j;
  run.place = first % shape.mask.max_length;
  run.contiguous =
      __ballot_sync(kAllLanes, follows) == kAllLanes && run.place + count <= shape.mask.max_length;
  return run;
}

// A bit for each element of a Philox block: 1 if dropout keeps the element.
__device__ inline uint32_t KeptOfBlock(const DropoutMask& mask, uint64_t step, uint64_t block) {
  const Philox4 words = PhiloxBlock(mask.folded_key, step, block);
  uint32_t kept = 0;
  for (int w = 0; w < 4; ++w) {
    kept |= static_cast<uint32_t>(words[w] << 16 >= mask.limit) << (2 * w);
    kept |= static_cast<uint32_t>(words[w] >= mask.limit) << (2 * w + 1);
  }
  return kept;
}

// Bit i is set if query `token` keeps key `first` + i of the run. Bits past the run's end are
// undefined.
template <int kCount>
__device__ inline uint32_t KeptBits(const AttentionShape& shape, int64_t token, int head,
                                    const KeyRun& run, int first) {
  static_assert(kCount % 8 == 0 && kCount <= 32);
  const uint64_t row = static_cast<uint64_t>(__ldg(shape.row_index + token)) *
                       static_cast<uint64_t>(shape.all_heads);
  const uint64_t base = (row + static_cast<uint64_t>(shape.first_head + head)) *
                        static_cast<uint64_t>(shape.mask.max_length);
  const uint64_t step = __ldg(shape.mask.step);
  uint64_t bits = 0;
  if (run.contiguous) {
    const uint64_t element = base + static_cast<uint64_t>(run.place + first);
    const int phase = static_cast<int>(element % 8);
#pragma unroll 2
    for (int b = 0; b < kCount / 8; ++b)
      bits |= uint64_t{KeptOfBlock(shape.mask, step, element / 8 + b)} << (8 * b);
    if (phase != 0)
      bits |= uint64_t{KeptOfBlock(shape.mask, step, element / 8 + kCount / 8)} << kCount;
    bits >>= phase;
  } else {
#pragma unroll 1
    for (int i = 0; i < kCount && first + i < run.count; ++i) {
      const uint64_t element =
          base + static_cast<uint64_t>(__ldg(run.row_index + first + i) % shape.mask.max_length);
      bits |= uint64_t{KeptOfBlock(shape.mask, step, element / 8) >> (element % 8) & 1} << i;
    }
  }
  return static_cast<uint32_t>(bits & ((uint64_t{1} << kCount) - 1));
}

}  // namespace tandem::kernels::cuda
