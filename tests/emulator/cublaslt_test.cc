// Checks the calls that cuda::Gemm makes to cuBLASLt, against a stand-in for the library.
// gemm_test.cc, linked into the same program, compares the products.
#include "kernels/cuda/cublaslt.h"

#include "kernels/base/dynamic_library.h"
#include "kernels/cuda/device/device_guard.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/graph.h"
#include "tests/emulator/cublaslt_emulated.h"
#include "tests/kernels/random_arrays.h"

extern "C" int emulated_device_waits;  // calls of cudaDeviceSynchronize

namespace tandem::kernels {
namespace {

EmulatedCublasLt& StandIn() {
  const auto library = DynamicLibrary::Load({absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR)});
  TANDEM_CHECK(library.ok()) << library.status().ToString();
  EmulatedCublasLt* found = nullptr;
  const absl::Status status = library->Find(kEmulatedCublasLt, found);
  TANDEM_CHECK(status.ok()) << "not the stand-in: " << status.ToString();
  return *found;
}

class CublasLtTest : public testing::Test {
 protected:
  // c [m, n] = a b on the emulator's device, whose memory is the host's.
  void Multiply(int64_t m, int64_t n, int64_t k, const Array<float>* bias = nullptr) {
    Array<float> a({m, k}, 1), b({k, n}, 1);
    c_ = Array<float>({m, n});
    GemmArgs args{.a = a, .b = b, .c = c_};
    if (bias != nullptr) args.bias = DenseView(bias->values.data(), {n});
    cuda::Gemm(args, stream_);
  }

