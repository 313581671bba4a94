#include "kernels/norm.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cast.h"
#include "kernels/cpu/vector/column_partials.h"
#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/strips.h"
#include "kernels/cpu/vector/transpose.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"
#include "kernels/elementwise.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/memory/storage.h"

// Rows are processed in groups of up to kLanes that stay in L1. Each statistic takes one pass over
// the group and folds the sums of its rows together; a last pass writes. So memory is read once and
// written once, and meanwhile rows of a later group are prefetched.
namespace tandem::kernels {

namespace {

// Layer norm and RMS norm are one computation: RMS norm takes the mean as 0 and has no beta. x and
// its gradient are stored as S, the output and its gradient as O. `mean` is null for RMS norm;
// gamma and beta are never null.
template <class S, class O>
struct NormArrays {
  using T = Compute<S>;
  int64_t rows = 0, columns = 0;
  const S* x = nullptr;
  const T *gamma = nullptr, *beta = nullptr;
  T *mean = nullptr, *inverse = nullptr;
  O* output = nullptr;
  const O* grad_output = nullptr;
  S* grad_input = nullptr;
};

template <class T>
T* Required(const ArrayView& view, int64_t count) {
  TANDEM_CHECK_EQ(view.num_elements(), count);
  TANDEM_CHECK(view.is_dense()) << view.shape;
  return view.as<T>();
}

// The view's elements, or `room` filled with `count` times `absent` if the view is empty.
template <class T>
const T* Affine(const ArrayView& view, int64_t count, T absent, T* room) {
  if (!view.empty()) return Required<T>(view, count);
  std::fill_n(room, count, absent);
  return room;
}

// Rows of a group. The memory that a group reads and writes, and that the next group reads, fits in
// L1.
constexpr int64_t kGroupElements = 2048;
int64_t GroupRows(int64_t columns) {
  return std::clamp<int64_t>(kGroupElements / std::max<int64_t>(1, columns), 1, kLanes);
}

// The lane sums of kLanes rows (lanes.h), folded side by side. Rows from `rows` on are 0.
template <class T>
struct GroupSums {
  alignas(64) T lanes[kTileElements];

  explicit GroupSums(int64_t rows) {
    std::fill(lanes + rows * kLanes, lanes + kTileElements, T(0));
  }
  void Set(int64_t row, const T* sum) {
    for (int l = 0; l < kLanes; ++l) lanes[row * kLanes + l] = sum[l];
  }
};

// totals[r] = sum of term(r, i) over i in [0, n), for r in [0, rows); 0 for the other lanes.
template <class T, class Term, class Touch>
inline void RowSums(int64_t rows, int64_t n, const Term& term, T* totals, const Touch& touch) {
  GroupSums<T> sums(rows);
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t r = 0; r < rows; ++r) {
    T lane[kLanes];
    for (int l = 0; l < kLanes; ++l) lane[l] = T(0);
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) lane[l] += term(r, i + l);
    }
    touch(r);
    sums.Set(r, lane);
    T* tail = sums.lanes + r * kLanes - whole;
    for (int64_t i = whole; i < n; ++i) tail[i] += term(r, i);
  }
  FoldRows(sums.lanes, totals);
}

