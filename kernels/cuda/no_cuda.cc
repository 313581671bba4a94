// Definitions for a build without the CUDA toolkit; a forgotten one is a link error. No device
// exists in such a build, so nobody calls them.
#include "kernels/base/check.h"
#include "kernels/base/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem {

namespace {

[[noreturn]] void Refuse(const char* what) {
  internal::CheckFailure(__FILE__, __LINE__, "built with CUDA").stream()
      << what << ": this binary was built without the CUDA toolkit";
  __builtin_unreachable();
}

}  // namespace

CudaInfo QueryCuda() {
  CudaInfo info;
  info.why_none = "built without the CUDA toolkit";
  return info;
}

double PeakFlops(Device, DType) { return 0; }

namespace cuda {

void* AllocateMemory(size_t, int) { Refuse("AllocateMemory"); }
void FreeMemory(void*, int) { Refuse("FreeMemory"); }
size_t AvailableBytes(int) { Refuse("AvailableBytes"); }
void* AllocatePinnedMemory(size_t) { Refuse("AllocatePinnedMemory"); }
void FreePinnedMemory(void*) { Refuse("FreePinnedMemory"); }

void* MakeQueue(int) { Refuse("MakeQueue"); }
void DestroyQueue(void*) { Refuse("DestroyQueue"); }
absl::Status CopyAsync(void*, const void*, size_t, void*) { Refuse("CopyAsync"); }
absl::Status SetBytesAsync(void*, int, size_t, int, void*) { Refuse("SetBytesAsync"); }
absl::Status WaitForQueue(void*, absl::Duration) { Refuse("WaitForQueue"); }
absl::Status AddTo(DType, void*, const void*, int64_t, int, void*) { Refuse("AddTo"); }

absl::Status BeginRecording(void*) { Refuse("BeginRecording"); }
absl::StatusOr<void*> EndRecording(void*) { Refuse("EndRecording"); }
absl::Status LaunchGraph(void*, void*) { Refuse("LaunchGraph"); }
void DestroyGraph(void*) { Refuse("DestroyGraph"); }

void* MakeEvent(int, bool) { Refuse("MakeEvent"); }
void DestroyEvent(void*) { Refuse("DestroyEvent"); }
absl::Status RecordEvent(void*, void*) { Refuse("RecordEvent"); }
absl::Status WaitForEvent(void*, void*) { Refuse("WaitForEvent"); }
absl::StatusOr<bool> QueryEvent(void*) { Refuse("QueryEvent"); }
absl::StatusOr<double> SecondsBetween(void*, void*) { Refuse("SecondsBetween"); }

void PushRange(const char*) { Refuse("PushRange"); }
void PopRange() { Refuse("PopRange"); }

absl::Status UseDevice(int) { Refuse("UseDevice"); }

}  // namespace cuda

