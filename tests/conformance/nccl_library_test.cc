// NCCL itself, where it is installed: what works without a GPU, and what fails in time and with a
// named error.
#include "trainer/comm/device/nccl_library.h"

#include <gtest/gtest.h>
#include <thread>

#include "absl/strings/match.h"
#include "kernels/base/device.h"
#include "rpc/store/store.h"
#include "trainer/comm/device/nccl_group.h"

namespace tandem::comm {
namespace {

class NcclLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto nccl = NcclLibrary::Get();
    if (!nccl.ok()) GTEST_SKIP() << nccl.status();
    nccl_ = *nccl;
  }
  const NcclLibrary* nccl_ = nullptr;
};

TEST_F(NcclLibraryTest, MakesUniqueIdsWithoutAGpu) {
  ncclUniqueId first, second;
  ASSERT_TRUE(nccl_->StatusOf("ncclGetUniqueId", nccl_->get_unique_id(&first), nullptr).ok());
  ASSERT_TRUE(nccl_->StatusOf("ncclGetUniqueId", nccl_->get_unique_id(&second), nullptr).ok());
  EXPECT_NE(std::string(first.internal, sizeof(first.internal)),
            std::string(second.internal, sizeof(second.internal)));
}

TEST_F(NcclLibraryTest, WithoutAGpuACommunicatorIsRefusedWithAReason) {
  if (QueryCuda().num_devices > 0) GTEST_SKIP() << "this machine has a GPU";
  ncclUniqueId id;
  ASSERT_TRUE(nccl_->StatusOf("ncclGetUniqueId", nccl_->get_unique_id(&id), nullptr).ok());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  absl::Status refused;
  // Runs on a thread of its own: NCCL leaves a group open on the thread when the driver is missing.
  std::thread([&] {
    refused = nccl_->StatusOf("ncclCommInitRankConfig", nccl_->init_rank(&comm, 2, id, 0, &config),
                              nullptr);
  }).join();
  EXPECT_TRUE(absl::IsInternal(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(std::string(refused.message()), "unhandled cuda error")) << refused;

  if (!QueryCuda().built_in) return;  // nobody has a device to make a group for
  rpc::MemoryStore store;
  const absl::Time start = absl::Now();
  const auto group = MakeNcclGroup(
      {.store = &store, .name = "world", .rank = 0, .size = 2, .device = {DeviceKind::CUDA, 0}},
      start + absl::Seconds(20));
  EXPECT_TRUE(absl::StrContains(std::string(group.status().message()), "choosing CUDA device 0"))
      << group.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST_F(NcclLibraryTest, ResultsBecomeStatusesOfTheRightKind) {
  EXPECT_TRUE(nccl_->StatusOf("f", ncclInProgress, nullptr).ok());
  EXPECT_TRUE(absl::IsUnavailable(nccl_->StatusOf("f", ncclRemoteError, nullptr)));
  EXPECT_TRUE(absl::IsUnavailable(nccl_->StatusOf("f", ncclSystemError, nullptr)));
  EXPECT_TRUE(absl::IsInvalidArgument(nccl_->StatusOf("f", ncclInvalidArgument, nullptr)));
  EXPECT_TRUE(absl::StartsWith(
      std::string(nccl_->StatusOf("f", ncclUnhandledCudaError, nullptr).message()), "f: "));
}

}  // namespace
}  // namespace tandem::comm
