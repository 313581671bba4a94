#include "kernels/gemm.h"

#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/cast.h"
#include "kernels/cpu/matmul/packed_matmul.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/memory/storage.h"

// Splits one product into one-thread calls on dense operands. Each split is a function of (M, N, K,
// flags) alone:
// - a transposed, b not (weight gradients, K = tokens): blocks of rows of c and, if c is small,
// chains of K; each chain is a partial product, added in order;
// - few rows: one call, because packing b would cost more than it saves, or slices of columns;
// - otherwise: b is packed once, then blocks of rows.
// With fast tiles (AMX), f32 products that are wide and deep enough run in pieces of bf16
// (split_matmul.h): few rows by columns, otherwise by the splits above.
// The number of tokens differs from step to step. Zeros pad a remainder to a multiple of 16 rows or
// 64 of K. So the set of shapes stays small, and each shape's primitive is made once. Zeros change
// no bit of a sum.
namespace tandem::kernels {

namespace {

constexpr int64_t kDepthQuantum = 64, kDepthChunk = 512;
constexpr int64_t kMinChain = 1024, kMaxChains = 8, kChainRows = 256;
constexpr int64_t kMinSplitRows = 128;  // for weight gradients
// The largest c, in elements, for which chains pay for their partial products.
constexpr int64_t kMaxPartial = 1 << 19;
constexpr int64_t kFewRows = 64, kManyColumns = 1024, kColumnBlock = 512;
// With few rows, one thread is fastest up to this number of multiply-adds.
constexpr int64_t kMaxOneCall = 1 << 25;
constexpr int64_t kTransposedRows = 128;  // rows that one task transposes

template <class T>
struct Product {
  const T *a, *b;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  ProductTarget c;
  int64_t depth;  // length of a row of an untransposed a: k, or more with zeros
  bool split;     // multiply in pieces (split_matmul.h)

