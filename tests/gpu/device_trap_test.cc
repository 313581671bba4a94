// A kernel with impossible arguments traps, which ends all work of the process on the device. So
// the kernel runs in a process of its own.
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>

#include "kernels/cuda/kernels.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

// Gathers a row that the table does not have and waits. Exits with 0 if the stream reports an error
// that stays.
[[noreturn]] void GatherARowThatIsNotThere() {
  ThreadPool pool(1);
  Stream stream(&pool, kCudaDevice);
  Array<int64_t> index({1});
  index[0] = 9;
  const OnDevice<float> table(Poisoned<float>({4, 8}), stream),
      output(Poisoned<float>({1, 8}), stream);
  const OnDevice<int64_t> rows(index, stream);
  cuda::GatherRows(output, table, rows, stream);
  const absl::Status first = stream.Wait();
  std::fprintf(stderr, "%s\n", first.ToString().c_str());
  cuda::GatherRows(output, table, rows, stream);  // dropped
  std::_Exit(!first.ok() && stream.Wait() == first ? 0 : 1);
}

TEST(DeviceTrapTest, AKernelThatDiesIsTheStreamsErrorFromThenOn) {
  if (const CudaInfo info = QueryCuda(); info.num_devices == 0) GTEST_SKIP() << info.why_none;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(GatherARowThatIsNotThere(), testing::ExitedWithCode(0), "CUDA device: cudaError");
}

}  // namespace
}  // namespace tandem::kernels
