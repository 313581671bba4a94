#include "kernels/gemm.h"

#include <sstream>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/gemm_plan.h"

namespace tandem::kernels::cuda {

namespace {

absl::Status Named(const GemmArgs& args, const absl::Status& status) {
  std::ostringstream what;
  what << "gemm of " << NameOf(args.a.dtype) << " " << args.a.shape
       << (args.transpose_a ? "' by " : " by ") << args.b.shape
       << (args.transpose_b ? "' to " : " to ") << NameOf(args.c.dtype) << " " << args.c.shape
       << ": " << status.message();
  return absl::Status(status.code(), what.str());
}

absl::Status Submit(const GemmPlan& plan, Stream& stream) {
  const absl::StatusOr<CublasLt*> library = CublasLt::Of(stream.device().index);
  return library.ok() ? (*library)->Multiply(plan, stream.queue()) : library.status();
}

// K = 0: stores only the bias and the old c.
void StoreEmptySums(const GemmArgs& args, Stream& stream) {
  if (!args.accumulate) Fill(args.c, 0, stream);
  if (!args.bias.empty()) AddBias(args.c, args.c, args.bias, stream);
}

void Multiply(const GemmArgs& args, Stream& stream) {
  GemmPlan plan = PlanGemm(args);
  absl::Status status = Submit(plan, stream);
  if (absl::IsUnimplemented(status) && plan.bias != nullptr) {  // no algorithm adds the bias
    plan.bias = nullptr;
    status = Submit(plan, stream);
  }
  if (!status.ok()) return stream.Fail(Named(args, status));
  if (plan.bias == nullptr && !args.bias.empty()) AddBias(args.c, args.c, args.bias, stream);
}

}  // namespace

void Gemm(const GemmArgs& args, Stream& stream) {
  if (args.c.num_elements() == 0 || !stream.status().ok()) return;
  if (args.a.num_elements() == 0) return StoreEmptySums(args, stream);
  Multiply(args, stream);
}

void GemmActivate(const GemmArgs& args, const ArrayView& activated, Activation activation,
                  Stream& stream) {
  if (args.c.num_elements() == 0 || !stream.status().ok()) return;
  if (TakesActivation(args, activation)) {
    const absl::Status status = Submit(PlanGemmActivate(args, activated), stream);
    if (status.ok()) return;
    if (!absl::IsUnimplemented(status)) return stream.Fail(Named(args, status));
  }
  cuda::Gemm(args, stream);
  cuda::ActivationForward(activated, args.c, activation, stream);
}

}  // namespace tandem::kernels::cuda