  StoredMatrix<T> stored_b() const { return {b, k, n, transpose_b ? k : n, transpose_b}; }
};

template <class T>
void CutRows(const Product<T>& p, Stream& stream) {
  const PackedLayout layout = LayoutOf<T>(p.split);
  T* memory = Scratch<T>(ScratchSlot::CALLER, PackedSize<T>(p.depth, p.n, layout));
  MultiplyRows(p.a, p.m, Pack(p.stored_b(), p.depth, layout, memory, stream), p.c, stream);
}

// The depths of a' b and the rows of c that one task computes.
struct Chain {
  int64_t first_row, rows, begin, end;
};

// Depths [begin, begin + depth) of x [k, columns]: in place, but a remainder is copied and padded
// with zeros.
template <class T>
const T* Depths(const T* x, int64_t columns, int64_t begin, int64_t depth, ScratchSlot slot) {
  const T* from = x + begin * columns;
  const int64_t padded = RoundUp(depth, kDepthQuantum);
  if (padded == depth) return from;
  T* copy = Scratch<T>(slot, padded * columns);
  std::copy_n(from, depth * columns, copy);
  std::fill_n(copy + depth * columns, (padded - depth) * columns, T{});
  return copy;
}

// Multiplies all rows in one call, which transposes a itself: fastest for f32.
template <class T>
void MultiplyAsStored(const Product<T>& p, const Chain& chain, const ProductTarget& target) {
  const int64_t depth = chain.end - chain.begin;
  const T* a = Depths(p.a, p.m, chain.begin, depth, ScratchSlot::TASK_A);
  const T* b = Depths(p.b, p.n, chain.begin, depth, ScratchSlot::TASK_B);
  OneThreadMatmul({.m = p.m,
                   .n = p.n,
                   .k = RoundUp(depth, kDepthQuantum),
                   .operand = DTypeOf<T>(),
                   .transpose_a = true,
                   .bias = target.bias != nullptr,
                   .accumulate = target.accumulate},
                  a, b, target.bias, target.data);
}

// Multiplies some rows; transposes a in chunks that stay in L2: fastest for bf16.
template <class T>
void MultiplyInChunks(const Product<T>& p, const Chain& chain, ProductTarget target) {
  for (int64_t d = chain.begin; d < chain.end; d += kDepthChunk) {
    const int64_t depth = std::min(kDepthChunk, chain.end - d),
                  padded = RoundUp(depth, kDepthQuantum);
    T* a = Scratch<T>(ScratchSlot::TASK_A, chain.rows * padded);
    PackRows(p.a + d * p.m, p.m, depth, chain.first_row, chain.rows, padded, a);
    MultiplyHere(a, chain.rows,
                 PackedMatrix<T>{Depths(p.b, p.n, d, depth, ScratchSlot::TASK_B), padded, p.n},
                 target);
    target.bias = nullptr;
    target.accumulate = true;
  }
}

// Multiplies some rows with both operands in pieces, made from one chunk of depths at a time.
void MultiplyInPieces(const Product<float>& p, const Chain& chain, const ProductTarget& target) {
  BFloat16* a = Scratch<BFloat16>(ScratchSlot::TASK_A, SplitSize(chain.rows, kDepthChunk));
  for (int64_t d = chain.begin; d < chain.end; d += kDepthChunk) {
    const int64_t depth = std::min(kDepthChunk, chain.end - d);
    const bool first = d == chain.begin;
    SplitOperand(SplitSide::A, {p.a + d * p.m, depth, p.m, p.m, /*transposed=*/false},
                 chain.first_row, chain.rows, depth, a);
    SplitProduct(chain.rows, a, {p.b + d * p.n, depth, p.n, p.n, /*transposed=*/false},
                 {.c = static_cast<float*>(target.data),
                  .c_row = p.n,
                  .bias = first ? target.bias : nullptr,
                  .accumulate = target.accumulate || !first});
  }
}

void AddPartialProducts(const float* partials, int64_t count, int64_t size, float* c,
                        Stream& stream) {
  ParallelRows(stream, size, count, [&](int64_t begin, int64_t end) {
    Vectorised([=] {
      for (int64_t p = 0; p < count; ++p) {
        const float* partial = partials + p * size;
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) c[i] += partial[i];
      }
    });
  });
}

template <class T>
void CutDepth(const Product<T>& p, Stream& stream) {
  const int64_t size = p.m * p.n;
  const bool small = size <= kMaxPartial, as_stored = small && !p.split && std::is_same_v<T, float>;
  const int64_t most = small ? std::clamp<int64_t>(p.k / kMinChain, 1, kMaxChains) : 1;
  const int64_t length = RoundUp((p.k + most - 1) / most, kDepthChunk),
                chains = (p.k + length - 1) / length;
  const int64_t row_block = as_stored ? p.m : kChainRows,
                row_blocks = (p.m + row_block - 1) / row_block;
  float* partials = Scratch<float>(ScratchSlot::CALLER, (chains - 1) * size);
  stream.pool().ParallelFor(chains * row_blocks, [&](int64_t task) {
    const int64_t number = task / row_blocks, first_row = task % row_blocks * row_block;
    const Chain chain{first_row, std::min(row_block, p.m - first_row), number * length,
                      std::min(p.k, (number + 1) * length)};
    const ProductTarget target =
        number == 0 ? p.c : ProductTarget{.data = partials + (number - 1) * size};
    if (as_stored) return MultiplyAsStored(p, chain, target);
    if constexpr (std::is_same_v<T, float>) {
      if (p.split) return MultiplyInPieces(p, chain, target.Rows(first_row, p.n));
    }
    MultiplyInChunks(p, chain, target.Rows(first_row, p.n));
  });
  if (chains > 1)
    AddPartialProducts(partials, chains - 1, size, static_cast<float*>(p.c.data), stream);
}

// Stores the dense `from` [m, columns] to columns [begin, begin + columns) of c [m, n].
void StoreColumns(const ProductTarget& c, int64_t m, int64_t n, int64_t begin, int64_t columns,
                  const void* from) {
  const size_t element = SizeOf(c.dtype);
  if (!c.accumulate) {
    for (int64_t r = 0; r < m; ++r) {
      std::memcpy(static_cast<char*>(c.data) + (r * n + begin) * element,
                  static_cast<const char*>(from) + r * columns * element, columns * element);
    }
    return;
  }
  float* to = static_cast<float*>(c.data) + begin;
  const float* sums = static_cast<const float*>(from);
  Vectorised([=] {
    for (int64_t r = 0; r < m; ++r) {
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) to[r * n + j] += sums[r * columns + j];
    }
  });
}

