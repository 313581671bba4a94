#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/cast.h"
#include "kernels/cpu/linear_cross_entropy_reference.h"
#include "kernels/cpu/logit_blocks.h"
#include "kernels/cpu/matmul/packed_matmul.h"
#include "kernels/cpu/shared_span.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/loss.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/memory/storage.h"

// Rows are processed in chunks. A task of 128 rows computes logits and turns them into losses and
// gradients. The task multiplies the gradients with W' at once, while they are in the cache: L2 up
// to about 2,048 classes, L3 beyond (128 rows of 8,192 classes are 4 MiB). Then the chunk's
// gradients and hidden states give the chunk's part of dW. Logits and gradients lie in blocks of
// 512 columns, [block][row][column]; each block is a dense operand. All splits are functions of the
// shape.
namespace tandem::kernels {

namespace {

constexpr int64_t kTaskRows = 128, kDepthChunk = 512, kDepthQuantum = 64;
constexpr int64_t kMaxChunkRows = 1024, kMaxChunkBytes = 32 << 20;
constexpr int64_t kPackedRows = 128;  // rows of hidden states that one task transposes

// Adds the column sums of x [rows, columns] to `sums`, rows in order.
template <class T>
void AddColumnSums(const T* x, int64_t rows, int64_t columns, float* sums) {
  Vectorised([=] {
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = x + r * columns;
#pragma GCC ivdep
      for (int64_t c = 0; c < columns; ++c) sums[c] += Load(row[c]);
    }
  });
}

template <class T>
class LinearCrossEntropyRun {
 public:
  // The whole loss, or `half`.
  LinearCrossEntropyRun(const LinearCrossEntropyArgs& args, Stream& stream,
                        const LossHalf* half = nullptr)
      : args_(args),
        stream_(stream),
        half_(half),
        rows_(args.hidden.shape[0]),
        dim_(args.hidden.shape[1]),
        classes_(args.weight.shape[args.weight_is_table ? 0 : 1]),
        hidden_(args.hidden.as<T>()),
        with_gradients_(!args.grad_hidden.empty() || !args.grad_weight.empty() ||
                        !args.grad_bias.empty()),
        chunk_rows_(std::clamp(
            kMaxChunkBytes / static_cast<int64_t>(sizeof(T)) / classes_ / kTaskRows * kTaskRows,
            kTaskRows, std::clamp(RoundUp(rows_, kDepthQuantum), kTaskRows, kMaxChunkRows))) {}

  void Run() {
    TakeMemory();
    PackWeight();
    for (int64_t begin = 0; begin < rows_; begin += chunk_rows_) {
      const int64_t rows = std::min(chunk_rows_, rows_ - begin);
      LossesAndHiddenGradient(begin, rows);
      if (!args_.grad_weight.empty() || !args_.grad_bias.empty()) WeightGradient(begin, rows);
    }
  }

 private:
  static constexpr bool kF32 = std::is_same_v<T, float>;
  static const char* NameOfProducts(bool split) {
    return split ? "split_linear_cross_entropy" : "linear_cross_entropy";
  }

  int64_t num_blocks() const { return (classes_ + kBlockColumns - 1) / kBlockColumns; }
  int64_t width(int64_t block) const {
    return std::min(kBlockColumns, classes_ - block * kBlockColumns);
  }
  // The gradients of a chunk's logits.
  Blocks<T> Grads() const { return {grads_, chunk_rows_, classes_}; }

  // One scratch holds W packed, W' packed, the gradients of a chunk's logits, and a chunk's hidden
  // states transposed.
  void TakeMemory() {
    forward_size_ = PackedSize<T>(dim_, kBlockColumns, layout_);
    backward_size_ = args_.grad_hidden.empty() ? 0 : PackedSize<T>(kBlockColumns, dim_, layout_);
    const int64_t weights = num_blocks() * (forward_size_ + backward_size_);
    const int64_t grads = with_gradients_ ? Grads().size() : 0;
    const int64_t transposed =
        args_.grad_weight.empty() ? 0 : PackedSize<T>(chunk_rows_, dim_, layout_);
    memory_ = Scratch<T>(ScratchSlot::CALLER, weights + grads + transposed);
    grads_ = with_gradients_ ? memory_ + weights : nullptr;
    hidden_columns_ = memory_ + weights + grads;
    forward_.resize(static_cast<size_t>(num_blocks()));
    backward_.resize(static_cast<size_t>(num_blocks()));
  }

