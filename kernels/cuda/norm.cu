#include "kernels/cuda/device/dropout_bits.cuh"
#include "kernels/cuda/device/row.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/norm.h"

namespace tandem::kernels::cuda {

namespace {

// A thread of such a large block has at most 128 registers. Its packs of a row and, in the backward
// pass, its column sums fit. The kernels ask for one block per multiprocessor: otherwise the
// compiler would save registers for more blocks, and spill.
constexpr int kMaxThreads = 512;

// Layer norm and RMS norm are one computation: RMS norm takes the mean as 0 and has no beta. x and
// its gradient are stored as S, the output and its gradient as O. Null: `mean` for RMS norm, and
// gamma and beta if absent.
template <class S, class O>
struct NormArrays {
  int64_t rows, columns;
  const S* x;
  const float *gamma, *beta;
  float *mean, *inverse;
  O* output;
  const O* grad_output;
  S* grad_input;
  bool aligned;
};

// The arrays of ResidualForward and ResidualBackward. Null: row_index without dropout, and absent
// gradients.
template <class S, class O>
struct ResidualArrays {
  const O* y = nullptr;
  S* sum = nullptr;
  const S* grad_sum = nullptr;
  O* grad_y = nullptr;
  const int64_t* row_index = nullptr;
  // The initial value drops nothing.
  DropoutStream random{.folded_key = 0, .step = nullptr, .threshold = 0, .scale = 1};

  // The number of a row's first element in the random stream.
  // REQUIRES: there is dropout.
  __device__ uint64_t FirstOf(int64_t row, int64_t columns) const {
    return static_cast<uint64_t>(row_index[row]) * static_cast<uint64_t>(columns);
  }
};

// The dropout mask of a thread's elements of a row. Draws the elements of packs in registers at
// once, while the packs arrive.
template <int kPack>
class KeptElements {
 public:
  template <class S, class O>
  __device__ KeptElements(const ResidualArrays<S, O>& r, int64_t row, int64_t columns,
                          const RowPart& part)
      : random_(r.random),
        drops_(r.row_index != nullptr && part.columns != 0),
        first_(drops_ ? r.FirstOf(row, columns) : 0) {
    if (!drops_) return;
    held_ = 0;
#pragma unroll
    for (int p = 0; p < PacksHeld(kPack); ++p) {
      const int64_t column = part.first + p * part.step;
      if (column < part.columns) held_ |= (Draw(column) & kOfPack) << (p * kPack);
    }
  }

  // Bit i is set if dropout keeps element i of the pack. Takes the arguments of ForEachPack()'s
  // body.
  __device__ uint32_t Of(int64_t column, int p) const {
    if (p < PacksHeld(kPack)) return held_ >> (p * kPack);
    return drops_ ? Draw(column) : ~uint32_t{0};
  }

 private:
  static constexpr uint32_t kOfPack = (1u << kPack) - 1;

  // Packs divide rows, so one Philox block covers a whole pack.
  __device__ uint32_t Draw(int64_t column) const {
    const uint64_t element = first_ + static_cast<uint64_t>(column);
    return KeptBits(random_, element / kBlockElements) >> (element % kBlockElements);
  }