template <class S, class O, class T = Compute<S>>
inline void ForwardGroup(const NormArrays<S, O>& a, int64_t first, int64_t rows, T epsilon) {
  const int64_t n = a.columns;
  const S* x = a.x + first * n;
  T mean[kLanes], inverse[kLanes];
  for (int l = 0; l < kLanes; ++l) mean[l] = T(0);
  if (a.mean != nullptr) {
    RowSums(
        rows, n, [=](int64_t r, int64_t i) { return Load(x[r * n + i]); }, mean, [](int64_t) {});
    for (int l = 0; l < kLanes; ++l) mean[l] /= static_cast<T>(n);
    for (int64_t r = 0; r < rows; ++r) a.mean[first + r] = mean[r];
  }
  RowSums(
      rows, n,
      [=, &mean](int64_t r, int64_t i) {
        const T centred = Load(x[r * n + i]) - mean[r];
        return centred * centred;
      },
      inverse, [&](int64_t r) { Fetch<1>(a.output + (first + r) * n, n); });
  for (int l = 0; l < kLanes; ++l)
    inverse[l] = T(1) / Sqrt(inverse[l] / static_cast<T>(n) + epsilon);
  for (int64_t r = 0; r < rows; ++r) {
    const T m = mean[r], scale = inverse[r];
    const S* from = x + r * n;
    O* to = a.output + (first + r) * n;
    const T *gamma = a.gamma, *beta = a.beta;
    a.inverse[first + r] = scale;
    Fetch<0>(from + rows * n, n);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      to[i] = Store<O>((Load(from[i]) - m) * scale * gamma[i] + beta[i]);
  }
}

template <class S, class O>
void Forward(const NormArrays<S, O>& a, double epsilon, Stream& stream) {
  const int64_t group = GroupRows(a.columns);
  ParallelRows(
      stream, (a.rows + group - 1) / group, 3 * group * a.columns, [&](int64_t begin, int64_t end) {
        Vectorised([&] {
          for (int64_t r = begin * group; r < std::min(a.rows, end * group); r += group) {
            ForwardGroup(a, r, std::min(group, a.rows - r), static_cast<Compute<S>>(epsilon));
          }
        });
      });
}

// One row of BackwardGroup's first pass: adds grad h and grad to the column sums, and returns the
// lane sums of g and g h.
template <class S, class T>
inline void AddGradientRow(const S* x, const T* grad, const T* gamma, int64_t n, T mean, T inverse,
                           T* __restrict__ partial, T* __restrict__ sum_g, T* __restrict__ sum_gh) {
  T lane_g[kLanes], lane_gh[kLanes];
  for (int l = 0; l < kLanes; ++l) lane_g[l] = T(0);
  for (int l = 0; l < kLanes; ++l) lane_gh[l] = T(0);
  const auto add = [=](int64_t i, T& total_g, T& total_gh) {
    const T dy = grad[i], h = (Load(x[i]) - mean) * inverse, g = dy * gamma[i];
    partial[i] += dy * h;
    partial[n + i] += dy;
    total_g += g;
    total_gh += g * h;
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) add(i + l, lane_g[l], lane_gh[l]);
  }
  for (int l = 0; l < kLanes; ++l) sum_g[l] = lane_g[l];
  for (int l = 0; l < kLanes; ++l) sum_gh[l] = lane_gh[l];
  for (int l = 0; i + l < n; ++l) add(i + l, sum_g[l], sum_gh[l]);
}

// With h = (x - mean) inverse and g = grad_output gamma:
// grad_input = inverse (g - mean(g) - h mean(g h)). RMS norm omits the middle term.
// `partial` [2 columns] collects the rows' grad_output h and grad_output. `room` holds the group's
// grad_output as T.
template <class S, class O, class T = Compute<S>>
inline void BackwardGroup(const NormArrays<S, O>& a, int64_t first, int64_t rows, T* room,
                          T* partial) {
  const int64_t n = a.columns;
  const S* x = a.x + first * n;
  const T* grad;
  if constexpr (std::is_same_v<O, T>) {
    grad = a.grad_output + first * n;
  } else {
    // Converts first, because mixing widths in one loop is slow.
    for (int64_t i = 0; i < rows * n; ++i) room[i] = Load(a.grad_output[first * n + i]);
    grad = room;
  }
  T mean[kLanes], mean_g[kLanes], mean_gh[kLanes];
  for (int64_t r = 0; r < rows; ++r) mean[r] = a.mean != nullptr ? a.mean[first + r] : T(0);
  GroupSums<T> sums_g(rows), sums_gh(rows);
  for (int64_t r = 0; r < rows; ++r) {
    Fetch<0>(x + (rows + r) * n, n);
    Fetch<0>(a.grad_output + (first + rows + r) * n, n);
    Fetch<1>(a.grad_input + (first + r) * n, n);
    AddGradientRow(x + r * n, grad + r * n, a.gamma, n, mean[r], a.inverse[first + r], partial,
                   sums_g.lanes + r * kLanes, sums_gh.lanes + r * kLanes);
  }
  FoldRows(sums_g.lanes, mean_g);
  FoldRows(sums_gh.lanes, mean_gh);
  for (int l = 0; l < kLanes; ++l)
    mean_g[l] = a.mean != nullptr ? mean_g[l] / static_cast<T>(n) : T(0);
  for (int l = 0; l < kLanes; ++l) mean_gh[l] /= static_cast<T>(n);
  for (int64_t r = 0; r < rows; ++r) {
    const T m = mean[r], inverse = a.inverse[first + r], shift = mean_g[r], slope = mean_gh[r];
    const S* x_row = x + r * n;
    const T *grad_row = grad + r * n, *gamma = a.gamma;
    S* to = a.grad_input + (first + r) * n;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const T h = (Load(x_row[i]) - m) * inverse;
      to[i] = Store<S>(inverse * ((grad_row[i] * gamma[i] - shift) - h * slope));
    }
  }
}