  void PackWeight() {
    const KernelSpan span(stream_, SpanKind::GEMM, NameOfProducts(split_));
    const T* weight = args_.weight.as<T>();
    const bool table = args_.weight_is_table;
    stream_.pool().ParallelFor(num_blocks(), [&](int64_t block) {
      const int64_t first = block * kBlockColumns, columns = width(block),
                    stride = table ? dim_ : classes_;
      const T* data = weight + first * (table ? dim_ : 1);
      T* memory = memory_ + block * forward_size_;
      forward_[static_cast<size_t>(block)] =
          Pack<T>({data, dim_, columns, stride, table}, dim_, layout_, memory, stream_);
      if (args_.grad_hidden.empty()) return;
      memory = memory_ + num_blocks() * forward_size_ + block * backward_size_;
      backward_[static_cast<size_t>(block)] =
          Pack<T>({data, columns, dim_, stride, !table}, columns, layout_, memory, stream_);
    });
  }

  void LossesAndHiddenGradient(int64_t chunk_begin, int64_t chunk_rows) {
    const double elements = static_cast<double>(chunk_rows * classes_);
    SharedSpan span(stream_.tracer(), NameOfProducts(split_),
                    (args_.grad_hidden.empty() ? 2.0 : 4.0) * elements * static_cast<double>(dim_),
                    elements * (sizeof(float) + (with_gradients_ ? sizeof(T) : 0)));
    const Blocks<T> grad = Grads();
    stream_.pool().ParallelFor((chunk_rows + kTaskRows - 1) / kTaskRows, [&](int64_t task) {
      const int64_t first = task * kTaskRows, rows = std::min(kTaskRows, chunk_rows - first);
      Blocks<float> logits{nullptr, kTaskRows, classes_};
      if constexpr (std::is_same_v<T, float>) {
        if (with_gradients_) logits = grad;
      }
      const int64_t first_logits = logits.data != nullptr ? first : 0;
      if (logits.data == nullptr) logits.data = Scratch<float>(ScratchSlot::TASK_A, logits.size());
      span.Product([&] { Logits(chunk_begin + first, rows, logits, first_logits); });
      span.Loss([&] { Losses(chunk_begin + first, rows, logits, first_logits, grad, first); });
      if (!args_.grad_hidden.empty())
        span.Product([&] { HiddenGradient(chunk_begin + first, rows, grad, first); });
    });
  }

  void Logits(int64_t first, int64_t rows, const Blocks<float>& logits,
              int64_t first_logits) const {
    const float* bias = args_.bias.empty() ? nullptr : args_.bias.as<float>();
    if constexpr (kF32) {
      if (split_) return LogitsOfPieces(first, rows, logits, first_logits, bias);
    }
    for (int64_t b = 0; b < num_blocks(); ++b) {
      MultiplyRowsHere(hidden_ + first * dim_, rows, forward_[static_cast<size_t>(b)],
                       {.data = logits.row(b, first_logits),
                        .bias = bias == nullptr ? nullptr : bias + b * kBlockColumns});
    }
  }

  // Makes the rows' pieces once for all blocks.
  void LogitsOfPieces(int64_t first, int64_t rows, const Blocks<float>& logits,
                      int64_t first_logits, const float* bias) const {
    BFloat16* pieces = Scratch<BFloat16>(ScratchSlot::LIBRARY, SplitSize(rows, dim_));
    SplitOperand(SplitSide::A, {args_.hidden.as<float>(), dim_, rows_, dim_, /*transposed=*/true},
                 first, rows, dim_, pieces);
    for (int64_t b = 0; b < num_blocks(); ++b) {
      SplitProduct(rows, width(b), dim_, pieces,
                   reinterpret_cast<const BFloat16*>(forward_[static_cast<size_t>(b)].data),
                   SplitSize(kSplitUnit, dim_),
                   {.c = logits.row(b, first_logits),
                    .c_row = width(b),
                    .bias = bias == nullptr ? nullptr : bias + b * kBlockColumns});
    }
  }

  void Losses(int64_t first, int64_t rows, const Blocks<float>& logits, int64_t first_logits,
              const Blocks<T>& grad, int64_t first_grad) const {
    const int64_t* target = args_.target.as<int64_t>() + first;
    if (half_ != nullptr) return HalfOfLosses(first, rows, logits, first_logits, grad, first_grad);
    float* loss = args_.loss.as<float>() + first;
    Vectorised([&] {
      for (int64_t r = 0; r < rows; ++r)
        loss[r] = LossRow(logits, first_logits + r, target[r], grad, first_grad + r);
    });
  }