namespace kernels::cuda {

void AttentionForward(const AttentionForwardArgs&, Stream&) { Refuse("AttentionForward"); }
void AttentionBackward(const AttentionBackwardArgs&, Stream&) { Refuse("AttentionBackward"); }
void Cast(const ArrayView&, const ArrayView&, Stream&) { Refuse("Cast"); }
void Fill(const ArrayView&, double, Stream&) { Refuse("Fill"); }
void Copy(const ArrayView&, const ArrayView&, Stream&) { Refuse("Copy"); }
void CopyRows(const ArrayView&, const ArrayView&, Stream&) { Refuse("CopyRows"); }
void Add(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) { Refuse("Add"); }
void AddScaled(const ArrayView&, const ArrayView&, double, Stream&) { Refuse("AddScaled"); }
void Scale(const ArrayView&, const ArrayView&, double, Stream&) { Refuse("Scale"); }
void Multiply(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) { Refuse("Multiply"); }
void AddBias(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) { Refuse("AddBias"); }
void AddWhereEqual(const ArrayView&, const ArrayView&, const ArrayView&, const ArrayView&, double,
                   Stream&) {
  Refuse("AddWhereEqual");
}
void ActivationForward(const ArrayView&, const ArrayView&, Activation, Stream&) {
  Refuse("ActivationForward");
}
void ActivationBackward(const ArrayView&, const ArrayView&, const ArrayView&, Activation, Stream&) {
  Refuse("ActivationBackward");
}
void SwiGluForward(const ArrayView&, const ArrayView&, Stream&) { Refuse("SwiGluForward"); }
void SwiGluBackward(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) {
  Refuse("SwiGluBackward");
}
void Dropout(const DropoutArgs&, Stream&) { Refuse("Dropout"); }
void DropoutBackward(const DropoutBackwardArgs&, Stream&) { Refuse("DropoutBackward"); }
void GatherRows(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) {
  Refuse("GatherRows");
}
void LocateRows(const ArrayView&, const ArrayView&, const ArrayView&, int64_t, int64_t, Stream&) {
  Refuse("LocateRows");
}
void ScatterAddRows(const ArrayView&, const ArrayView&, const ArrayView&, bool, Stream&) {
  Refuse("ScatterAddRows");
}
void Gemm(const GemmArgs&, Stream&) { Refuse("Gemm"); }
void GemmActivate(const GemmArgs&, const ArrayView&, Activation, Stream&) {
  Refuse("GemmActivate");
}
void CrossEntropy(const CrossEntropyArgs&, Stream&) { Refuse("CrossEntropy"); }
void LinearCrossEntropy(const LinearCrossEntropyArgs&, Stream&) { Refuse("LinearCrossEntropy"); }
void LinearLogSums(const LinearLogSumsArgs&, Stream&) { Refuse("LinearLogSums"); }
void LinearCrossEntropyGradients(const LinearCrossEntropyGradientsArgs&, Stream&) {
  Refuse("LinearCrossEntropyGradients");
}
void RelativeExponentials(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) {
  Refuse("RelativeExponentials");
}
void JoinedLosses(const JoinedLossesArgs&, Stream&) { Refuse("JoinedLosses"); }
void BinaryCrossEntropy(const BinaryCrossEntropyArgs&, Stream&) { Refuse("BinaryCrossEntropy"); }
void LayerNormForward(const LayerNormForwardArgs&, Stream&) { Refuse("LayerNormForward"); }
void LayerNormBackward(const LayerNormBackwardArgs&, Stream&) { Refuse("LayerNormBackward"); }
void RmsNormForward(const RmsNormForwardArgs&, Stream&) { Refuse("RmsNormForward"); }
void RmsNormBackward(const RmsNormBackwardArgs&, Stream&) { Refuse("RmsNormBackward"); }
void SgdUpdate(const std::vector<OptimizerRun>&, const SgdArgs&, Stream&) { Refuse("SgdUpdate"); }
void AdagradUpdate(const std::vector<OptimizerRun>&, const AdagradArgs&, Stream&) {
  Refuse("AdagradUpdate");
}
void AdamUpdate(const std::vector<OptimizerRun>&, const AdamArgs&, Stream&) {
  Refuse("AdamUpdate");
}
double GradientSquaredNorm(const std::vector<OptimizerRun>&, Stream&) {
  Refuse("GradientSquaredNorm");
}
void Rotate(const RotateArgs&, Stream&) { Refuse("Rotate"); }
void ColumnSum(const ArrayView&, const ArrayView&, bool, Stream&) { Refuse("ColumnSum"); }
void RowDot(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) { Refuse("RowDot"); }
void ScaleRows(const ArrayView&, const ArrayView&, const ArrayView&, bool, Stream&) {
  Refuse("ScaleRows");
}
void Sum(const ArrayView&, const ArrayView&, Stream&) { Refuse("Sum"); }
double Sum(const ArrayView&, Stream&) { Refuse("Sum"); }
double SumOfSquares(const ArrayView&, Stream&) { Refuse("SumOfSquares"); }
void SegmentMean(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) {
  Refuse("SegmentMean");
}
void SegmentMeanBackward(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) {
  Refuse("SegmentMeanBackward");
}
void SoftmaxForward(const ArrayView&, const ArrayView&, Stream&) { Refuse("SoftmaxForward"); }
void SoftmaxBackward(const ArrayView&, const ArrayView&, const ArrayView&, Stream&) {
  Refuse("SoftmaxBackward");
}

}  // namespace kernels::cuda

}  // namespace tandem