template <class T>
void CutColumns(const Product<T>& p, Stream& stream) {
  const int64_t step = p.transpose_b ? p.k : 1;
  stream.pool().ParallelFor((p.n + kColumnBlock - 1) / kColumnBlock, [&](int64_t task) {
    const int64_t begin = task * kColumnBlock, columns = std::min(kColumnBlock, p.n - begin);
    StoredMatrix<T> slice = p.stored_b();
    slice.data += begin * step;
    slice.n = columns;
    const PackedLayout layout = LayoutOf<T>(/*split=*/false);
    T* memory = Scratch<T>(ScratchSlot::TASK_A, PackedSize<T>(p.depth, columns, layout));
    void* c = Scratch<float>(ScratchSlot::TASK_B, p.m * columns);
    const float* bias = p.c.bias == nullptr ? nullptr : p.c.bias + begin;
    MultiplyHere(p.a, p.m, Pack(slice, p.depth, layout, memory, stream),
                 {.data = c, .dtype = p.c.dtype, .bias = bias});
    StoreColumns(p.c, p.m, p.n, begin, columns, c);
  });
}

// Multiplies few rows or many columns: makes the pieces of all of a first, and b's pieces at their
// use.
void CutColumnsInPieces(const Product<float>& p, Stream& stream) {
  BFloat16* a = Scratch<BFloat16>(ScratchSlot::CALLER_B, SplitSize(p.m, p.k));
  const StoredMatrix<float> rows{p.a, p.k, p.m, p.transpose_a ? p.m : p.k, !p.transpose_a};
  ForSplitDepths(p.k, [&](int64_t d, int64_t depth) {
    stream.pool().ParallelFor((p.m + kTransposedRows - 1) / kTransposedRows, [&](int64_t task) {
      const int64_t first = task * kTransposedRows, count = std::min(kTransposedRows, p.m - first);
      SplitOperand(SplitSide::A, rows.From(d, depth), first, count, depth,
                   a + SplitSize(p.m, d) + SplitSize(first, depth));
    });
  });
  stream.pool().ParallelFor((p.n + kSplitBlockColumns - 1) / kSplitBlockColumns, [&](int64_t task) {
    const int64_t first = task * kSplitBlockColumns;
    ForSplitDepths(p.k, [&](int64_t d, int64_t depth) {
      StoredMatrix<float> b = p.stored_b().From(d, depth);
      b.data += first * (p.transpose_b ? p.k : 1);
      b.n = std::min(kSplitBlockColumns, p.n - first);
      SplitProduct(p.m, a + SplitSize(p.m, d), b,
                   {.c = static_cast<float*>(p.c.data) + first,
                    .c_row = p.n,
                    .bias = d > 0 || p.c.bias == nullptr ? nullptr : p.c.bias + first,
                    .accumulate = p.c.accumulate || d > 0});
    });
  });
}

// Returns the product with a's rows dense in scratch.
template <class T>
Product<T> WithRowsOfA(const Product<T>& p, Stream& stream) {
  Product<T> straight = p;
  straight.depth = RoundUp(p.k, kDepthQuantum);
  straight.transpose_a = false;
  T* memory = Scratch<T>(ScratchSlot::CALLER_B, p.m * straight.depth);
  straight.a = memory;
  stream.pool().ParallelFor((p.m + kTransposedRows - 1) / kTransposedRows, [&](int64_t task) {
    const int64_t begin = task * kTransposedRows, rows = std::min(kTransposedRows, p.m - begin);
    PackRows(p.a, p.m, p.k, begin, rows, straight.depth, memory + begin * straight.depth);
  });
  return straight;
}

template <class T>
void Multiply(const Product<T>& p, Stream& stream) {
  if (!p.transpose_a) {
    if (p.m > kFewRows) return CutRows(p, stream);
    if constexpr (std::is_same_v<T, float>) {
      if (p.split) return CutColumnsInPieces(p, stream);
    }
    const bool little = p.m * p.n * p.k <= kMaxOneCall;
    if (little && !p.transpose_b)
      return MultiplyHere(p.a, p.m, PackedMatrix<T>{p.b, p.k, p.n}, p.c);
    return p.n >= kManyColumns ? CutColumns(p, stream) : CutRows(p, stream);
  }
  const bool wide = p.m * p.n > kMaxPartial && p.n >= 4 * p.m;
  if (!p.transpose_b && p.c.dtype == DType::F32 && !wide) return CutDepth(p, stream);
  if constexpr (std::is_same_v<T, float>) {
    if (p.split && wide) return CutColumnsInPieces(p, stream);
  }
  const Product<T> straight = WithRowsOfA(p, stream);
  return wide ? CutColumns(straight, stream) : CutRows(straight, stream);
}