  const DropoutStream random_;
  const bool drops_;
  const uint64_t first_;
  uint32_t held_ = ~uint32_t{0};
};

// values[i] = from[column + i], or `absent` if `from` is null.
template <int kPack>
__device__ inline void ReadAffine(const float* from, int64_t column, bool aligned, float absent,
                                  float (&values)[kPack]) {
  constexpr int kPart = kPack < 4 ? kPack : 4;
  if (from == nullptr) {
    for (int i = 0; i < kPack; ++i) values[i] = absent;
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; i += kPart) {
    const Pack<float, kPart> part = ReadPack<kPart>(from + column + i, aligned);
    for (int j = 0; j < kPart; ++j) values[i + j] = part.values[j];
  }
}

// x becomes x + Drop(y), and the sum is also written. Loads all of y before it stores the first
// sum.
template <int kPack, class S, class O>
__device__ inline void AddResidual(const ResidualArrays<S, O>& r, int64_t row, int64_t columns,
                                   const RowPart& part, bool aligned, HeldRow<S, kPack>& x) {
  const HeldRow<O, kPack> y(r.y + row * columns, part, aligned);
  S* const sums = r.sum + row * columns;
  const KeptElements<kPack> kept_elements(r, row, columns, part);
  ForEachPack<PacksHeld(kPack)>(part, [&](int64_t column, int p) {
    Pack<S, kPack> sum = x.At(column, p);
    const Pack<O, kPack> added = y.At(column, p);
    const uint32_t kept = kept_elements.Of(column, p);
    for (int i = 0; i < kPack; ++i) {
      const float old = Load(sum.values[i]);
      sum.values[i] =
          Store<S>((kept >> i & 1) != 0 ? fmaf(Load(added.values[i]), r.random.scale, old) : old);
    }
    x.Hold(p, sum);
    WritePack(sum, sums + column, aligned);
  });
  x.ReadRestFrom(sums);
}

template <class S, class O, int kPack, int kLanes, bool kResidual>
__global__ void __launch_bounds__(kLanes == 0 ? kMaxThreads : kTeamsThreads, 1)
    NormForwardKernel(NormArrays<S, O> a, ResidualArrays<S, O> residual, float epsilon) {
  using Row = Team<kLanes>;
  constexpr int kPacks = PacksHeld(kPack);
  __shared__ float room[kWarp];
  const float count = static_cast<float>(a.columns);
  const int64_t step = int64_t{gridDim.x} * Row::PerBlock();
  for (int64_t first = int64_t{blockIdx.x} * Row::PerBlock(); first < a.rows; first += step) {
    const int64_t row = first + Row::InBlock();
    const RowPart part = Row::template Part<kPack>(row < a.rows ? a.columns : 0);
    HeldRow<S, kPack> x(a.x + row * a.columns, part, a.aligned);
    if constexpr (kResidual) AddResidual(residual, row, a.columns, part, a.aligned, x);
    const auto sum_of = [&](const auto& term) {
      float sum = 0;
      ForEachPack<kPacks>(part, [&](int64_t column, int p) {
        const Pack<S, kPack> pack = x.At(column, p);
        for (int i = 0; i < kPack; ++i) sum += term(Load(pack.values[i]));
      });
      return Row::Sum(sum, room);
    };
    const float mean = a.mean == nullptr ? 0.0f : sum_of([](float v) { return v; }) / count;
    const float variance = sum_of([mean](float v) { return (v - mean) * (v - mean); }) / count;
    const float inverse = 1.0f / sqrtf(variance + epsilon);
    if (Row::Rank() == 0 && row < a.rows) {
      a.inverse[row] = inverse;
      if (a.mean != nullptr) a.mean[row] = mean;
    }
    ForEachPack<kPacks>(part, [&](int64_t column, int p) {
      float gamma[kPack], beta[kPack];
      ReadAffine(a.gamma, column, a.aligned, 1.0f, gamma);
      ReadAffine(a.beta, column, a.aligned, 0.0f, beta);
      const Pack<S, kPack> pack = x.At(column, p);
      Pack<O, kPack> result;
      for (int i = 0; i < kPack; ++i)
        result.values[i] = Store<O>((Load(pack.values[i]) - mean) * inverse * gamma[i] + beta[i]);
      WritePack(result, a.output + row * a.columns + column, a.aligned);
    });
  }
}

// A thread's sums over its block's rows, per column: grad_output h and, for layer norm,
// grad_output. Packs held in registers are summed in registers. Other columns of a wider row, which
// this thread owns, are summed directly in `block_sums` [kSums, columns].
template <int kSums, int kPack>
struct ColumnSums {
  static constexpr int kPacks = PacksHeld(kPack);
  float held[kSums][kPacks][kPack] = {};

  __device__ void Add(int s, int p, const float (&values)[kPack], float* at, bool first) {
    if (p < kPacks) {
      for (int i = 0; i < kPack; ++i) held[s][p][i] += values[i];
    } else if (at != nullptr) {
      for (int i = 0; i < kPack; ++i) at[i] = first ? values[i] : at[i] + values[i];
    }
  }
  __device__ void Put(int s, const RowPart& part, float* to) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t column = part.first + p * part.step;
      for (int i = 0; i < kPack && column < part.columns; ++i) to[column + i] = held[s][p][i];
    }
  }
};

// Writes the sums of a block's teams, in order, to block_sums [kSums, columns].
template <int kLanes, int kSums, int kPack>
__device__ inline void PutBlockSums(const ColumnSums<kSums, kPack>& sums, int64_t columns,
                                    float* block_sums) {
  using Row = Team<kLanes>;
  const RowPart part = Row::template Part<kPack>(columns);
  for (int s = 0; s < kSums; ++s) {
    float* to = block_sums + s * columns;
    if constexpr (kLanes == 0) {
      sums.Put(s, part, to);
    } else {
      float* teams = SharedMemory<float>();
      sums.Put(s, part, teams + Row::InBlock() * columns);
      __syncthreads();
      for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
        float sum = teams[c];
        for (int t = 1; t < Row::PerBlock(); ++t) sum += teams[t * columns + c];
        to[c] = sum;
      }
      __syncthreads();
    }
  }
}