  void HalfOfLosses(int64_t first, int64_t rows, const Blocks<float>& logits, int64_t first_logits,
                    const Blocks<T>& grad, int64_t first_grad) const {
    const int64_t* target = args_.target.as<int64_t>() + first;
    const int64_t offset = half_->first_class;
    if (half_->is_first()) {
      float* log_sum = half_->log_sum.as<float>() + first;
      float* target_logit = half_->target_logit.as<float>() + first;
      return Vectorised([&] {
        for (int64_t r = 0; r < rows; ++r) {
          const RowStatistics row = StatisticsOfRow(logits, first_logits + r, target[r] - offset);
          log_sum[r] = row.log_sum;
          target_logit[r] = row.target_logit;
        }
      });
    }
    const float* log_sum = half_->given.as<float>() + first;
    Vectorised([&] {
      for (int64_t r = 0; r < rows; ++r) {
        GradientOfRow(logits, first_logits + r, log_sum[r], target[r] - offset, grad,
                      first_grad + r);
      }
    });
  }

  void HiddenGradient(int64_t first, int64_t rows, const Blocks<T>& grad,
                      int64_t first_grad) const {
    const bool rounded = args_.grad_hidden.dtype == DType::BF16;
    float* sums = rounded ? Scratch<float>(ScratchSlot::TASK_A, rows * dim_)
                          : args_.grad_hidden.as<float>() + first * dim_;
    for (int64_t b = 0; b < num_blocks(); ++b) {
      MultiplyRowsHere(static_cast<const T*>(grad.row(b, first_grad)), rows,
                       backward_[static_cast<size_t>(b)], {.data = sums, .accumulate = b > 0});
    }
    if (!rounded) return;
    BFloat16* to = args_.grad_hidden.as<BFloat16>() + first * dim_;
    const int64_t count = rows * dim_;
    Vectorised([=] {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = ToBFloat16(sums[i]);
    });
  }

  // dW += hidden' gradients, and db += the gradients' column sums, over one chunk.
  void WeightGradient(int64_t begin, int64_t rows) {
    const bool with_weight = !args_.grad_weight.empty();
    const double flops = with_weight ? 2.0 * static_cast<double>(rows * dim_ * classes_) : 0;
    const KernelSpan span(stream_, SpanKind::GEMM, NameOfProducts(weight_split_), flops);
    if (with_weight) TransposeHidden(begin, rows);
    stream_.pool().ParallelFor(num_blocks(), [&](int64_t block) {
      const int64_t columns = width(block);
      T* grad = Grads().block(block);
      if (!args_.grad_bias.empty()) {
        float* sums = args_.grad_bias.as<float>() + block * kBlockColumns;
        if (begin == 0) std::fill_n(sums, columns, 0.0f);
        AddColumnSums(grad, rows, columns, sums);
      }
      if (!with_weight) return;
      float* sums =
          Scratch<float>(ScratchSlot::TASK_B, dim_ * RoundUp(columns, kPanelDepth<float>));
      if constexpr (kF32) {
        if (weight_split_) {
          MultiplyInPieces(grad, rows, columns, sums);
          return AddWeightGradient(sums, block, begin > 0);
        }
      }
      std::fill_n(grad + rows * columns, (RoundUp(rows, kDepthQuantum) - rows) * columns, T{});
      for (int64_t d = 0; d < rows; d += kDepthChunk) {
        const int64_t depth = RoundUp(std::min(kDepthChunk, rows - d), kDepthQuantum);
        MultiplyHere(hidden_columns_ + d * dim_, dim_,
                     PackedMatrix<T>{grad + d * columns, depth, columns},
                     {.data = sums, .accumulate = d > 0});
      }
      AddWeightGradient(sums, block, begin > 0);
    });
  }

  // sums [dim, columns] = hidden' grad, with the hidden states in pieces.
  void MultiplyInPieces(const float* grad, int64_t rows, int64_t columns, float* sums) const {
    const BFloat16* pieces = reinterpret_cast<const BFloat16*>(hidden_columns_);
    for (int64_t d = 0; d < rows; d += kDepthChunk) {
      const int64_t depth = std::min(kDepthChunk, rows - d);
      SplitProduct(dim_, pieces + SplitSize(dim_, d),
                   {grad + d * columns, depth, columns, columns, /*transposed=*/false},
                   {.c = sums, .c_row = columns, .accumulate = d > 0});
    }
  }