// grad_gamma and grad_beta are null if not wanted. `partials` has room for BackwardRoom() elements.
template <class S, class O>
int64_t BackwardRoom(const NormArrays<S, O>& a) {
  const int64_t group = std::is_same_v<O, Compute<S>> ? 0 : kLanes;
  return (a.rows / kPartialRows + 1) * (2 + group) * a.columns;
}

template <class S, class O, class T = Compute<S>>
void Backward(const NormArrays<S, O>& a, T* partials, T* grad_gamma, T* grad_beta, Stream& stream) {
  const int64_t columns = 2 * a.columns;
  T* rooms = partials + (a.rows / kPartialRows + 1) * columns;
  const int64_t num_blocks = RowBlockPartials<T>(
      a.rows, columns, stream, partials, [&](int64_t begin, int64_t end, T* partial) {
        T* room = rooms + begin / kPartialRows * kLanes * a.columns;
        for (int64_t r = begin; r < end; r += kLanes)
          BackwardGroup(a, r, std::min<int64_t>(kLanes, end - r), room, partial);
      });
  if (grad_gamma != nullptr)
    AddPartials(num_blocks, columns, partials, 0, a.columns, grad_gamma, false);
  if (grad_beta != nullptr)
    AddPartials(num_blocks, columns, partials, a.columns, a.columns, grad_beta, false);
}

// Calls body(S{}, O{}) with the storage types of x and of the output (or its gradient).
template <class Body>
void WithNormTypes(DType x, DType output, const Body& body) {
  if (x == DType::F32 && output == DType::BF16) return body(float{}, BFloat16{});
  TANDEM_CHECK(x == output) << NameOf(x) << " and " << NameOf(output);
  WithStorageType(x, [&](auto zero) { body(zero, zero); });
}

double BytesOf(const ArrayView& a, const ArrayView& b, const ArrayView& c = {}) {
  return static_cast<double>(a.num_bytes() + b.num_bytes() + (c.empty() ? 0 : c.num_bytes()));
}

// `mean` is an empty view for RMS norm.
void NormForward(const ArrayView& x, const ArrayView& gamma, const ArrayView& beta,
                 const ArrayView& output, const ArrayView& mean, const ArrayView& inverse,
                 double epsilon, Stream& stream) {
  WithNormTypes(x.dtype, output.dtype, [&](auto s, auto o) {
    using S = decltype(s);
    using T = Compute<S>;
    NormArrays<S, decltype(o)> a;
    a.rows = x.shape.num_rows();
    a.columns = x.shape[-1];
    T* room = Scratch<T>(ScratchSlot::CALLER, 2 * a.columns);
    a.x = Required<S>(x, x.num_elements());
    a.gamma = Affine(gamma, a.columns, T(1), room);
    a.beta = Affine(beta, a.columns, T(0), room + a.columns);
    a.output = Required<decltype(o)>(output, x.num_elements());
    a.mean = mean.empty() ? nullptr : Required<T>(mean, a.rows);
    a.inverse = Required<T>(inverse, a.rows);
    Forward(a, epsilon, stream);
  });
}