// With h = (x - mean) inverse and g = grad_output gamma:
// grad_input = inverse (g - mean(g) - h mean(g h)). The middle term is there if kCentred.
// kResidual adds the gradient of the sum's other uses. Block b handles rows_per_block rows and
// writes their sums to partials [blocks, kSums, columns], unless null.
template <class S, class O, int kPack, int kLanes, bool kCentred, bool kResidual>
__global__ void __launch_bounds__(kLanes == 0 ? kMaxThreads : kTeamsThreads, 1)
    NormBackwardKernel(NormArrays<S, O> a, ResidualArrays<S, O> residual, int64_t rows_per_block,
                       float* partials) {
  using Row = Team<kLanes>;
  constexpr int kPacks = PacksHeld(kPack), kSums = kCentred ? 2 : 1;
  __shared__ float room[kWarp];
  const float count = static_cast<float>(a.columns);
  float* block_sums =
      partials == nullptr ? nullptr : partials + int64_t{blockIdx.x} * kSums * a.columns;
  const int64_t begin = int64_t{blockIdx.x} * rows_per_block,
                end = std::min(a.rows, begin + rows_per_block);
  ColumnSums<kSums, kPack> sums;
  for (int64_t first = begin; first < end; first += Row::PerBlock()) {
    const int64_t row = first + Row::InBlock();
    const RowPart part = Row::template Part<kPack>(row < end ? a.columns : 0);
    const HeldRow<S, kPack> x(a.x + row * a.columns, part, a.aligned);
    const HeldRow<O, kPack> grad(a.grad_output + row * a.columns, part, a.aligned);
    const bool has_others = kResidual && residual.grad_sum != nullptr;
    const HeldRow<S, kPack> others((has_others ? residual.grad_sum : a.x) + row * a.columns,
                                   {part.first, part.step, has_others ? part.columns : 0},
                                   a.aligned);
    const KeptElements<kPack> kept_elements(residual, row, a.columns, kResidual ? part : RowPart{});
    const float mean = kCentred && row < end ? a.mean[row] : 0.0f,
                inverse = row < end ? a.inverse[row] : 0.0f;
    float sum_g = 0, sum_gh = 0;
    ForEachPack<kPacks>(part, [&](int64_t column, int p) {
      float gamma[kPack], dy[kPack], dy_h[kPack];
      ReadAffine(a.gamma, column, a.aligned, 1.0f, gamma);
      const Pack<S, kPack> xs = x.At(column, p);
      const Pack<O, kPack> grads = grad.At(column, p);
      for (int i = 0; i < kPack; ++i) {
        dy[i] = Load(grads.values[i]);
        dy_h[i] = dy[i] * ((Load(xs.values[i]) - mean) * inverse);
        sum_g += dy[i] * gamma[i];
        sum_gh += dy_h[i] * gamma[i];
      }
      float* at = block_sums == nullptr ? nullptr : block_sums + column;
      sums.Add(0, p, dy_h, at, first == begin);
      if constexpr (kCentred)
        sums.Add(1, p, dy, at == nullptr ? nullptr : at + a.columns, first == begin);
    });
    const float mean_g = kCentred ? Row::Sum(sum_g, room) / count : 0.0f,
                mean_gh = Row::Sum(sum_gh, room) / count;
    ForEachPack<kPacks>(part, [&](int64_t column, int p) {
      float gamma[kPack];
      ReadAffine(a.gamma, column, a.aligned, 1.0f, gamma);
      const Pack<S, kPack> xs = x.At(column, p);
      const Pack<O, kPack> grads = grad.At(column, p);
      float values[kPack];
      for (int i = 0; i < kPack; ++i) {
        const float h = (Load(xs.values[i]) - mean) * inverse, g = Load(grads.values[i]) * gamma[i];
        values[i] = inverse * ((g - mean_g) - h * mean_gh);
      }
      if (has_others) {
        const Pack<S, kPack> other = others.At(column, p);
        for (int i = 0; i < kPack; ++i) values[i] += Load(other.values[i]);
      }
      Pack<S, kPack> result;
      for (int i = 0; i < kPack; ++i) result.values[i] = Store<S>(values[i]);
      WritePack(result, a.grad_input + row * a.columns + column, a.aligned);
      if constexpr (kResidual) {
        if (residual.grad_y == nullptr) return;
        const uint32_t kept = kept_elements.Of(column, p);
        Pack<O, kPack> result_y;
        for (int i = 0; i < kPack; ++i) {
          result_y.values[i] =
              Store<O>(KeepOrZero((kept >> i & 1) != 0, values[i], residual.random.scale));
        }
        WritePack(result_y, residual.grad_y + row * a.columns + column, a.aligned);
      }
    });
  }
  if (block_sums != nullptr) PutBlockSums<kLanes>(sums, a.columns, block_sums);
}