// True if the product is computed in pieces. Ignores the number of rows of an untransposed a, which
// must not change any bits.
bool IsSplit(const GemmArgs& args) {
  const int64_t m = args.c.shape[0], n = args.c.shape[1],
                k = args.a.shape[args.transpose_a ? 0 : 1];
  return args.a.dtype == DType::F32 && UsesSplitProducts(n, k) &&
         (!args.transpose_a || m >= kMinSplitRows);
}

template <class T>
void MultiplyArrays(const GemmArgs& args, const ProductTarget& c, Stream& stream) {
  const int64_t m = args.c.shape[0], n = args.c.shape[1],
                k = args.a.shape[args.transpose_a ? 0 : 1];
  Multiply<T>({args.a.as<T>(), args.b.as<T>(), m, n, k, args.transpose_a, args.transpose_b, c, k,
               IsSplit(args)},
              stream);
}

// BF16 on a processor without bf16 kernels: converts the operands to f32 and rounds at the end.
void MultiplyWidened(const GemmArgs& args, Stream& stream) {
  std::vector<float> a(args.a.num_elements()), b(args.b.num_elements()), c(args.c.num_elements());
  GemmArgs wide = args;
  wide.a = DenseView(a.data(), args.a.shape);
  wide.b = DenseView(b.data(), args.b.shape);
  if (args.c.dtype == DType::BF16) wide.c = DenseView(c.data(), args.c.shape);
  Cast(wide.a, args.a, stream);
  Cast(wide.b, args.b, stream);
  const float* bias = args.bias.empty() ? nullptr : args.bias.as<float>();
  MultiplyArrays<float>(wide, {.data = wide.c.data, .bias = bias, .accumulate = args.accumulate},
                        stream);
  if (args.c.dtype == DType::BF16) Cast(args.c, wide.c, stream);
}

// K = 0: stores only the bias and the old c.
void StoreEmptySums(const GemmArgs& args) {
  const int64_t n = args.c.shape[1];
  const float* bias = args.bias.empty() ? nullptr : args.bias.as<float>();
  WithStorageType(args.c.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* c = args.c.as<T>();
    for (int64_t i = 0; i < args.c.num_elements(); ++i) {
      const Compute<T> start = bias == nullptr ? Compute<T>(0) : Compute<T>(bias[i % n]);
      c[i] = Store<T>(args.accumulate ? start + Load(c[i]) : start);
    }
  });
}

// The f64 reference: one loop nest; each sum in ascending k.
void MultiplyReference(const GemmArgs& args, Stream& stream) {
  const int64_t m = args.c.shape[0], n = args.c.shape[1],
                k = args.a.shape[args.transpose_a ? 0 : 1];
  const double *a = args.a.as<double>(), *b = args.b.as<double>();
  const double* bias = args.bias.empty() ? nullptr : args.bias.as<double>();
  double* c = args.c.as<double>();
  const int64_t a_row = args.transpose_a ? 1 : k, a_depth = args.transpose_a ? m : 1;
  const int64_t b_depth = args.transpose_b ? 1 : n, b_column = args.transpose_b ? k : 1;
  ParallelRows(stream, m, n * k, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double* row = c + i * n;
      if (!args.accumulate) std::fill(row, row + n, 0.0);
      for (int64_t d = 0; d < k; ++d) {
        const double factor = a[i * a_row + d * a_depth];
        for (int64_t j = 0; j < n; ++j) row[j] += factor * b[d * b_depth + j * b_column];
      }
      if (bias == nullptr) continue;
      for (int64_t j = 0; j < n; ++j) row[j] += bias[j];
    }
  });
}

