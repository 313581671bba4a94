#include "trainer/comm/combine.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/base/bfloat16.h"
#include "kernels/base/check.h"
#include "trainer/comm/ring_order.h"

// The loader resolves cloned functions before the sanitizers' runtimes are up.
#if defined(__x86_64__) && !defined(TANDEM_SANITIZED)
#define TANDEM_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TANDEM_CLONES
#endif

namespace tandem::comm {

namespace {

constexpr int64_t kTileElements = 2048;  // partial results stay in the first-level cache

// Plain functions, because a template cannot be cloned per instruction set.
#define TANDEM_COMBINE_LOOP(Name, T, expression)                                 \
  TANDEM_CLONES void Name(T* out, const T* in_a, const T* in_b, int64_t count) { \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < count; ++i) {                   \
      const T a = in_a[i], b = in_b[i];                                          \
      out[i] = static_cast<T>(expression);                                       \
    }                                                                            \
  }
// MAX and MIN take `a` if it is the greater (lesser) one or a NaN. A NaN in `b` makes the
// comparison false, so `b` is taken.
#define TANDEM_COMBINE_LOOPS(Suffix, T)                                          \
  TANDEM_COMBINE_LOOP(Sum##Suffix, T, a + b)                                     \
  TANDEM_COMBINE_LOOP(Max##Suffix, T, (a > b) | (a != a) ? a : b)                \
  TANDEM_COMBINE_LOOP(Min##Suffix, T, (a < b) | (a != a) ? a : b)                \
  void CombineSpan(ReduceOp op, T* out, const T* a, const T* b, int64_t count) { \
    switch (op) {                                                                \
      case ReduceOp::SUM:                                                        \
        return Sum##Suffix(out, a, b, count);                                    \
      case ReduceOp::MAX:                                                        \
        return Max##Suffix(out, a, b, count);                                    \
      case ReduceOp::MIN:                                                        \
        return Min##Suffix(out, a, b, count);                                    \
    }                                                                            \
  }

TANDEM_COMBINE_LOOPS(F32, float)
TANDEM_COMBINE_LOOPS(F64, double)
TANDEM_COMBINE_LOOPS(I64, int64_t)
TANDEM_COMBINE_LOOPS(U64, uint64_t)
TANDEM_COMBINE_LOOPS(U8, uint8_t)

template <class T>
void CombineAs(ReduceOp op, void* out, const void* a, const void* b, int64_t count) {
  CombineSpan(op, static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b), count);
}

using Source = absl::FunctionRef<const char*(int rank)>;

void ReduceRing(const RankReduction& how, Source source, char* out, int64_t count) {
  Combine(how.dtype, how.op, out, source(RingRank(how.chunk, 0, how.size)),
          source(RingRank(how.chunk, 1, how.size)), count);
  for (int i = 2; i < how.size; ++i) {
    Combine(how.dtype, how.op, out, out, source(RingRank(how.chunk, i, how.size)), count);
  }
}

// Stores the sum over ranks [begin, end) to `out`. REQUIRES: at least two ranks.
void ReduceTree(const RankReduction& how, Source source, int begin, int end, char* out,
                int64_t count) {
  const int middle = TreeSplit(begin, end);
  const char* left = source(begin);
  if (middle - begin > 1) {
    ReduceTree(how, source, begin, middle, out, count);
    left = out;
  }
  if (end - middle == 1) {
    Combine(how.dtype, how.op, out, left, source(middle), count);
    return;
  }
  alignas(64) char right[kTileElements * 8];
  ReduceTree(how, source, middle, end, right, count);
  Combine(how.dtype, how.op, out, left, right, count);
}

// Reduces a tile of at most kTileElements elements to `tile`.
void ReduceTile(const RankReduction& how, Source source, char* tile, int64_t count) {
  if (how.size == 1) {
    std::memcpy(tile, source(0), static_cast<size_t>(count) * SizeOf(how.dtype));
  } else if (how.order == SumOrder::TREE) {
    ReduceTree(how, source, 0, how.size, tile, count);
  } else {
    ReduceRing(how, source, tile, count);
  }
}

// Like ReduceTile, for bf16.
void ReduceTileInF32(const RankReduction& how, Source source, char* tile, int64_t count) {
  std::vector<float> wide(static_cast<size_t>(how.size * count)),
      result(static_cast<size_t>(count));
  for (int r = 0; r < how.size; ++r) {
    const auto* from = reinterpret_cast<const BFloat16*>(source(r));
    float* const to = wide.data() + r * count;
    for (int64_t i = 0; i < count; ++i) to[i] = ToFloat(from[i]);
  }
  RankReduction in_f32 = how;
  in_f32.dtype = DType::F32;
  const auto of_rank = [&](int r) {
    return reinterpret_cast<const char*>(wide.data() + r * count);
  };
  ReduceTile(in_f32, of_rank, reinterpret_cast<char*>(result.data()), count);
  auto* const to = reinterpret_cast<BFloat16*>(tile);
  for (int64_t i = 0; i < count; ++i) to[i] = ToBFloat16(result[static_cast<size_t>(i)]);
}

}  // namespace

void Combine(DType dtype, ReduceOp op, void* out, const void* a, const void* b, int64_t count) {
  switch (dtype) {
    case DType::F32:
      return CombineAs<float>(op, out, a, b, count);
    case DType::F64:
      return CombineAs<double>(op, out, a, b, count);
    case DType::I64:
      // Summed unsigned: the bits are the same, and overflow wraps instead of being undefined.
      return op == ReduceOp::SUM ? CombineAs<uint64_t>(op, out, a, b, count)
                                 : CombineAs<int64_t>(op, out, a, b, count);
    case DType::U64:
      return CombineAs<uint64_t>(op, out, a, b, count);
    case DType::U8:
      return CombineAs<uint8_t>(op, out, a, b, count);
    case DType::BF16:
      break;
  }
  TANDEM_CHECK(false) << "no reduction of " << NameOf(dtype);
}

void ReduceOverRanks(const RankReduction& how, Source source, absl::Span<char* const> outputs,
                     int64_t count) {
  const int64_t element = static_cast<int64_t>(SizeOf(how.dtype));
  alignas(64) char tile[kTileElements * 8];
  for (int64_t begin = 0; begin < count; begin += kTileElements) {
    const int64_t n = std::min(kTileElements, count - begin), offset = begin * element;
    auto tile_source = [&](int rank) { return source(rank) + offset; };
    if (how.dtype == DType::BF16)
      ReduceTileInF32(how, tile_source, tile, n);
    else
      ReduceTile(how, tile_source, tile, n);
    for (char* output : outputs) std::memcpy(output + offset, tile, n * element);
  }
}

}  // namespace tandem::comm
