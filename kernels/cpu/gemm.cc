#include "kernels/gemm.h"

#include <cstring>

#include "kernels/cpu/onednn_matmul.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vectorise.h"

// How one f32 product becomes one-thread calls on dense operands; each cut is a function of (M, N, K, flags) alone:
//  - few rows and many columns: slices of columns;
//  - a transposed, b not, K large (weight gradients, K = tokens): blocks of K, partial products added in block order. The operands'
//    slices are dense as they stand;
//  - otherwise: blocks of rows; a transposed block of a is copied into rows first, which pays (oneDNN would copy it anyway).
// Numbers of tokens differ from step to step, so a remainder is padded with zeros to a multiple of 16 rows or 64 of K: the set of
// shapes stays small and their primitives are made once. Zeros change no bit of a sum.
namespace tandem::kernels {

namespace {

constexpr int64_t kBlockMultiplyAdds = 1 << 22;  // of a block of rows: about 50 microseconds
constexpr int64_t kRowQuantum = 16, kDepthQuantum = 64;
constexpr int64_t kDepthBlock = 1024;
constexpr int64_t kMaxPartial = 1 << 17;  // elements of c for which blocks of K are worth their partial products
constexpr int64_t kFewRows = 64, kManyColumns = 1024, kColumnBlock = 512;

int64_t RoundUp(int64_t x, int64_t quantum) { return (x + quantum - 1) / quantum * quantum; }

struct Product {
  const float *a, *b;
  float* c;
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
};

// to [columns, to_stride] = from [rows, from_stride] transposed, in tiles that stay in the first-level cache.
void Transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  constexpr int64_t kTile = 16;
  Vectorised([=] {
    for (int64_t r = 0; r < rows; r += kTile) {
      const int64_t r_end = std::min(rows, r + kTile);
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t i = r; i < r_end; ++i) to[c * to_stride + i] = from[i * from_stride + c];
      }
    }
  });
}

void CopyRows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<size_t>(columns) * sizeof(float));
  }
}

void StoreRows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride,
               bool accumulate) {
  if (!accumulate) return CopyRows(from, from_stride, rows, columns, to, to_stride);
  Vectorised([=] {
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC ivdep
      for (int64_t c = 0; c < columns; ++c) to[r * to_stride + c] += from[r * from_stride + c];
    }
  });
}

void Zero(float* x, int64_t count) { std::memset(x, 0, static_cast<size_t>(count) * sizeof(float)); }

// Rows [begin, end) of c; a's rows are dense [m, k].
void MultiplyRows(const Product& p, const float* a_rows, int64_t begin, int64_t end) {
  MatmulShape shape{0, p.n, p.k, false, p.transpose_b, p.accumulate};
  const int64_t rows = end - begin, whole = rows / kRowQuantum * kRowQuantum;
  if (whole > 0) {
    shape.m = whole;
    OneThreadMatmul(shape, a_rows, p.b, p.c + begin * p.n);
  }
  const int64_t rest = rows - whole;
  if (rest == 0) return;
  float* padded_a = Scratch<float>(ScratchSlot::TASK_B, kRowQuantum * p.k);
  float* padded_c = Scratch<float>(ScratchSlot::TASK_C, kRowQuantum * p.n);
  CopyRows(a_rows + whole * p.k, p.k, rest, p.k, padded_a, p.k);
  Zero(padded_a + rest * p.k, (kRowQuantum - rest) * p.k);
  shape.m = kRowQuantum;
  shape.accumulate = false;
  OneThreadMatmul(shape, padded_a, p.b, padded_c);
  StoreRows(padded_c, p.n, rest, p.n, p.c + (begin + whole) * p.n, p.n, p.accumulate);
}

void CutRows(const Product& p, Stream& stream) {
  Product q = p;
  if (p.transpose_a) q.k = RoundUp(p.k, kDepthQuantum);
  const bool pad_b = q.k != p.k && !p.transpose_b;
  if (!pad_b) q.k = p.k;
  if (pad_b) {
    float* padded = Scratch<float>(ScratchSlot::CALLER, q.k * p.n);
    CopyRows(p.b, p.n, p.k, p.n, padded, p.n);
    Zero(padded + p.k * p.n, (q.k - p.k) * p.n);
    q.b = padded;
  }
  const int64_t block =
      std::clamp<int64_t>(RoundUp(kBlockMultiplyAdds / std::max<int64_t>(1, q.n * q.k), kRowQuantum), 64, 1024);
  stream.pool().ParallelFor((p.m + block - 1) / block, [&](int64_t task) {
    const int64_t begin = task * block, end = std::min(p.m, begin + block);
    if (!p.transpose_a) return MultiplyRows(q, p.a + begin * p.k, begin, end);
    float* rows = Scratch<float>(ScratchSlot::TASK_A, (end - begin) * q.k);
    if (q.k != p.k) Zero(rows, (end - begin) * q.k);
    Transpose(p.a + begin, p.m, p.k, end - begin, rows, q.k);
    MultiplyRows(q, rows, begin, end);
  });
}

