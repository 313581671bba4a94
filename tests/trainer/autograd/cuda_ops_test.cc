// Operations and layers that compute differently on a CUDA device than on the CPU.
// Runs on a GPU (label gpu), and everywhere on the emulated device.
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/base/device.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/nn/blocks.h"

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
    return {.stream = &stream,
            .seed = 17,
            .step = 3,
            .compute = compute,
            .deadline = absl::Now() + absl::Seconds(20)};
  }

  // The relative difference in the Euclidean norm.
  static double Difference(const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.num_elements(), b.num_elements());
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      difference += (a.At(i) - b.At(i)) * (a.At(i) - b.At(i));
      norm += b.At(i) * b.At(i);
    }
    return norm == 0 ? difference : std::sqrt(difference / norm);
  }

  ThreadPool pool_{1};
  Stream cpu_{&pool_};
  std::unique_ptr<Stream> device_;
};

TEST_F(CudaOpsTest, LinearAddsABiasOfItsResultsTypeWhichVectorsHaveOnADeviceOnly) {
  ParameterSet here(1, DType::F32, &cpu_), there(1, DType::F32, device_.get());
  for (ParameterSet* parameters : {&here, &there}) {
    Stream& stream = parameters == &here ? cpu_ : *device_;
    const Variable weight = parameters->Normal("w", Shape{40, 24}, 1),
                   bias = parameters->Constant("b", Shape{24}, 1.0 + 0x1p-9);
    parameters->MakeShadows(stream);
    ASSERT_EQ(bias.leaf().shadow().defined(), stream.on_cuda());
    Context context(Options(stream, DType::BF16));
    const Variable zeros =
        Variable::Constant(Tensor::Zeros(Shape{3, 40}, DType::F32).To(stream.device(), stream));
    const Tensor first = ops::Linear(context, zeros, weight, bias).value().ToHost(stream);
    parameters->Assign(bias.value(),
                       Tensor::Zeros(Shape{24}, DType::F32));  // and no shadow follows
    const Tensor second = ops::Linear(context, zeros, weight, bias).value().ToHost(stream);
    ASSERT_EQ(first.dtype(), DType::BF16);
    for (int64_t i = 0; i < first.num_elements(); ++i) {
      EXPECT_EQ(ToFloat(first.data<BFloat16>()[i]), 1);
      EXPECT_EQ(ToFloat(second.data<BFloat16>()[i]), stream.on_cuda() ? 1 : 0);
    }
  }
}

// Items of a model that reads: words into a sum, rows added where there are some, symbols above.
TEST_F(CudaOpsTest, WholeRowsAreMovedAndScaledAsOnTheCpu) {
  std::vector<Tensor> results[2];
  for (Stream* stream : {&cpu_, device_.get()}) {
    const auto there = [&](const Tensor& x) { return x.To(stream->device(), *stream); };
    const auto leaf = [&](Shape shape, uint64_t seed) {
      return Variable::Leaf(there(RandomTensor(shape, seed, DType::F32)), "leaf");
    };
    const auto index = [&](std::vector<int64_t> places) {
      return there(Tensor::FromVector<int64_t>(places));
    };
    Context c(Options(*stream, DType::F32));
    const Variable words = leaf({6, 20}, 1), rows = leaf({2, 20}, 2), symbols = leaf({4, 20}, 3);
    const Variable sums = ops::ScaleRows(c, ops::SegmentMean(c, words, index({0, 2, 2, 6})),
                                         there(RandomTensor({3}, 4, DType::F32)));
    const Variable items = ops::AddRowsAt(c, sums, rows, index({2, 0}));
    const Variable inputs =
        ops::GatherRows(c, ops::ConcatRows(c, symbols, items), index({0, 5, 3, 6, 4, 5}));
    const Variable loss =
        ops::CrossEntropySum(c, ops::MatMulTransposed(c, inputs, items), index({0, 1, 2, 0, 1, 2}));
    Backward(c, loss);
    EXPECT_TRUE(c.status().ok()) << c.status();
    for (const Tensor& x :
         {loss.value(), words.leaf().gradient(), rows.leaf().gradient(), symbols.leaf().gradient()})
      results[stream->on_cuda()].push_back(x.ToHost(*stream));
  }
  for (size_t i = 0; i < results[0].size(); ++i)
    EXPECT_LT(Difference(results[1][i], results[0][i]), 1e-5) << i;
}

