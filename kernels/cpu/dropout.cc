#include <algorithm>

#include "kernels/cpu/vector/dropout_bits.h"
#include "kernels/cpu/vector/map.h"
#include "kernels/cpu/vector/strips.h"
#include "kernels/cuda/kernels.h"
#include "kernels/elementwise.h"
#include "kernels/memory/kernel_span.h"

namespace tandem::kernels {

namespace {

// The cost of ten rounds of Philox for eight elements, in additions that wait for memory.
constexpr int64_t kDropoutCost = 3;
constexpr int64_t kBits = 64;  // elements per word of the mask

#ifdef TANDEM_VECTOR_COPIES

// The 64-bit word is already four mask registers. g++ 12 would build the masks from shifts and
// comparisons per element.
__attribute__((target("avx512f"))) inline void KeepOrZeroAvx512(uint64_t kept, const float* from,
                                                                float scale, float* to) {
  for (int64_t i = 0; i < kBits; i += kLanes) {
    const auto mask = static_cast<__mmask16>(kept >> i);
    _mm512_storeu_ps(to + i,
                     _mm512_maskz_mul_ps(mask, _mm512_loadu_ps(from + i), _mm512_set1_ps(scale)));
  }
}

#endif

// to[i] = from[i] * scale if bit i of `kept` is set, else 0, for i in [0, count).
template <InstructionSet kSet, class T>
inline void KeepOrZero(uint64_t kept, int64_t count, const T* from, Compute<T> scale, T* to) {
#ifdef TANDEM_VECTOR_COPIES
  if constexpr (kSet == InstructionSet::AVX512 && std::is_same_v<T, float>) {
    if (count == kBits) return KeepOrZeroAvx512(kept, from, scale, to);
  }
#endif
  const auto value = [=](Compute<T> x, int64_t i) {
    const Compute<T> scaled = x * scale;
    return (kept >> i & 1) != 0 ? scaled : Compute<T>(0);
  };
  int64_t i = 0;
  if constexpr (std::is_same_v<T, BFloat16>) {
    const int64_t pairs = count / 2;
#pragma GCC ivdep
    for (int64_t p = 0; p < pairs; ++p) {
      const BFloat16Pair x = BFloat16Pair::At(from + 2 * p);
      BFloat16Pair::Of(value(x.first(), 2 * p), value(x.second(), 2 * p + 1)).Put(to + 2 * p);
    }
    i = 2 * pairs;
  }
#pragma GCC ivdep
  for (; i < count; ++i) to[i] = Store<T>(value(Load(from[i]), i));
}

void CheckMask(const ArrayView& mask, int64_t rows, int64_t columns) {
  TANDEM_CHECK(mask.dtype == DType::U64 && mask.is_dense())
      << NameOf(mask.dtype) << " " << mask.shape;
  TANDEM_CHECK_EQ(mask.num_elements(), rows * DropoutMaskWords(columns));
}

template <class T>
void ForwardRows(const DropoutArgs& args, int64_t columns, int64_t begin, int64_t end) {
  const int64_t* row_index = args.row_index.as<int64_t>();
  const PhiloxKeys keys = RoundKeys(FoldKey(args.key));
  const uint64_t step = args.step;
  const uint32_t threshold = DropThreshold(args.probability);
  const auto scale = static_cast<Compute<T>>(KeepScale(threshold));
  const T* x = args.x.as<T>();
  T* out = args.output.as<T>();
  uint64_t* mask = args.mask.empty() ? nullptr : args.mask.as<uint64_t>();
  const int64_t words = DropoutMaskWords(columns);
  Vectorised([=, &keys](auto set) {
    KeptBits<decltype(set)::value> bits(keys, step, threshold);
    for (int64_t r = begin; r < end; ++r) {
      bits.Seek(static_cast<uint64_t>(row_index[r]) * static_cast<uint64_t>(columns));
      for (int64_t w = 0; w < words; ++w) {
        const uint64_t kept = bits.Next();
        if (mask != nullptr) mask[r * words + w] = kept;
        const int64_t place = r * columns + w * kBits;
        Fetch<0>(x + place + kFetchedAhead, kBits);
        Fetch<1>(out + place + kFetchedAhead, kBits);
        if (columns - w * kBits >= kBits)
          KeepOrZero<set>(kept, kBits, x + place, scale, out + place);
        else
          KeepOrZero<set>(kept, columns - w * kBits, x + place, scale, out + place);
      }
    }
  });
}

}  // namespace

int64_t DropoutMaskWords(int64_t columns) { return (columns + kBits - 1) / kBits; }

void Dropout(const DropoutArgs& args, Stream& stream) {
  CheckSame(args.output, args.x);
  const int64_t rows = args.x.shape.num_rows(), columns = args.x.shape[-1];
  TANDEM_CHECK(args.probability >= 0 && args.probability < 1) << args.probability;
  TANDEM_CHECK_EQ(args.row_index.num_elements(), rows);
  TANDEM_CHECK(args.row_index.is_dense()) << args.row_index.strides;
  if (!args.mask.empty()) CheckMask(args.mask, rows, columns);
  const KernelSpan span(
      stream, SpanKind::DROPOUT, "dropout", 0,
      static_cast<double>(args.x.num_bytes() + args.output.num_bytes() +
                          args.row_index.num_bytes() + args.mask.num_bytes()),
      2.0 * kDropoutBitsInstructions * static_cast<double>(args.x.num_elements()));
  if (stream.on_cuda()) return cuda::Dropout(args, stream);
  WithStorageType(args.x.dtype, [&](auto zero) {
    ParallelRows(stream, rows, columns * kDropoutCost, [&](int64_t begin, int64_t end) {
      ForwardRows<decltype(zero)>(args, columns, begin, end);
    });
  });
}

void DropoutBackward(const DropoutBackwardArgs& args, Stream& stream) {
  CheckSame(args.grad_input, args.grad_output);
  const int64_t rows = args.grad_output.shape.num_rows(), columns = args.grad_output.shape[-1];
  TANDEM_CHECK(args.probability >= 0 && args.probability < 1) << args.probability;
  CheckMask(args.mask, rows, columns);
  const KernelSpan span(stream, SpanKind::DROPOUT, "dropout_backward", 0,
                        static_cast<double>(args.grad_input.num_bytes() +
                                            args.grad_output.num_bytes() + args.mask.num_bytes()));
  if (stream.on_cuda()) return cuda::DropoutBackward(args, stream);
  WithStorageType(args.grad_output.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto scale = static_cast<Compute<T>>(KeepScale(DropThreshold(args.probability)));
    const int64_t words = DropoutMaskWords(columns);
    ParallelRows(stream, rows, columns,
                 [=, from = args.grad_output.as<T>(), to = args.grad_input.as<T>(),
                  mask = args.mask.as<uint64_t>()](int64_t begin, int64_t end) {
                   Vectorised([=](auto set) {
                     for (int64_t r = begin; r < end; ++r) {
                       for (int64_t w = 0; w < words; ++w) {
                         const int64_t place = r * columns + w * kBits;
                         const uint64_t kept = mask[r * words + w];
                         if (columns - w * kBits >= kBits)
                           KeepOrZero<set>(kept, kBits, from + place, scale, to + place);
                         else
                           KeepOrZero<set>(kept, columns - w * kBits, from + place, scale,
                                           to + place);
                       }
                     }
                   });
                 });
  });
}

}  // namespace tandem::kernels