// c = a' b with a [k, m] and b [k, n]: rows [begin, end) of both.
void MultiplyDepthBlock(const Product& p, int64_t begin, int64_t end, float* partial) {
  const int64_t depth = end - begin, padded = RoundUp(depth, kDepthQuantum);
  const float *a = p.a + begin * p.m, *b = p.b + begin * p.n;
  if (padded != depth) {
    float* copy_a = Scratch<float>(ScratchSlot::TASK_A, padded * p.m);
    float* copy_b = Scratch<float>(ScratchSlot::TASK_B, padded * p.n);
    CopyRows(a, p.m, depth, p.m, copy_a, p.m);
    CopyRows(b, p.n, depth, p.n, copy_b, p.n);
    Zero(copy_a + depth * p.m, (padded - depth) * p.m);
    Zero(copy_b + depth * p.n, (padded - depth) * p.n);
    a = copy_a;
    b = copy_b;
  }
  OneThreadMatmul({p.m, p.n, padded, true, false, false}, a, b, partial);
}

void CutDepth(const Product& p, Stream& stream) {
  const int64_t num_blocks = (p.k + kDepthBlock - 1) / kDepthBlock, size = p.m * p.n;
  float* partials = Scratch<float>(ScratchSlot::CALLER, num_blocks * size);
  stream.pool().ParallelFor(num_blocks, [&](int64_t block) {
    const int64_t begin = block * kDepthBlock;
    MultiplyDepthBlock(p, begin, std::min(p.k, begin + kDepthBlock), partials + block * size);
  });
  float* c = p.c;
  const bool accumulate = p.accumulate;
  ParallelRows(stream, size, num_blocks, [&](int64_t begin, int64_t end) {
    Vectorised([=] {
      for (int64_t block = 1; block < num_blocks; ++block) {
        const float* partial = partials + block * size;
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) partials[i] += partial[i];
      }
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) c[i] = accumulate ? c[i] + partials[i] : partials[i];
    });
  });
}

void CutColumns(const Product& p, Stream& stream) {
  const float* a = p.a;
  if (p.transpose_a) {
    float* rows = Scratch<float>(ScratchSlot::CALLER, p.m * p.k);
    Transpose(p.a, p.m, p.k, p.m, rows, p.k);
    a = rows;
  }
  stream.pool().ParallelFor((p.n + kColumnBlock - 1) / kColumnBlock, [&](int64_t task) {
    const int64_t begin = task * kColumnBlock, columns = std::min(p.n, begin + kColumnBlock) - begin;
    const float* b = p.b + begin * p.k;
    if (!p.transpose_b) {
      float* dense = Scratch<float>(ScratchSlot::TASK_A, p.k * columns);
      CopyRows(p.b + begin, p.n, p.k, columns, dense, columns);
      b = dense;
    }
    float* c = Scratch<float>(ScratchSlot::TASK_B, p.m * columns);
    OneThreadMatmul({p.m, columns, p.k, false, p.transpose_b, false}, a, b, c);
    StoreRows(c, columns, p.m, columns, p.c + begin, p.n, p.accumulate);
  });
}

void Multiply(const Product& p, Stream& stream) {
  if (p.transpose_a && !p.transpose_b && p.k > kDepthBlock && p.m * p.n <= kMaxPartial) return CutDepth(p, stream);
  if (p.m <= kFewRows && p.n >= kManyColumns) return CutColumns(p, stream);
  CutRows(p, stream);
}

// The f64 reference: one loop nest, each sum in ascending k.
void MultiplyReference(const GemmArgs& args, int64_t m, int64_t n, int64_t k, Stream& stream) {
  const double *a = args.a.as<double>(), *b = args.b.as<double>();
  double* c = args.c.as<double>();
  const int64_t a_row = args.transpose_a ? 1 : k, a_depth = args.transpose_a ? m : 1;
  const int64_t b_depth = args.transpose_b ? 1 : n, b_column = args.transpose_b ? k : 1;
  ParallelRows(stream, m, n * k, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (!args.accumulate) std::fill(c + i * n, c + (i + 1) * n, 0.0);
      for (int64_t d = 0; d < k; ++d) {
        const double factor = a[i * a_row + d * a_depth];
        for (int64_t j = 0; j < n; ++j) c[i * n + j] += factor * b[d * b_depth + j * b_column];
      }
    }
  });
}

}  // namespace

void Gemm(const GemmArgs& args, Stream& stream) {
  const ArrayView &a = args.a, &b = args.b, &c = args.c;
  TANDEM_CHECK(a.shape.num_dims() == 2 && b.shape.num_dims() == 2 && c.shape.num_dims() == 2);
  TANDEM_CHECK(a.is_dense() && b.is_dense() && c.is_dense());
  TANDEM_CHECK(a.dtype == c.dtype && b.dtype == c.dtype);
  const int64_t m = c.shape[0], n = c.shape[1], k = a.shape[args.transpose_a ? 0 : 1];
  TANDEM_CHECK(a.shape[args.transpose_a ? 1 : 0] == m && b.shape[args.transpose_b ? 1 : 0] == k &&
               b.shape[args.transpose_b ? 0 : 1] == n)
      << a.shape << (args.transpose_a ? "' " : " ") << b.shape << (args.transpose_b ? "' " : " ") << c.shape;
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!args.accumulate) std::memset(c.data, 0, c.num_bytes());
    return;
  }
  if (c.dtype == DType::F64) return MultiplyReference(args, m, n, k, stream);
  Multiply({a.as<float>(), b.as<float>(), c.as<float>(), m, n, k, args.transpose_a, args.transpose_b, args.accumulate},
           stream);
}

}  // namespace tandem::kernels
