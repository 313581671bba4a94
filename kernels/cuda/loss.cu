#include "kernels/cuda/device/map.cuh"
#include "kernels/cuda/device/row.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/loss_plan.h"
#include "kernels/loss.h"
#include "kernels/memory/kernel_span.h"

namespace tandem::kernels::cuda {

namespace {

constexpr int kMaxThreads = 384, kElementThreads = 256;

// Logits are stored as S, gradients as G; both share memory if S is G. `grad` is null if only
// losses are wanted.
template <class S, class G>
struct CrossEntropyArrays {
  int64_t rows, columns;
  const S* logits;
  const int64_t* target;
  float* loss;
  G* grad;
  int64_t room_columns;
  bool aligned;
};

// Reads the logits once, as far as registers and shared memory hold them. Two blocks fill a
// multiprocessor's shared memory, so few rows are in work at a time. Second reads then come from
// L2.
template <class S, class G, int kPack, int kLanes>
__global__ void __launch_bounds__(kLanes == 0 ? kMaxThreads : kTeamsThreads, kLanes == 0 ? 2 : 4)
    CrossEntropyKernel(CrossEntropyArrays<S, G> a) {
  using Row = Team<kLanes>;
  __shared__ float room[kWarp];
  const int64_t step = int64_t{gridDim.x} * Row::PerBlock();
  for (int64_t first = int64_t{blockIdx.x} * Row::PerBlock(); first < a.rows; first += step) {
    const int64_t row = first + Row::InBlock();
    const RowPart part = Row::template Part<kPack>(row < a.rows ? a.columns : 0);
    const S* x = a.logits + row * a.columns;
    const HeldRow<S, kPack> held(x, part, a.aligned, SharedMemory<S>(), a.room_columns);
    // The thread that owns the target's column; no other thread reads or writes the column.
    const int64_t target = row < a.rows ? a.target[row] : 0;
    DeviceCheck(target >= 0 && target < a.columns);
    const bool has_target = row < a.rows && target / kPack % Row::Size() == Row::Rank();
    const float target_logit = has_target ? Load(x[target]) : 0.0f;
    const ExpSum total = RowExpSum<kLanes>(held, part, room);
    if (has_target) a.loss[row] = logf(total.sum) + (total.max - target_logit);
    if (a.grad == nullptr) continue;
    G* grad = a.grad + row * a.columns;
    const float inverse = 1.0f / total.sum;
    ForEachPack<PacksHeld(kPack)>(part, [&](int64_t column, int p) {
      const Pack<S, kPack> logits = held.At(column, p);
      Pack<G, kPack> result;
      for (int i = 0; i < kPack; ++i)
        result.values[i] = Store<G>(ExpOf(Load(logits.values[i]) - total.max) * inverse);
      WritePack(result, grad + column, a.aligned);
    });
    if (has_target) grad[target] = Store<G>(ExpOf(target_logit - total.max) * inverse - 1.0f);
  }
}

// `grad` may be an empty view.
template <class S, class G>
void LaunchCrossEntropy(const char* name, const CrossEntropyArgs& args, Stream& stream) {
  const int64_t rows = args.logits.shape.num_rows(), columns = args.logits.shape[-1];
  const RowPlan plan = PlanRows(columns, kPackOf<S>, kMaxThreads);
  const CrossEntropyArrays<S, G> arrays{.rows = rows,
                                        .columns = columns,
                                        .logits = args.logits.as<S>(),
                                        .target = args.target.as<int64_t>(),
                                        .loss = args.loss.as<float>(),
                                        .grad = args.grad.empty() ? nullptr : args.grad.as<G>(),
                                        .room_columns = RoomColumns<S>(plan, columns),
                                        .aligned = AllTakePacks(args.logits, args.grad)};
  const Grid grid{dim3(RowBlocks(plan, rows)), dim3(plan.threads),
                  static_cast<size_t>(arrays.room_columns) * sizeof(S)};
  WithPlan<S>(plan, [&](auto pack, auto lanes) {
    Launch(stream, {name, args.logits}, grid,
           CrossEntropyKernel<S, G, decltype(pack)::value, decltype(lanes)::value>, arrays);
  });
}

// One pass over a row of logits, for a loss in two halves. `target` counts from the first class
// here, and may lie outside.
template <class G>
struct HalfArrays {
  int64_t rows, columns, first_class;
  const float* logits;
  const int64_t* target;
  float *log_sum, *target_logit;  // the first half's results
  const float* given;             // the second half's sums over all classes
  G* grad;                        // may be the logits' memory if G is float
  bool aligned;
};

template <class G, int kPack, int kLanes>
__global__ void __launch_bounds__(kLanes == 0 ? kMaxThreads : kTeamsThreads)
    LogSumsKernel(HalfArrays<G> a) {
  using Row = Team<kLanes>;
  __shared__ float room[kWarp];
  const int64_t step = int64_t{gridDim.x} * Row::PerBlock();
  for (int64_t first = int64_t{blockIdx.x} * Row::PerBlock(); first < a.rows; first += step) {
    const int64_t row = first + Row::InBlock();
    const RowPart part = Row::template Part<kPack>(row < a.rows ? a.columns : 0);
    const float* x = a.logits + row * a.columns;
    const HeldRow<float, kPack> held(x, part, a.aligned);
    const ExpSum total = RowExpSum<kLanes>(held, part, room);
    if (row >= a.rows || Row::Rank() != 0) continue;
    const int64_t target = a.target[row] - a.first_class;
    a.log_sum[row] = logf(total.sum) + total.max;
    a.target_logit[row] = target >= 0 && target < a.columns ? x[target] : 0.0f;
  }
}

template <class G, int kPack, int kLanes>
__global__ void __launch_bounds__(kLanes == 0 ? kMaxThreads : kTeamsThreads)
    GradientsKernel(HalfArrays<G> a) {
  using Row = Team<kLanes>;
  const int64_t step = int64_t{gridDim.x} * Row::PerBlock();
  for (int64_t first = int64_t{blockIdx.x} * Row::PerBlock(); first < a.rows; first += step) {
    const int64_t row = first + Row::InBlock();
    if (row >= a.rows) continue;
    const RowPart part = Row::template Part<kPack>(a.columns);
    const float* x = a.logits + row * a.columns;
    G* grad = a.grad + row * a.columns;
    const float log_sum = a.given[row];
    const int64_t target = a.target[row] - a.first_class;
    for (int64_t column = part.first; column < part.columns; column += part.step) {
      const Pack<float, kPack> logits = ReadPack<kPack>(x + column, a.aligned);
      Pack<G, kPack> result;
      for (int i = 0; i < kPack; ++i) {
        const float probability = ExpOf(logits.values[i] - log_sum);
        result.values[i] = Store<G>(column + i == target ? probability - 1.0f : probability);
      }
      WritePack(result, grad + column, a.aligned);
    }
  }
}

// max(x, 0) - x label + log(1 + exp(-|x|)) combines both logarithms of the sigmoid without
// overflow.
__device__ inline void BinaryCrossEntropyOf(float x, float label, float* loss, float* grad) {
  const float e = ExpOf(-fabsf(x));
  *loss = (fmaxf(x, 0.0f) - x * label) + std::log1p(e);
  *grad = (x < 0 ? e : 1.0f) / (1.0f + e) - label;
}

// One thread per pack; the last pack may be incomplete.
__global__ void __launch_bounds__(kElementThreads)
    BinaryCrossEntropyKernel(const float* logits, const float* label, float* loss, float* grad,
                             int64_t count, bool aligned) {
  constexpr int kPack = kPackOf<float>;
  using Floats = Pack<float, kPack>;
  const int64_t step = int64_t{gridDim.x} * kElementThreads * kPack;
  for (int64_t begin = (int64_t{blockIdx.x} * kElementThreads + threadIdx.x) * kPack; begin < count;
       begin += step) {
    if (aligned && begin + kPack <= count) {
      const Floats x = Floats::At(logits + begin), y = Floats::At(label + begin);
      Floats losses, grads;
      for (int i = 0; i < kPack; ++i)
        BinaryCrossEntropyOf(x.values[i], y.values[i], &losses.values[i], &grads.values[i]);
      losses.Put(loss + begin);
      if (grad != nullptr) grads.Put(grad + begin);
    } else {
      for (int64_t i = begin; i < count && i < begin + kPack; ++i) {
        float element_grad;
        BinaryCrossEntropyOf(logits[i], label[i], loss + i, &element_grad);
        if (grad != nullptr) grad[i] = element_grad;
      }
    }
  }
}

// `count` rows of a dense view, from row `first` on.
ArrayView Rows(const ArrayView& view, int64_t first, int64_t count) {
  Shape shape = view.shape;
  shape[0] = count;
  const size_t row_bytes =
      view.shape[0] == 0 ? 0 : view.num_bytes() / static_cast<size_t>(view.shape[0]);
  return ArrayView(static_cast<char*>(view.data) + static_cast<size_t>(first) * row_bytes,
                   view.dtype, shape);
}

// A half of the loss over classes of which some are here (LinearClassesArgs).
struct Half {
  int64_t first_class = 0;
  ArrayView log_sum = {}, target_logit = {};  // results of the first half
  ArrayView given = {};                       // the second half's sums over all classes
};

// Processes some rows at a time: their logits in f32, losses, gradients, and the products of the
// gradients. Gradients replace the logits, or for bf16 lie beside them. bf16 logits would have 8
// bits only, not enough for losses.
template <class T>
class LinearCrossEntropyRun {
 public:
  // The whole loss, or `half`.
  LinearCrossEntropyRun(const LinearCrossEntropyArgs& args, int64_t chunk_rows, Stream& stream,
                        const Half* half = nullptr)
      : args_(args),
        half_(half),
        stream_(stream),
        rows_(args.hidden.shape[0]),
        classes_(args.weight.shape[args.weight_is_table ? 0 : 1]),
        chunk_rows_(std::min(rows_, chunk_rows)),
        with_gradients_(!args.grad_hidden.empty() || !args.grad_weight.empty() ||
                        !args.grad_bias.empty()),
        logits_(DeviceScratch(stream, static_cast<size_t>(chunk_rows_ * classes_) * sizeof(float))),
        grads_(with_gradients_ && !kInPlace
                   ? DeviceScratch(stream, static_cast<size_t>(chunk_rows_ * classes_) * sizeof(T))
                   : logits_) {}

