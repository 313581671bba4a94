// The operations of kernels/*.h on a CUDA device. The operations call these functions for a CUDA
// stream, after checking shapes and types. Without the CUDA toolkit no_cuda.cc defines the
// functions, so a forgotten one is a link error. No CUDA types here.
// Thread rule: the stream's thread.
#pragma once

#include <vector>

#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "kernels/rotary.h"
#include "kernels/segment.h"
#include "kernels/softmax.h"

namespace tandem::kernels::cuda {

void AttentionForward(const AttentionForwardArgs& args, Stream& stream);
void AttentionBackward(const AttentionBackwardArgs& args, Stream& stream);

void Cast(const ArrayView& output, const ArrayView& input, Stream& stream);

void Fill(const ArrayView& x, double value, Stream& stream);
void Copy(const ArrayView& output, const ArrayView& input, Stream& stream);
void CopyRows(const ArrayView& output, const ArrayView& input, Stream& stream);
void Add(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream);
void AddScaled(const ArrayView& output, const ArrayView& x, double scale, Stream& stream);
void Scale(const ArrayView& output, const ArrayView& x, double scale, Stream& stream);
void Multiply(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream);
void AddBias(const ArrayView& output, const ArrayView& x, const ArrayView& bias, Stream& stream);
void AddWhereEqual(const ArrayView& output, const ArrayView& x, const ArrayView& row_id,
                   const ArrayView& column_id, double value, Stream& stream);
void ActivationForward(const ArrayView& output, const ArrayView& x, Activation activation,
                       Stream& stream);
void ActivationBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                        const ArrayView& x, Activation activation, Stream& stream);
void SwiGluForward(const ArrayView& output, const ArrayView& x, Stream& stream);
void SwiGluBackward(const ArrayView& grad_input, const ArrayView& grad_output, const ArrayView& x,
                    Stream& stream);
void Dropout(const DropoutArgs& args, Stream& stream);
void DropoutBackward(const DropoutBackwardArgs& args, Stream& stream);

void GatherRows(const ArrayView& output, const ArrayView& table, const ArrayView& index,
                Stream& stream);
void LocateRows(const ArrayView& here, const ArrayView& factor, const ArrayView& index,
                int64_t first, int64_t count, Stream& stream);
void ScatterAddRows(const ArrayView& output, const ArrayView& rows, const ArrayView& index,
                    bool accumulate, Stream& stream);

void Gemm(const GemmArgs& args, Stream& stream);
void GemmActivate(const GemmArgs& args, const ArrayView& activated, Activation activation,
                  Stream& stream);

void CrossEntropy(const CrossEntropyArgs& args, Stream& stream);
void LinearCrossEntropy(const LinearCrossEntropyArgs& args, Stream& stream);
void LinearLogSums(const LinearLogSumsArgs& args, Stream& stream);
void LinearCrossEntropyGradients(const LinearCrossEntropyGradientsArgs& args, Stream& stream);
void RelativeExponentials(const ArrayView& output, const ArrayView& log_sum,
                          const ArrayView& largest, Stream& stream);
void JoinedLosses(const JoinedLossesArgs& args, Stream& stream);
void BinaryCrossEntropy(const BinaryCrossEntropyArgs& args, Stream& stream);

void LayerNormForward(const LayerNormForwardArgs& args, Stream& stream);
void LayerNormBackward(const LayerNormBackwardArgs& args, Stream& stream);
void RmsNormForward(const RmsNormForwardArgs& args, Stream& stream);
void RmsNormBackward(const RmsNormBackwardArgs& args, Stream& stream);

// Update all runs in as few launches as possible.
void SgdUpdate(const std::vector<OptimizerRun>& runs, const SgdArgs& args, Stream& stream);
void AdagradUpdate(const std::vector<OptimizerRun>& runs, const AdagradArgs& args, Stream& stream);
void AdamUpdate(const std::vector<OptimizerRun>& runs, const AdamArgs& args, Stream& stream);
// The sum over all runs of their gradients' squares, in f64. The order depends on the runs' sizes
// alone.
double GradientSquaredNorm(const std::vector<OptimizerRun>& runs, Stream& stream);

void Rotate(const RotateArgs& args, Stream& stream);

void ColumnSum(const ArrayView& output, const ArrayView& x, bool accumulate, Stream& stream);
void RowDot(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream);
void ScaleRows(const ArrayView& output, const ArrayView& x, const ArrayView& scale, bool accumulate,
               Stream& stream);
void Sum(const ArrayView& output, const ArrayView& x, Stream& stream);
double Sum(const ArrayView& x, Stream& stream);
double SumOfSquares(const ArrayView& x, Stream& stream);

void SegmentMean(const ArrayView& output, const ArrayView& x, const ArrayView& offsets,
                 Stream& stream);
void SegmentMeanBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                         const ArrayView& offsets, Stream& stream);

void SoftmaxForward(const ArrayView& output, const ArrayView& x, Stream& stream);
void SoftmaxBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                     const ArrayView& output, Stream& stream);

}  // namespace tandem::kernels::cuda