void NormBackward(const LayerNormBackwardArgs& args, Stream& stream) {
  WithNormTypes(args.x.dtype, args.grad_output.dtype, [&](auto s, auto o) {
    using S = decltype(s);
    using T = Compute<S>;
    NormArrays<S, decltype(o)> a;
    a.rows = args.x.shape.num_rows();
    a.columns = args.x.shape[-1];
    T* room = Scratch<T>(ScratchSlot::CALLER, BackwardRoom(a) + a.columns);
    a.x = Required<S>(args.x, args.x.num_elements());
    a.gamma = Affine(args.gamma, a.columns, T(1), room + BackwardRoom(a));
    a.mean = args.mean.empty() ? nullptr : Required<T>(args.mean, a.rows);
    a.inverse = Required<T>(args.inverse, a.rows);
    a.grad_output = Required<decltype(o)>(args.grad_output, args.x.num_elements());
    a.grad_input = Required<S>(args.grad_input, args.x.num_elements());
    T* grad_gamma = args.grad_gamma.empty() ? nullptr : Required<T>(args.grad_gamma, a.columns);
    T* grad_beta = args.grad_beta.empty() ? nullptr : Required<T>(args.grad_beta, a.columns);
    Backward(a, room, grad_gamma, grad_beta, stream);
  });
}

void CheckLike(const ArrayView& view, const ArrayView& x, DType dtype) {
  TANDEM_CHECK(view.dtype == dtype && view.num_elements() == x.num_elements() && view.is_dense())
      << NameOf(view.dtype) << " " << view.shape << " beside " << NameOf(x.dtype) << " " << x.shape;
}

void CheckDropout(const ResidualDropout& dropout, const ArrayView& x) {
  TANDEM_CHECK(dropout.probability >= 0 && dropout.probability < 1) << dropout.probability;
  if (dropout.probability == 0) return;
  TANDEM_CHECK(dropout.row_index.dtype == DType::I64 && dropout.row_index.is_dense())
      << NameOf(dropout.row_index.dtype);
  TANDEM_CHECK_EQ(dropout.row_index.num_elements(), x.shape.num_rows());
}

void CheckResidual(const ResidualForward& residual, const ArrayView& x, const ArrayView& output) {
  if (residual.y.empty()) return;
  CheckLike(residual.y, x, output.dtype);
  CheckLike(residual.sum, x, x.dtype);
  CheckDropout(residual.dropout, x);
}

void CheckResidual(const ResidualBackward& residual, const ArrayView& x,
                   const ArrayView& grad_output) {
  if (!residual.grad_sum.empty()) CheckLike(residual.grad_sum, x, x.dtype);
  if (residual.grad_y.empty()) return;
  CheckLike(residual.grad_y, x, grad_output.dtype);
  CheckDropout(residual.dropout, x);
}

// The residual's bytes of one fused kernel on a device. On a CPU these passes have spans of their
// own.
double BytesOf(const ResidualForward& residual, const Stream& stream) {
  return stream.on_cuda() ? static_cast<double>(residual.y.num_bytes() + residual.sum.num_bytes())
                          : 0;
}
double BytesOf(const ResidualBackward& residual, const Stream& stream) {
  return stream.on_cuda()
             ? static_cast<double>(residual.grad_sum.num_bytes() + residual.grad_y.num_bytes())
             : 0;
}

