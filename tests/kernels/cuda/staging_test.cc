// Copies between host and device through a stream: of any size, and more at once than there are
// blocks.
// The caller may overwrite the source as soon as the call returns.
#include <gtest/gtest.h>
#include <vector>

#include "kernels/memory/buffer.h"
#include "kernels/memory/stream.h"

namespace tandem {
namespace {

constexpr Device kDevice{DeviceKind::CUDA, 0};

class StagingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaInfo info = QueryCuda();
    if (info.num_devices == 0) GTEST_SKIP() << info.why_none;
    stream_ = std::make_unique<Stream>(&pool_, kDevice);
  }
  static std::vector<char> Pattern(size_t num_bytes, size_t seed) {
    std::vector<char> bytes(num_bytes);
    for (size_t i = 0; i < num_bytes; ++i)
      bytes[i] = static_cast<char>((i * 31 + i / 251 + seed * 7) % 253);
    return bytes;
  }

  ThreadPool pool_{1};
  std::unique_ptr<Stream> stream_;
};

TEST_F(StagingTest, CopiesOfEverySizeArriveThoughTheirSourceIsOverwritten) {
  for (const size_t num_bytes : {size_t{0}, size_t{1}, size_t{65536}, size_t{65537},
                                 size_t{4} << 20, (size_t{9} << 20) + 5}) {
    const std::vector<char> expected = Pattern(num_bytes, num_bytes);
    std::vector<char> source = expected, found(num_bytes, 'x');
    const auto buffer = Buffer::Allocate(num_bytes, kDevice);
    stream_->CopyToDevice(buffer->data(), source.data(), num_bytes);
    std::fill(source.begin(), source.end(), '!');
    ASSERT_TRUE(stream_->CopyToHost(found.data(), buffer->data(), num_bytes).ok());
    EXPECT_TRUE(found == expected) << num_bytes;
  }
}

TEST_F(StagingTest, MoreCopiesThanBlocksArrive) {
  constexpr size_t kCopies = 200, kMostBytes = 300000;
  const auto buffer = Buffer::Allocate(kCopies * kMostBytes, kDevice);
  const auto size_of = [](size_t i) { return (i * 7919 + 1) % kMostBytes + 1; };
  std::vector<char> source;
  for (size_t i = 0; i < kCopies; ++i) {
    source = Pattern(size_of(i), i);
    stream_->CopyToDevice(static_cast<char*>(buffer->data()) + i * kMostBytes, source.data(),
                          source.size());
  }
  for (size_t i = 0; i < kCopies; ++i) {
    std::vector<char> found(size_of(i));
    ASSERT_TRUE(stream_
                    ->CopyToHost(found.data(), static_cast<char*>(buffer->data()) + i * kMostBytes,
                                 found.size())
                    .ok());
    EXPECT_TRUE(found == Pattern(size_of(i), i)) << i;
  }
}

}  // namespace
}  // namespace tandem
