#include "kernels/gemm.h"

#include <memory>
#include <sstream>

#include "kernels/base/buffer.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/kernels.h"

namespace tandem::kernels::cuda {

namespace {

absl::Status Named(const GemmArgs& args, const absl::Status& status) {
  std::ostringstream what;
  what << "gemm of " << NameOf(args.a.dtype) << " " << args.a.shape << (args.transpose_a ? "' by " : " by ") << args.b.shape
       << (args.transpose_b ? "' to " : " to ") << NameOf(args.c.dtype) << " " << args.c.shape << ": " << status.message();
  return absl::Status(status.code(), what.str());
}

void Submit(const GemmArgs& args, const GemmPlan& plan, Stream& stream) {
  if (!stream.status().ok()) return;
  const absl::StatusOr<CublasLt*> library = CublasLt::Of(stream.device().index);
  const absl::Status status = library.ok() ? (*library)->Multiply(plan, stream.queue()) : library.status();
  if (!status.ok()) stream.Fail(Named(args, status));
}

// K = 0: the bias and the old c alone.
void StoreEmptySums(const GemmArgs& args, Stream& stream) {
  if (!args.accumulate) Fill(args.c, 0, stream);
  if (!args.bias.empty()) AddBias(args.c, args.c, args.bias, stream);
}

void Multiply(const GemmArgs& args, Stream& stream) {
  const GemmPlan plan = PlanGemm(args);
  Submit(args, plan, stream);
  if (plan.bias == nullptr && !args.bias.empty()) AddBias(args.c, args.c, args.bias, stream);
}

// An F32 bias is added to f32 sums, and their total is rounded: the library does so for an F32 result only.
void MultiplyWithBiasToBf16(const GemmArgs& args, Stream& stream) {
  const int64_t m = args.c.shape[0], n = args.c.shape[1], at_a_time = RowsAtATime(m, n);
  const std::shared_ptr<Buffer> memory = Buffer::Allocate(static_cast<size_t>(at_a_time * n) * sizeof(float), stream.device());
  GemmArgs wide = args;
  wide.c = ArrayView(memory->data(), DType::F32, {m, n});  // of which a part is there
  const GemmPlan plan = PlanGemm(wide);
  for (int64_t begin = 0; begin < m; begin += at_a_time) {
    const int64_t count = std::min(at_a_time, m - begin);
    const ArrayView sums(memory->data(), DType::F32, {count, n});
    GemmPlan part = RowsOf(plan, begin, count);
    part.result.data = memory->data();
    Submit(args, part, stream);
    if (plan.bias == nullptr) AddBias(sums, sums, args.bias, stream);
    Cast(ArrayView(args.c.as<BFloat16>() + begin * n, DType::BF16, {count, n}), sums, stream);
  }
}

}  // namespace

void Gemm(const GemmArgs& args, Stream& stream) {
  if (args.c.num_elements() == 0 || !stream.status().ok()) return;
  if (args.a.num_elements() == 0) return StoreEmptySums(args, stream);
  if (args.c.dtype == DType::BF16 && !args.bias.empty()) return MultiplyWithBiasToBf16(args, stream);
  Multiply(args, stream);
}

}  // namespace tandem::kernels::cuda