  // Transposes the chunk's hidden states to [depth chunk][dim][depth], or makes pieces of `dim`
  // rows per depth chunk.
  void TransposeHidden(int64_t begin, int64_t rows) {
    const int64_t parts = (dim_ + kPackedRows - 1) / kPackedRows,
                  chunks = (rows + kDepthChunk - 1) / kDepthChunk;
    stream_.pool().ParallelFor(parts * chunks, [&](int64_t task) {
      const int64_t d = task / parts * kDepthChunk, first = task % parts * kPackedRows;
      const int64_t given = std::min(kDepthChunk, rows - d), depth = RoundUp(given, kDepthQuantum);
      if constexpr (kF32) {
        if (weight_split_) {
          BFloat16* pieces = reinterpret_cast<BFloat16*>(hidden_columns_) + SplitSize(dim_, d) +
                             SplitSize(first, given);
          SplitOperand(SplitSide::A,
                       {hidden_ + (begin + d) * dim_, given, dim_, dim_, /*transposed=*/false},
                       first, std::min(kPackedRows, dim_ - first), given, pieces);
          return;
        }
      }
      PackRows(hidden_ + (begin + d) * dim_, dim_, given, first,
               std::min(kPackedRows, dim_ - first), depth,
               hidden_columns_ + d * dim_ + first * depth);
    });
  }

  // Stores or adds sums [dim, columns of the block] to their place in grad_weight.
  void AddWeightGradient(const float* sums, int64_t block, bool accumulate) const {
    const int64_t columns = width(block), first = block * kBlockColumns;
    float* to = args_.grad_weight.as<float>();
    int64_t rows = dim_, row_length = columns, stride = classes_, from_stride = columns;
    if (args_.weight_is_table) {
      rows = columns;
      row_length = dim_;
      stride = dim_;
      from_stride = RoundUp(dim_, kPanelDepth<float>);
      float* transposed = Scratch<float>(ScratchSlot::TASK_C, columns * from_stride);
      PackRows(sums, columns, dim_, 0, columns, from_stride, transposed);
      sums = transposed;
      to += first * dim_;
    } else {
      to += first;
    }
    Vectorised([=] {
      for (int64_t r = 0; r < rows; ++r) {
#pragma GCC ivdep
        for (int64_t i = 0; i < row_length; ++i) {
          const float value = sums[r * from_stride + i];
          to[r * stride + i] = accumulate ? to[r * stride + i] + value : value;
        }
      }
    });
  }

  const LinearCrossEntropyArgs& args_;
  Stream& stream_;
  const LossHalf* const half_;  // null: the whole loss
  const int64_t rows_, dim_, classes_;
  const T* const hidden_;
  const bool with_gradients_;
  const int64_t chunk_rows_;
  // Multiply in pieces (split_matmul.h). The weight's gradient, whose depths are rows, only if
  // there are enough rows.
  const bool split_ =
      kF32 && UsesSplitProducts(classes_, dim_) && UsesSplitProducts(dim_, classes_);
  const bool weight_split_ = split_ && UsesSplitProducts(dim_, rows_);
  const PackedLayout layout_ = LayoutOf<T>(split_);
  int64_t forward_size_ = 0, backward_size_ = 0;  // for one packed block
  T *memory_ = nullptr, *grads_ = nullptr, *hidden_columns_ = nullptr;
  std::vector<PackedMatrix<T>> forward_, backward_;
};

// BF16 on a processor without a bf16 product.
void LinearCrossEntropyWidened(const LinearCrossEntropyArgs& args, Stream& stream,
                               const LossHalf* half = nullptr) {
  std::vector<float> hidden(args.hidden.num_elements()), weight(args.weight.num_elements()), grad;
  LinearCrossEntropyArgs wide = args;
  wide.hidden = DenseView(hidden.data(), args.hidden.shape);
  wide.weight = DenseView(weight.data(), args.weight.shape);
  Cast(wide.hidden, args.hidden, stream);
  Cast(wide.weight, args.weight, stream);
  if (!args.grad_hidden.empty() && args.grad_hidden.dtype == DType::BF16) {
    grad.resize(args.hidden.num_elements());
    wide.grad_hidden = DenseView(grad.data(), args.hidden.shape);
  }
  LinearCrossEntropyRun<float>(wide, stream, half).Run();
  if (!grad.empty()) Cast(args.grad_hidden, wide.grad_hidden, stream);
}

void CheckArray(const ArrayView& view, const Shape& shape, DType dtype, bool required) {
  if (view.empty() && !required) return;
  TANDEM_CHECK(view.shape == shape && view.dtype == dtype && view.is_dense())
      << NameOf(view.dtype) << " " << view.shape << ", wanted " << NameOf(dtype) << " " << shape;
}

void CheckArgs(const LinearCrossEntropyArgs& args, bool with_loss = true) {
  TANDEM_CHECK(args.hidden.shape.num_dims() == 2 && args.weight.shape.num_dims() == 2);
  const int64_t rows = args.hidden.shape[0], dim = args.hidden.shape[1],
                classes = args.weight.shape[args.weight_is_table ? 0 : 1];
  const DType dtype = args.hidden.dtype, sums = dtype == DType::F64 ? DType::F64 : DType::F32;
  CheckArray(args.hidden, {rows, dim}, dtype, true);
  CheckArray(args.weight, args.weight_is_table ? Shape{classes, dim} : Shape{dim, classes}, dtype,
             true);
  CheckArray(args.bias, {classes}, sums, false);
  CheckArray(args.loss, {rows}, sums, with_loss);
  CheckArray(args.grad_hidden, {rows, dim}, args.grad_hidden.dtype == DType::F32 ? sums : dtype,
             false);
  CheckArray(args.grad_weight, args.weight.shape, sums, false);
  CheckArray(args.grad_bias, {classes}, sums, false);
  TANDEM_CHECK_GE(dim, 1);
  TANDEM_CHECK_EQ(args.target.num_elements(), rows);
}

void CheckTargets(const LinearCrossEntropyArgs& args) {
  const int64_t classes = args.weight.shape[args.weight_is_table ? 0 : 1];
  const int64_t* target = args.target.as<int64_t>();
  for (int64_t r = 0; r < args.target.num_elements(); ++r) {
    TANDEM_CHECK(target[r] >= 0 && target[r] < classes)
        << "target " << target[r] << " of row " << r << ", classes " << classes;
  }
}

}  // namespace

