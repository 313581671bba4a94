// Operations and layers whose way on a CUDA device is another one than on the CPU. On a GPU (label gpu), and on the emulated device
// everywhere.
#include <gtest/gtest.h>

#include <memory>

#include "kernels/base/device.h"
#include "tests/trainer/gradient_check.h"
#include "trainer/nn/layers.h"

namespace tandem {
namespace {

using ::tandem::testing::RandomTensor;

class CudaOpsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaInfo info = QueryCuda();
    if (info.num_devices == 0) GTEST_SKIP() << info.why_none;
    device_ = std::make_unique<Stream>(&pool_, Device{DeviceKind::CUDA, 0});
  }

  Context::Options Options(Stream& stream, DType compute) {
    return {.stream = &stream, .seed = 17, .step = 3, .compute = compute, .deadline = absl::Now() + absl::Seconds(20)};
  }

  ThreadPool pool_{1};
  Stream cpu_{&pool_};
  std::unique_ptr<Stream> device_;
};

TEST_F(CudaOpsTest, LinearAddsABiasOfItsResultsTypeWhichVectorsHaveOnADeviceOnly) {
  ParameterSet here(1, DType::F32, &cpu_), there(1, DType::F32, device_.get());
  for (ParameterSet* parameters : {&here, &there}) {
    Stream& stream = parameters == &here ? cpu_ : *device_;
    const Variable weight = parameters->Normal("w", Shape{40, 24}, 1), bias = parameters->Constant("b", Shape{24}, 1.0 + 0x1p-9);
    parameters->MakeShadows(stream);
    ASSERT_EQ(bias.leaf().shadow().defined(), stream.on_cuda());
    Context context(Options(stream, DType::BF16));
    const Variable zeros = Variable::Constant(Tensor::Zeros(Shape{3, 40}, DType::F32).To(stream.device(), stream));
    const Tensor first = ops::Linear(context, zeros, weight, bias).value().ToHost(stream);
    parameters->Assign(bias.value(), Tensor::Zeros(Shape{24}, DType::F32));  // and no shadow follows
    const Tensor second = ops::Linear(context, zeros, weight, bias).value().ToHost(stream);
    ASSERT_EQ(first.dtype(), DType::BF16);
    for (int64_t i = 0; i < first.num_elements(); ++i) {
      EXPECT_EQ(ToFloat(first.data<BFloat16>()[i]), 1);
      EXPECT_EQ(ToFloat(second.data<BFloat16>()[i]), stream.on_cuda() ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace tandem