// Returns the array to normalise: x, or the residual's sum, which this function forms.
ArrayView FormSum(const ArrayView& x, const ResidualForward& residual, Stream& stream) {
  const auto& [y, sum, dropout] = residual;
  if (y.empty()) return x;
  ArrayView dropped = y;
  std::shared_ptr<Buffer> memory;
  if (dropout.probability > 0) {
    if (y.dtype == sum.dtype) {
      dropped = sum;
    } else {
      memory = Buffer::Allocate(y.num_bytes());
      dropped = ArrayView(memory->data(), y.dtype, y.shape);
    }
    Dropout({.x = y,
             .output = dropped,
             .row_index = dropout.row_index,
             .probability = dropout.probability,
             .key = dropout.key,
             .step = dropout.step,
             .mask = dropout.mask},
            stream);
  }
  Add(sum, x, dropped, stream);
  return sum;
}

void FinishGradients(const ArrayView& grad_input, const ResidualBackward& residual,
                     Stream& stream) {
  const auto& [grad_sum, grad_y, dropout] = residual;
  if (!grad_sum.empty()) Add(grad_input, grad_sum, grad_input, stream);
  if (grad_y.empty()) return;
  const bool cast = grad_y.dtype != grad_input.dtype;
  if (cast) Cast(grad_y, grad_input, stream);
  if (dropout.probability > 0) {
    DropoutBackward({.grad_output = cast ? grad_y : grad_input,
                     .grad_input = grad_y,
                     .mask = dropout.mask,
                     .probability = dropout.probability},
                    stream);
  } else if (!cast) {
    Copy(grad_y, grad_input, stream);
  }
}

}  // namespace

void LayerNormForward(const LayerNormForwardArgs& args, Stream& stream) {
  CheckResidual(args.residual, args.x, args.output);
  const KernelSpan span(stream, SpanKind::NORM, "layer_norm_forward", 0,
                        BytesOf(args.x, args.output) + BytesOf(args.residual, stream));
  if (stream.on_cuda()) return cuda::LayerNormForward(args, stream);
  const ArrayView x = FormSum(args.x, args.residual, stream);
  TANDEM_CHECK(!args.mean.empty() || args.x.num_elements() == 0);
  NormForward(x, args.gamma, args.beta, args.output, args.mean, args.inverse, args.epsilon, stream);
}

void LayerNormBackward(const LayerNormBackwardArgs& args, Stream& stream) {
  CheckResidual(args.residual, args.x, args.grad_output);
  const KernelSpan span(
      stream, SpanKind::NORM, "layer_norm_backward", 0,
      BytesOf(args.x, args.grad_output, args.grad_input) + BytesOf(args.residual, stream));
  if (stream.on_cuda()) return cuda::LayerNormBackward(args, stream);
  TANDEM_CHECK(!args.mean.empty() || args.x.num_elements() == 0);
  NormBackward(args, stream);
  FinishGradients(args.grad_input, args.residual, stream);
}

void RmsNormForward(const RmsNormForwardArgs& args, Stream& stream) {
  CheckResidual(args.residual, args.x, args.output);
  const KernelSpan span(stream, SpanKind::NORM, "rms_norm_forward", 0,
                        BytesOf(args.x, args.output) + BytesOf(args.residual, stream));
  if (stream.on_cuda()) return cuda::RmsNormForward(args, stream);
  const ArrayView x = FormSum(args.x, args.residual, stream);
  NormForward(x, args.gamma, {}, args.output, {}, args.inverse, args.epsilon, stream);
}

void RmsNormBackward(const RmsNormBackwardArgs& args, Stream& stream) {
  CheckResidual(args.residual, args.x, args.grad_output);
  const KernelSpan span(
      stream, SpanKind::NORM, "rms_norm_backward", 0,
      BytesOf(args.x, args.grad_output, args.grad_input) + BytesOf(args.residual, stream));
  if (stream.on_cuda()) return cuda::RmsNormBackward(args, stream);
  NormBackward({.grad_output = args.grad_output,
                .x = args.x,
                .gamma = args.gamma,
                .mean = {},
                .inverse = args.inverse,
                .grad_input = args.grad_input,
                .grad_gamma = args.grad_gamma,
                .grad_beta = {}},
               stream);
  FinishGradients(args.grad_input, args.residual, stream);
}

}  // namespace tandem::kernels