// A user's model of two towers, from packed histories to the softmax over the batch's items.
TEST_F(CudaOpsTest, TowersFromMeansOfSegmentsAreThoseOfTheCpu) {
  for (const auto& [compute, tolerance] : {std::pair(DType::F32, 1e-5), {DType::BF16, 0.05}}) {
    std::vector<Tensor> results[2];
    for (Stream* stream : {&cpu_, device_.get()}) {
      const auto there = [&](const Tensor& x) { return x.To(stream->device(), *stream); };
      const auto leaf = [&](Shape shape, uint64_t seed) {
        return Variable::Leaf(there(RandomTensor(shape, seed, DType::F32)), "leaf");
      };
      Context c(Options(*stream, compute));
      const Variable rows = leaf({7, 9}, 1), items = leaf({4, 20}, 2), weight = leaf({18, 20}, 3);
      const Variable mean =
          ops::SegmentMean(c, rows, there(Tensor::FromVector<int64_t>({0, 3, 3, 6, 7})));
      const Variable gated = ops::Multiply(c, mean, ops::Sigmoid(c, mean));
      const Variable users = ops::Linear(c, ops::Concat(c, {mean, gated}), weight, Variable());
      const Variable loss = ops::CrossEntropySum(c, ops::MatMulTransposed(c, users, items),
                                                 there(Tensor::FromVector<int64_t>({0, 1, 2, 3})));
      Backward(c, loss);
      EXPECT_TRUE(c.status().ok()) << c.status();
      for (const Tensor& x : {loss.value(), rows.leaf().gradient(), items.leaf().gradient(),
                              weight.leaf().gradient()})
        results[stream->on_cuda()].push_back(x.ToHost(*stream));
    }
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_LT(Difference(results[1][i], results[0][i]), tolerance) << NameOf(compute) << i;
  }
}

// Two blocks and a final norm. Each norm sums the residuals of the block before it.
class CudaBlocksTest : public CudaOpsTest {
 protected:
  struct Result {
    Tensor output, grad_x;
    std::vector<Tensor> gradients;
  };

  template <class Block>
  Result Run(Stream& stream, DType compute, float dropout) {
    ParameterSet parameters(3, DType::F32, &stream);
    const nn::LinearOptions linear{.stddev = 0.3};
    const nn::BlockOptions options{.dim = 24,
                                   .heads = 2,
                                   .ffn_dim = 40,
                                   .activation = kernels::Activation::GELU_TANH,
                                   .dropout = dropout,
                                   .norm = {.epsilon = 1e-5},
                                   .qkv = linear,
                                   .up = linear,
                                   .residual = linear};
    const Block first(parameters, "first", options), second(parameters, "second", options);
    const nn::Norm norm(parameters, "norm", 24, {.epsilon = 1e-5});
    if (compute == DType::BF16) parameters.MakeShadows(stream);
    const nn::PackedRows here{Tensor::FromVector<int64_t>({0, 3, 7}),
                              Tensor::FromVector<int64_t>({0, 1, 2, 0, 1, 2, 3}),
                              Tensor::FromVector<int64_t>({8, 9, 10, 4, 5, 6, 7}), 4};
    const nn::PackedRows rows = here.To(stream.device(), stream);
    Context context(Options(stream, compute));
    const Variable x =
        Variable::Leaf(RandomTensor({7, 24}, 5, DType::F32).To(stream.device(), stream), "x");
    Variable y;
    if constexpr (std::is_same_v<Block, nn::PreNormBlock>) {
      y = norm.Forward(context, second.Forward(
                                    context, first.Forward(context, ops::Residual{x}, rows), rows))
              .output;
    } else {
      y = second.Forward(context, first.Forward(context, norm.Forward(context, x), rows), rows);
    }
    Backward(context, {{y, RandomTensor({7, 24}, 6, y.dtype()).To(stream.device(), stream)}});
    EXPECT_TRUE(context.status().ok()) << context.status();
    EXPECT_TRUE(stream.Wait().ok()) << stream.status();
    Result result{y.value().ToHost(stream), x.leaf().gradient().ToHost(stream), {}};
    for (const auto& parameter : parameters.all())
      result.gradients.push_back(parameter->variable.leaf().gradient().ToHost(stream));
    return result;
  }

  template <class Block>
  void ExpectLikeCpu() {
    for (const auto& [compute, tolerance] :
         {std::pair(DType::F32, 1e-4), std::pair(DType::BF16, 0.05)}) {
      for (const float dropout : {0.0f, 0.3f}) {
        SCOPED_TRACE(::testing::Message() << NameOf(compute) << ", dropout " << dropout);
        const Result cpu = Run<Block>(cpu_, compute, dropout),
                     cuda = Run<Block>(*device_, compute, dropout);
        EXPECT_LT(Difference(cuda.output, cpu.output), tolerance);
        EXPECT_LT(Difference(cuda.grad_x, cpu.grad_x), tolerance);
        ASSERT_EQ(cuda.gradients.size(), cpu.gradients.size());
        for (size_t i = 0; i < cpu.gradients.size(); ++i)
          EXPECT_LT(Difference(cuda.gradients[i], cpu.gradients[i]), tolerance) << i;
      }
    }
  }
};

TEST_F(CudaBlocksTest, PreNormBlocksAreThoseOfTheCpu) { ExpectLikeCpu<nn::PreNormBlock>(); }
TEST_F(CudaBlocksTest, PostNormBlocksAreThoseOfTheCpu) { ExpectLikeCpu<nn::PostNormBlock>(); }

}  // namespace
}  // namespace tandem