// Computes grad_gamma and grad_beta, each unless null: the sums over blocks of partials [blocks,
// width], whose first `columns` belong to gamma. One warp per group of neighbouring blocks, one
// lane per column.
constexpr int kGroups = 16;
__global__ void __launch_bounds__(kGroups* kWarp)
    AddPartialsKernel(const float* partials, int64_t blocks, int64_t columns, int64_t width,
                      float* grad_gamma, float* grad_beta) {
  __shared__ float sums[kGroups][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            group = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane, per_group = CeilDiv(blocks, kGroups);
  const int64_t begin = group * per_group, end = std::min(blocks, begin + per_group);
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int64_t b = begin; b < end; ++b) sum += partials[b * width + column];
  }
  sums[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= width) return;
  for (int g = 1; g < kGroups; ++g) sum += sums[g][lane];
  float* to = column < columns ? grad_gamma : grad_beta;
  if (to != nullptr) to[column < columns ? column : column - columns] = sum;
}

template <class T>
T* Required(const ArrayView& view, int64_t count) {
  TANDEM_CHECK_EQ(view.num_elements(), count);
  TANDEM_CHECK(view.is_dense()) << view.shape;
  return view.as<T>();
}
template <class T>
T* OrNull(const ArrayView& view, int64_t count) {
  return view.empty() ? nullptr : Required<T>(view, count);
}

// Calls body(S{}, O{}) with the storage types of x and of the output (or its gradient).
template <class Body>
void WithNormTypes(DType x, DType output, const Body& body) {
  if (x == DType::F32 && output == DType::BF16) return body(float{}, BFloat16{});
  TANDEM_CHECK(x == output) << NameOf(x) << " and " << NameOf(output);
  WithDeviceType(x, [&](auto zero) { body(zero, zero); });
}

template <class S, class O>
void SetDropout(ResidualArrays<S, O>& arrays, const ResidualDropout& dropout, int64_t rows,
                Stream& stream) {
  if (dropout.probability == 0) return;
  arrays.random = DropoutStreamOf(dropout.key, dropout.step, dropout.probability, stream);
  arrays.row_index = Required<const int64_t>(dropout.row_index, rows);
}

void NormForward(const char* name, const LayerNormForwardArgs& args, Stream& stream) {
  const int64_t rows = args.x.shape.num_rows(), columns = args.x.shape[-1];
  WithNormTypes(args.x.dtype, args.output.dtype, [&](auto s, auto o) {
    using S = decltype(s);
    using O = decltype(o);
    const NormArrays<S, O> arrays{
        .rows = rows,
        .columns = columns,
        .x = Required<S>(args.x, rows * columns),
        .gamma = OrNull<const float>(args.gamma, columns),
        .beta = OrNull<const float>(args.beta, columns),
        .mean = OrNull<float>(args.mean, rows),
        .inverse = Required<float>(args.inverse, rows),
        .output = Required<O>(args.output, rows * columns),
        .grad_output = nullptr,
        .grad_input = nullptr,
        .aligned = AllTakePacks(args.x, args.gamma, args.beta, args.output, args.residual.y,
                                args.residual.sum)};
    const RowPlan plan = PlanRows(columns, kPackOf<S>, kMaxThreads);
    const auto launch = [&](auto with_residual, const ResidualArrays<S, O>& residual) {
      WithPlan<S>(plan, [&](auto pack, auto lanes) {
        Launch(stream, {name, args.x}, {dim3(RowBlocks(plan, rows)), dim3(plan.threads)},
               NormForwardKernel<S, O, decltype(pack)::value, decltype(lanes)::value,
                                 decltype(with_residual)::value>,
               arrays, residual, args.epsilon);
      });
    };
    if (args.residual.y.empty()) return launch(std::false_type(), {});
    ResidualArrays<S, O> residual;
    residual.y = Required<const O>(args.residual.y, rows * columns);
    residual.sum = Required<S>(args.residual.sum, rows * columns);
    SetDropout(residual, args.residual.dropout, rows, stream);
    launch(std::true_type(), residual);
  });
}

