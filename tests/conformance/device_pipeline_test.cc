// A pipeline whose stages exchange arrays of a device, by every kind of group.
// Runs on the emulated device, over the stand-in for NCCL. On one GPU: tests/gpu.
#include "tests/conformance/group_harness.h"
#include "tests/gpu/staged_gpt.h"

namespace tandem::comm {
namespace {

class DevicePipelineTest : public ::testing::TestWithParam<Kind> {};

TEST_P(DevicePipelineTest, StagesTrainAsTheWholeModel) {
  RunRanks(
      GetParam(), 4,
      [](ProcessGroup& stages) {
        tandem::testing::ExpectStagesTrainAsTheWhole({.microbatches = 5, .steps = 3}, stages,
                                                     {DeviceKind::CUDA, 0});
      },
      absl::Seconds(60));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DevicePipelineTest, ::testing::ValuesIn(TestedKinds()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace tandem::comm