  ThreadPool pool_{1};
  Stream stream_{&pool_, {DeviceKind::CUDA, 0}};
  Array<float> c_;
  EmulatedCublasLt& library_ = StandIn();
};

TEST_F(CublasLtTest, AlgorithmOfAShapeIsChosenOnce) {
  const int before = library_.num_choices;
  Multiply(31, 32, 33);
  Multiply(31, 32, 33);
  Multiply(31, 32, 33);
  EXPECT_EQ(library_.num_choices, before + 1);
  Multiply(31, 32, 34);
  EXPECT_EQ(library_.num_choices, before + 2);
  EXPECT_TRUE(stream_.status().ok()) << stream_.status().ToString();
  EXPECT_EQ(c_[0], 34);
}

TEST_F(CublasLtTest, BiasesOfOneShapeShareAnAlgorithmAndAreNotMixedUp) {
  const int before = library_.num_choices;
  for (const float value : {1.0f, 2.0f, 3.0f}) {
    const Array<float> bias({36}, value);
    Multiply(35, 36, 37, &bias);
    EXPECT_EQ(c_[0], 37 + value);
  }
  EXPECT_EQ(library_.num_choices, before + 1);
}

TEST_F(CublasLtTest, WorkspaceOfAQueueWaitsOnceForWhoeverHadItsMemoryBefore) {
  const int before = emulated_device_waits;
  Multiply(2, 3, 2000);  // a sum so long wants a workspace
  EXPECT_EQ(emulated_device_waits, before + 1);
  Multiply(2, 3, 2000);
  EXPECT_EQ(emulated_device_waits, before + 1);
}

TEST_F(CublasLtTest, RecordedProductRunsWithEveryLaunchAndAsksForNothing) {
  Multiply(2, 3, 1700);  // with a workspace
  const int choices = library_.num_choices, waits = emulated_device_waits;
  Array<float> a({2, 1700}, 1), b({1700, 3}, 1), c({2, 3}, -1);
  const auto graph = Graph::Record(
      stream_, [&](Graph::Recording&) { cuda::Gemm({.a = a, .b = b, .c = c}, stream_); });
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_EQ(c[0], -1);
  for (const float value : {2.0f, 3.0f}) {
    for (int64_t i = 0; i < a.size(); ++i) a[i] = value;
    (*graph)->Launch();
    EXPECT_EQ(c[5], 1700 * value);
  }
  EXPECT_EQ(library_.num_choices, choices);
  EXPECT_EQ(emulated_device_waits, waits);
}

TEST_F(CublasLtTest, DescriptorsAreDestroyed) {
  Multiply(3, 4, 5);
  EXPECT_EQ(library_.live_descriptors, 0);
}

TEST_F(CublasLtTest, ProductWithoutAlgorithmFailsTheStreamByNameAndShape) {
  library_.has_no_algorithm = true;
  Multiply(41, 42, 43);
  library_.has_no_algorithm = false;
  EXPECT_EQ(stream_.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(stream_.status().message(),
            "gemm of f32 [41, 43] by [43, 42] to f32 [41, 42]: cublasLtMatmulAlgoGetHeuristic: "
            "CUBLAS_STATUS_NOT_SUPPORTED");
  EXPECT_EQ(library_.live_descriptors, 0);
  const int before = library_.num_products;
  Multiply(3, 4, 5);  // dropped
  EXPECT_EQ(library_.num_products, before);
}

// c [m, 8], which is 0.75 everywhere, and its GELU.
struct Activated {
  explicit Activated(int64_t m)
      : a({m, 3}, ToBFloat16(1)), b({3, 8}, ToBFloat16(0.25f)), c({m, 8}), activated({m, 8}) {}
  Array<BFloat16> a, b, c, activated;
};

TEST_F(CublasLtTest, GeluIsPartOfTheProductWhereThereIsAnAlgorithmForIt) {
  Activated x(5);
  const int products = library_.num_products;
  cuda::GemmActivate({.a = x.a, .b = x.b, .c = x.c}, x.activated, Activation::GELU_TANH, stream_);
  EXPECT_EQ(library_.num_products, products + 1);
  EXPECT_EQ(library_.num_gelus, 1);
  cuda::GemmActivate({.a = x.a, .b = x.b, .c = x.c}, x.activated, Activation::GELU, stream_);
  EXPECT_EQ(library_.num_gelus, 1);
  EXPECT_EQ(ToFloat(x.c[0]), 0.75f);
  EXPECT_NEAR(ToFloat(x.activated[0]), 0.58, 2e-3);
  EXPECT_TRUE(stream_.status().ok()) << stream_.status().ToString();
}

TEST_F(CublasLtTest, WithoutAnAlgorithmForItABiasIsAPassOfItsOwnAsDecidedOnce) {
  Activated x(7);
  Array<BFloat16> bias({8}, ToBFloat16(0.5f));
  library_.has_no_bias = true;
  const int products = library_.num_products, choices = library_.num_choices;
  for (int call = 0; call < 2; ++call) {
    cuda::Gemm({.a = x.a, .b = x.b, .c = x.c, .bias = bias}, stream_);
    EXPECT_EQ(ToFloat(x.c[0]), 1.25f);
    library_.has_no_bias = false;
  }
  EXPECT_EQ(library_.num_choices, choices + 2);  // with a bias, and without
  EXPECT_EQ(library_.num_products, products + 2);
  EXPECT_TRUE(stream_.status().ok()) << stream_.status().ToString();
}

TEST_F(CublasLtTest, WithoutSuchAnAlgorithmGeluIsAPassOfItsOwnAsDecidedOnce) {
  Activated x(6);
  library_.has_no_gelu = true;
  const int products = library_.num_products, choices = library_.num_choices;
  cuda::GemmActivate({.a = x.a, .b = x.b, .c = x.c}, x.activated, Activation::GELU_TANH, stream_);
  library_.has_no_gelu = false;
  cuda::GemmActivate({.a = x.a, .b = x.b, .c = x.c}, x.activated, Activation::GELU_TANH, stream_);
  EXPECT_EQ(library_.num_choices, choices + 2);  // with GELU, and without
  EXPECT_EQ(library_.num_products, products + 2);
  EXPECT_EQ(ToFloat(x.c[0]), 0.75f);
  EXPECT_NEAR(ToFloat(x.activated[0]), 0.58, 2e-3);
  EXPECT_EQ(library_.live_descriptors, 0);
  EXPECT_TRUE(stream_.status().ok()) << stream_.status().ToString();
}

TEST_F(CublasLtTest, UnknownDeviceIsAnError) {
  const absl::StatusOr<cuda::CublasLt*> nothing = cuda::CublasLt::Of(7);
  EXPECT_NE(nothing.status().ToString().find("choosing CUDA device 7: cudaErrorInvalidDevice"),
            std::string::npos)
      << nothing.status().ToString();
}

int Current() {
  int device = -1;
  cudaGetDevice(&device);
  return device;
}

TEST(DeviceGuardTest, InnerGuardGivesTheDeviceBackTheOutermostLeavesItsOwn) {
  cudaSetDevice(0);
  {
    const tandem::cuda::DeviceGuard outer(1);
    EXPECT_EQ(Current(), 1);
    {
      const tandem::cuda::DeviceGuard inner(0);
      EXPECT_EQ(Current(), 0);
    }
    EXPECT_EQ(Current(), 1);
    {
      const tandem::cuda::DeviceGuard same(1);
      EXPECT_EQ(same.error(), cudaSuccess);
    }
    EXPECT_EQ(Current(), 1);
  }
  EXPECT_EQ(Current(), 1);
  cudaSetDevice(0);
}

}  // namespace
}  // namespace tandem::kernels