  void Run() {
    for (int64_t begin = 0; begin < rows_; begin += chunk_rows_)
      AddChunk(begin, std::min(chunk_rows_, rows_ - begin));
  }

 private:
  static constexpr bool kInPlace = std::is_same_v<T, float>;

  void AddChunk(int64_t begin, int64_t rows) {
    const bool table = args_.weight_is_table, later = begin > 0;
    const ArrayView hidden = Rows(args_.hidden, begin, rows),
                    logits(logits_->data(), DType::F32, {rows, classes_});
    const ArrayView grads =
        with_gradients_ ? ArrayView(grads_->data(), DTypeOf<T>(), {rows, classes_}) : ArrayView();
    Multiply(
        {.a = hidden, .b = args_.weight, .c = logits, .transpose_b = table, .bias = args_.bias});
    if (half_ == nullptr) {
      Losses({.logits = logits,
              .target = Rows(args_.target, begin, rows),
              .loss = Rows(args_.loss, begin, rows),
              .grad = grads});
    } else {
      HalfOfLosses(logits, grads, begin, rows);
    }
    if (!args_.grad_hidden.empty()) {
      Multiply({.a = grads,
                .b = args_.weight,
                .c = Rows(args_.grad_hidden, begin, rows),
                .transpose_b = !table});
    }
    if (!args_.grad_weight.empty()) {
      Multiply({.a = table ? grads : hidden,
                .b = table ? hidden : grads,
                .c = args_.grad_weight,
                .transpose_a = true,
                .accumulate = later});
    }
    if (!args_.grad_bias.empty()) ColumnSum(args_.grad_bias, grads, later, stream_);
  }

