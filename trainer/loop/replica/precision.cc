#include "trainer/loop/replica/precision.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "proto/checkpoint.pb.h"
#include "trainer/tensor/tensor.h"

namespace tandem::loop {

namespace {

constexpr int64_t kMaxRows = 2048;  // enough to judge by, within milliseconds
constexpr int kRepeats = 3;

// Returns the best time of a few runs of the product.
double SecondsOf(const tasks::LargestProduct& product, DType dtype, Stream& stream) {
  const Device device = stream.device();
  const Tensor a = Tensor::Empty(Shape{product.rows, product.in}, dtype, device);
  const Tensor b = Tensor::Empty(Shape{product.in, product.out}, dtype, device);
  const Tensor c = Tensor::Empty(Shape{product.rows, product.out}, dtype, device);
  kernels::Fill(a.view(), 0, stream);
  kernels::Fill(b.view(), 0, stream);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kRepeats; ++i) {  // the first run prepares the kernels and is never the best
    const Stopwatch watch;
    kernels::Gemm({.a = a.view(), .b = b.view(), .c = c.view()}, stream);
    stream.Wait().IgnoreError();  // the stream keeps the error
    best = std::min(best, watch.Seconds());
  }
  return best;
}

}  // namespace

absl::StatusOr<Precision> ChoosePrecision(const Job& job,
                                          const std::optional<tasks::LargestProduct>& product,
                                          const CheckpointManifest* resumed, Stream& stream,
                                          comm::ProcessGroup& group, absl::Time deadline) {
  const bool asked = job.train().has_precision();
  if (asked && job.train().precision() != Train::BF16) return Precision();
  if (resumed != nullptr && resumed->has_compute()) {
    const DType compute = resumed->compute() == Train::BF16 ? DType::BF16 : DType::F32;
    return Precision{.compute = compute,
                     .reason = absl::StrFormat("precision %s: the checkpoint's", NameOf(compute))};
  }
  if (!asked) {
    if (resumed != nullptr || !stream.on_cuda() || !product) return Precision();
    return Precision{.compute = DType::BF16, .reason = "precision bf16: the default on GPUs"};
  }
  TANDEM_CHECK(product.has_value()) << "a job of a kind without bf16 asks for bf16";
  tasks::LargestProduct timed = *product;
  timed.rows = std::clamp<int64_t>(timed.rows, 1, kMaxRows);
  const double f32 = SecondsOf(timed, DType::F32, stream);
  const double bf16 = SecondsOf(timed, DType::BF16, stream);
  RETURN_IF_ERROR(stream.status());
  double gain = f32 / bf16;
  const comm::CollectiveArgs args{
      .stream = &stream, .op = comm::ReduceOp::MIN, .tag = StableHash("precision")};
  RETURN_IF_ERROR(group.Await(group.AllReduce(DenseView(&gain, Shape{1}), args), deadline));
  Precision precision{.compute = gain > 1 ? DType::BF16 : DType::F32, .reason = ""};
  precision.reason =
      absl::StrFormat("precision %s: a bf16 product of %d x %d x %d takes %.2f of f32's time here",
                      NameOf(precision.compute), timed.rows, timed.in, timed.out, 1 / gain);
  return precision;
}

void SavePrecision(const Job& job, DType compute, CheckpointManifest* manifest) {
  const bool asked = job.train().has_precision() && job.train().precision() == Train::BF16;
  if (!asked && compute != DType::BF16) return;
  manifest->set_compute(compute == DType::BF16 ? Train::BF16 : Train::F32);
}

}  // namespace tandem::loop