namespace {

// The whole loss on a CPU, or `half`.
void RunOnCpu(const LinearCrossEntropyArgs& args, Stream& stream, const LossHalf* half) {
  if (args.hidden.dtype == DType::F64) return LinearCrossEntropyReference(args, stream, half);
  if (args.hidden.shape[0] == 0) {  // sums of nothing are 0
    for (const ArrayView& sum : {args.grad_weight, args.grad_bias}) {
      if (!sum.empty()) Fill(sum, 0, stream);
    }
    return;
  }
  if (args.hidden.dtype == DType::F32)
    return LinearCrossEntropyRun<float>(args, stream, half).Run();
  if (!MatmulTakesPanels(DType::BF16)) return LinearCrossEntropyWidened(args, stream, half);
  LinearCrossEntropyRun<BFloat16>(args, stream, half).Run();
}

LinearCrossEntropyArgs WholeArgsOf(const LinearClassesArgs& args) {
  return {.hidden = args.hidden,
          .weight = args.weight,
          .weight_is_table = args.weight_is_table,
          .bias = args.bias,
          .target = args.target,
          .loss = {}};
}

}  // namespace

void LinearCrossEntropy(const LinearCrossEntropyArgs& args, Stream& stream) {
  CheckArgs(args);
  if (stream.on_cuda()) return cuda::LinearCrossEntropy(args, stream);
  CheckTargets(args);
  RunOnCpu(args, stream, nullptr);
}

void LinearLogSums(const LinearLogSumsArgs& args, Stream& stream) {
  const LinearCrossEntropyArgs whole = WholeArgsOf(args);
  CheckArgs(whole, /*with_loss=*/false);
  const DType sums = args.hidden.dtype == DType::F64 ? DType::F64 : DType::F32;
  CheckArray(args.log_sum, {args.hidden.shape[0]}, sums, true);
  CheckArray(args.target_logit, {args.hidden.shape[0]}, sums, true);
  if (args.hidden.shape[0] == 0) return;
  if (stream.on_cuda()) return cuda::LinearLogSums(args, stream);
  const LossHalf half{
      .first_class = args.first_class, .log_sum = args.log_sum, .target_logit = args.target_logit};
  RunOnCpu(whole, stream, &half);
}

void LinearCrossEntropyGradients(const LinearCrossEntropyGradientsArgs& args, Stream& stream) {
  LinearCrossEntropyArgs whole = WholeArgsOf(args);
  whole.grad_hidden = args.grad_hidden;
  whole.grad_weight = args.grad_weight;
  whole.grad_bias = args.grad_bias;
  CheckArgs(whole, /*with_loss=*/false);
  CheckArray(args.log_sum, {args.hidden.shape[0]},
             args.hidden.dtype == DType::F64 ? DType::F64 : DType::F32, true);
  if (stream.on_cuda()) return cuda::LinearCrossEntropyGradients(args, stream);
  const LossHalf half{.first_class = args.first_class, .given = args.log_sum};
  RunOnCpu(whole, stream, &half);
}

}  // namespace tandem::kernels