  // Multiplies in a span with the CPU version's name.
  void Multiply(const GemmArgs& gemm) {
    const int64_t depth = gemm.a.num_elements() / std::max<int64_t>(1, gemm.c.shape[0]);
    const double flops = 2.0 * static_cast<double>(gemm.c.num_elements() * depth);
    const KernelSpan span(stream_, SpanKind::GEMM, "linear_cross_entropy", flops);
    cuda::Gemm(gemm, stream_);
  }
  void Losses(const CrossEntropyArgs& losses) {
    const KernelSpan span(stream_, SpanKind::LOSS, "linear_cross_entropy", 0,
                          static_cast<double>(losses.logits.num_bytes() + losses.grad.num_bytes()));
    LaunchCrossEntropy<float, T>("linear_cross_entropy", losses, stream_);
  }
  // The statistics of rows begin .. begin + rows - 1, or the gradients of their logits.
  void HalfOfLosses(const ArrayView& logits, const ArrayView& grads, int64_t begin, int64_t rows) {
    const KernelSpan span(stream_, SpanKind::LOSS, "linear_cross_entropy", 0,
                          static_cast<double>(logits.num_bytes() + grads.num_bytes()));
    const auto floats = [&](const ArrayView& view) {
      return view.empty() ? nullptr : view.as<float>() + begin;
    };
    const RowPlan plan = PlanRows(classes_, kPackOf<float>, kMaxThreads);
    const HalfArrays<T> arrays{.rows = rows,
                               .columns = classes_,
                               .first_class = half_->first_class,
                               .logits = logits.as<float>(),
                               .target = args_.target.as<int64_t>() + begin,
                               .log_sum = floats(half_->log_sum),
                               .target_logit = floats(half_->target_logit),
                               .given = floats(half_->given),
                               .grad = grads.empty() ? nullptr : grads.as<T>(),
                               .aligned = AllTakePacks(logits, grads)};
    const Grid grid{dim3(RowBlocks(plan, rows)), dim3(plan.threads)};
    WithPlan<float>(plan, [&](auto pack, auto lanes) {
      constexpr int kPack = decltype(pack)::value, kLanes = decltype(lanes)::value;
      Launch(stream_, {"linear_cross_entropy", logits}, grid,
             half_->given.empty() ? LogSumsKernel<T, kPack, kLanes>
                                  : GradientsKernel<T, kPack, kLanes>,
             arrays);
    });
  }