template <bool kCentred>
void NormBackward(const char* name, const LayerNormBackwardArgs& args, Stream& stream) {
  const int64_t rows = args.x.shape.num_rows(), columns = args.x.shape[-1],
                width = (kCentred ? 2 : 1) * columns;
  const RowPlan plan = PlanRows(
      columns, args.x.dtype == DType::F32 ? kPackOf<float> : kPackOf<BFloat16>, kMaxThreads);
  const PartialPlan partial = PlanPartials(plan, columns == 0 ? 0 : rows);
  const bool with_sums = !args.grad_gamma.empty() || !args.grad_beta.empty();
  const auto scratch = DeviceScratch(
      stream, with_sums ? static_cast<size_t>(partial.blocks * width) * sizeof(float) : 0);
  float* partials = with_sums ? static_cast<float*>(scratch->data()) : nullptr;
  WithNormTypes(args.x.dtype, args.grad_output.dtype, [&](auto s, auto o) {
    using S = decltype(s);
    using O = decltype(o);
    const NormArrays<S, O> arrays{
        .rows = rows,
        .columns = columns,
        .x = Required<S>(args.x, rows * columns),
        .gamma = OrNull<const float>(args.gamma, columns),
        .beta = nullptr,
        .mean = OrNull<float>(args.mean, rows),
        .inverse = Required<float>(args.inverse, rows),
        .output = nullptr,
        .grad_output = Required<O>(args.grad_output, rows * columns),
        .grad_input = Required<S>(args.grad_input, rows * columns),
        .aligned = AllTakePacks(args.x, args.gamma, args.grad_output, args.grad_input,
                                args.residual.grad_sum, args.residual.grad_y)};
    const size_t shared_bytes =
        plan.lanes == 0 ? 0 : static_cast<size_t>(plan.rows_per_block * columns) * sizeof(float);
    const auto launch = [&](auto with_residual, const ResidualArrays<S, O>& residual) {
      WithPlan<S>(plan, [&](auto pack, auto lanes) {
        Launch(stream, {name, args.x}, {dim3(partial.blocks), dim3(plan.threads), shared_bytes},
               NormBackwardKernel<S, O, decltype(pack)::value, decltype(lanes)::value, kCentred,
                                  decltype(with_residual)::value>,
               arrays, residual, partial.rows_per_block, partials);
      });
    };
    if (args.residual.grad_sum.empty() && args.residual.grad_y.empty())
      return launch(std::false_type(), {});
    ResidualArrays<S, O> residual;
    residual.grad_sum = OrNull<const S>(args.residual.grad_sum, rows * columns);
    residual.grad_y = OrNull<O>(args.residual.grad_y, rows * columns);
    SetDropout(residual, args.residual.dropout, rows, stream);
    launch(std::true_type(), residual);
  });
  if (!with_sums) return;
  Launch(stream, {name, args.x}, {dim3(CeilDiv(width, kWarp)), dim3(kGroups * kWarp)},
         AddPartialsKernel, partials, partial.blocks, columns, width,
         OrNull<float>(args.grad_gamma, columns), OrNull<float>(args.grad_beta, columns));
}

}  // namespace

void LayerNormForward(const LayerNormForwardArgs& args, Stream& stream) {
  TANDEM_CHECK(!args.mean.empty() || args.x.num_elements() == 0);
  NormForward("layer_norm_forward", args, stream);
}

void LayerNormBackward(const LayerNormBackwardArgs& args, Stream& stream) {
  TANDEM_CHECK(!args.mean.empty() || args.x.num_elements() == 0);
  NormBackward<true>("layer_norm_backward", args, stream);
}

void RmsNormForward(const RmsNormForwardArgs& args, Stream& stream) {
  NormForward("rms_norm_forward",
              {.x = args.x,
               .gamma = args.gamma,
               .beta = {},
               .output = args.output,
               .mean = {},
               .inverse = args.inverse,
               .epsilon = args.epsilon,
               .residual = args.residual},
              stream);
}

void RmsNormBackward(const RmsNormBackwardArgs& args, Stream& stream) {
  NormBackward<false>("rms_norm_backward",
                      {.grad_output = args.grad_output,
                       .x = args.x,
                       .gamma = args.gamma,
                       .mean = {},
                       .inverse = args.inverse,
                       .grad_input = args.grad_input,
                       .grad_gamma = args.grad_gamma,
                       .grad_beta = {},
                       .residual = args.residual},
                      stream);
}

}  // namespace tandem::kernels::cuda