void CheckArgs(const GemmArgs& args) {
  const ArrayView &a = args.a, &b = args.b, &c = args.c;
  TANDEM_CHECK(a.shape.num_dims() == 2 && b.shape.num_dims() == 2 && c.shape.num_dims() == 2);
  TANDEM_CHECK(a.is_dense() && b.is_dense() && c.is_dense());
  TANDEM_CHECK(a.dtype == b.dtype &&
               (c.dtype == a.dtype || (a.dtype == DType::BF16 && c.dtype == DType::F32)))
      << NameOf(a.dtype) << " times " << NameOf(b.dtype) << " to " << NameOf(c.dtype);
  TANDEM_CHECK(!args.accumulate || c.dtype != DType::BF16);
  const int64_t m = c.shape[0], n = c.shape[1], k = a.shape[args.transpose_a ? 0 : 1];
  TANDEM_CHECK(a.shape[args.transpose_a ? 1 : 0] == m && b.shape[args.transpose_b ? 1 : 0] == k &&
               b.shape[args.transpose_b ? 0 : 1] == n)
      << a.shape << (args.transpose_a ? "' " : " ") << b.shape << (args.transpose_b ? "' " : " ")
      << c.shape;
  if (args.bias.empty()) return;
  TANDEM_CHECK(args.bias.is_dense() && args.bias.num_elements() == n)
      << args.bias.shape << " for " << c.shape;
  TANDEM_CHECK(args.bias.dtype == c.dtype ||
               (args.bias.dtype == DType::F32 && c.dtype == DType::BF16))
      << NameOf(args.bias.dtype) << " for " << NameOf(c.dtype);
}

KernelSpan SpanOf(const GemmArgs& args, Stream& stream) {
  const int64_t k = args.a.shape[args.transpose_a ? 0 : 1];
  const bool split = !stream.on_cuda() && IsSplit(args);
  return KernelSpan(
      stream, SpanKind::GEMM, split ? "split_gemm" : "gemm",
      2.0 * static_cast<double>(args.c.num_elements() * k),
      static_cast<double>(args.a.num_bytes() + args.b.num_bytes() + args.c.num_bytes()));
}

// oneDNN takes F32 biases only.
void MultiplyWithWidenedBias(const GemmArgs& args, Stream& stream) {
  std::vector<float> bias(args.bias.num_elements());
  GemmArgs wide = args;
  wide.bias = DenseView(bias.data(), args.bias.shape);
  Cast(wide.bias, args.bias, stream);
  Gemm(wide, stream);
}

}  // namespace

void Gemm(const GemmArgs& args, Stream& stream) {
  CheckArgs(args);
  if (args.c.num_elements() == 0) return;
  if (!stream.on_cuda() && !args.bias.empty() && args.bias.dtype == DType::BF16)
    return MultiplyWithWidenedBias(args, stream);
  const KernelSpan span = SpanOf(args, stream);
  if (stream.on_cuda()) return cuda::Gemm(args, stream);
  if (args.a.dtype == DType::F64) return MultiplyReference(args, stream);
  if (args.a.num_elements() == 0) return StoreEmptySums(args);
  const ProductTarget c{.data = args.c.data,
                        .dtype = args.c.dtype,
                        .bias = args.bias.empty() ? nullptr : args.bias.as<float>(),
                        .accumulate = args.accumulate};
  if (args.a.dtype == DType::F32) return MultiplyArrays<float>(args, c, stream);
  if (!MatmulTakesPanels(DType::BF16)) return MultiplyWidened(args, stream);
  MultiplyArrays<BFloat16>(args, c, stream);
}

void GemmActivate(const GemmArgs& args, const ArrayView& activated, Activation activation,
                  Stream& stream) {
  CheckArgs(args);
  TANDEM_CHECK(!args.accumulate);
  TANDEM_CHECK(activated.dtype == args.c.dtype && activated.shape == args.c.shape &&
               activated.is_dense())
      << NameOf(activated.dtype) << " " << activated.shape << " of " << NameOf(args.c.dtype) << " "
      << args.c.shape;
  if (stream.on_cuda()) {
    const KernelSpan span = SpanOf(args, stream);
    return cuda::GemmActivate(args, activated, activation, stream);
  }
  Gemm(args, stream);
  ActivationForward(activated, args.c, activation, stream);
}

}  // namespace tandem::kernels