  const LinearCrossEntropyArgs& args_;
  const Half* const half_;
  Stream& stream_;
  const int64_t rows_, classes_, chunk_rows_;
  const bool with_gradients_;
  const std::shared_ptr<Buffer> logits_, grads_;  // for one chunk
};

void RunInChunks(const LinearCrossEntropyArgs& args, int64_t chunk_rows, Stream& stream,
                 const Half* half) {
  if (args.hidden.shape[0] == 0) {  // sums of nothing are 0
    for (const ArrayView& sum : {args.grad_weight, args.grad_bias}) {
      if (!sum.empty()) Fill(sum, 0, stream);
    }
    return;
  }
  WithDeviceType(args.hidden.dtype, [&](auto zero) {
    LinearCrossEntropyRun<decltype(zero)>(args, chunk_rows, stream, half).Run();
  });
}

}  // namespace

void CrossEntropy(const CrossEntropyArgs& args, Stream& stream) {
  WithDeviceType(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    LaunchCrossEntropy<T, T>("cross_entropy", args, stream);
  });
}

void BinaryCrossEntropy(const BinaryCrossEntropyArgs& args, Stream& stream) {
  const int64_t count = args.logits.num_elements();
  const int64_t blocks =
      std::min<int64_t>(CeilDiv(count, kElementThreads * kPackOf<float>), int64_t{1} << 30);
  Launch(stream, {"binary_cross_entropy", args.logits}, {dim3(blocks), dim3(kElementThreads)},
         BinaryCrossEntropyKernel, args.logits.as<float>(), args.label.as<float>(),
         args.loss.as<float>(), args.grad.empty() ? nullptr : args.grad.as<float>(), count,
         AllTakePacks(args.logits, args.label, args.loss, args.grad));
}

void LinearCrossEntropyInChunks(const LinearCrossEntropyArgs& args, int64_t chunk_rows,
                                Stream& stream) {
  RunInChunks(args, chunk_rows, stream, /*half=*/nullptr);
}

void LinearCrossEntropy(const LinearCrossEntropyArgs& args, Stream& stream) {
  const int64_t classes = args.weight.shape[args.weight_is_table ? 0 : 1];
  LinearCrossEntropyInChunks(args, CrossEntropyChunkRows(args.hidden.shape[0], classes), stream);
}

namespace {

void RunHalf(const LinearClassesArgs& args, LinearCrossEntropyArgs whole, const Half& half,
             Stream& stream) {
  whole.hidden = args.hidden;
  whole.weight = args.weight;
  whole.weight_is_table = args.weight_is_table;
  whole.bias = args.bias;
  whole.target = args.target;
  const int64_t classes = args.weight.shape[args.weight_is_table ? 0 : 1];
  RunInChunks(whole, CrossEntropyChunkRows(args.hidden.shape[0], classes), stream, &half);
}

struct ExpOfDifference {
  __device__ float operator()(float a, float b) const { return expf(a - b); }
};
struct PlusLog {
  __device__ float operator()(float a, float b) const { return a + logf(b); }
};
struct Minus {
  __device__ float operator()(float a, float b) const { return a - b; }
};

Elements<float> Floats(const ArrayView& view) { return {view.as<float>()}; }

}  // namespace

void LinearLogSums(const LinearLogSumsArgs& args, Stream& stream) {
  RunHalf(
      args, {},
      {.first_class = args.first_class, .log_sum = args.log_sum, .target_logit = args.target_logit},
      stream);
}

void LinearCrossEntropyGradients(const LinearCrossEntropyGradientsArgs& args, Stream& stream) {
  LinearCrossEntropyArgs gradients;
  gradients.grad_hidden = args.grad_hidden;
  gradients.grad_weight = args.grad_weight;
  gradients.grad_bias = args.grad_bias;
  RunHalf(args, gradients, {.first_class = args.first_class, .given = args.log_sum}, stream);
}

void RelativeExponentials(const ArrayView& output, const ArrayView& log_sum,
                          const ArrayView& largest, Stream& stream) {
  Map<float>({"relative_exponentials", output}, stream, ExpOfDifference{}, Floats(log_sum),
             Floats(largest));
}

void JoinedLosses(const JoinedLossesArgs& args, Stream& stream) {
  Map<float>({"joined_losses", args.log_sum}, stream, PlusLog{}, Floats(args.largest),
             Floats(args.exponentials));
  Map<float>({"joined_losses", args.loss}, stream, Minus{}, Floats(args.log_sum),
             Floats(args.target_logit));
}

}  // namespace tandem::kernels::cuda
