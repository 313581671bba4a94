// Arrays that travel beside the computing stream arrive whole, whatever the stream is busy with.
// Memory is not reused too early and does not grow with the number of arrays.
#include "kernels/memory/upload.h"

#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/elementwise.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

std::vector<float> Numbers(size_t count, size_t seed) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>((i * 31 + seed * 7) % 1021);
  return numbers;
}

class UploadTest : public DeviceTest {
 protected:
  static std::unique_ptr<Upload> Begin(Uploads& uploads, const std::vector<float>& numbers) {
    std::unique_ptr<Upload> upload = uploads.Begin(numbers.size() * sizeof(float));
    std::copy(numbers.begin(), numbers.end(), static_cast<float*>(upload->host()));
    return upload;
  }
  std::vector<float> ToHost(const Buffer& buffer, size_t count) {
    std::vector<float> found(count);
    EXPECT_TRUE(device().CopyToHost(found.data(), buffer.data(), count * sizeof(float)).ok());
    return found;
  }
};

TEST_F(UploadTest, ArraysOfEverySizeArriveFromAnotherThread) {
  Uploads uploads(&device());
  for (const size_t count : {0u, 1u, 1000u, 16384u, 16385u, 3000001u}) {
    const std::vector<float> numbers = Numbers(count, count);
    const auto upload = Begin(uploads, numbers);
    std::thread([&] { upload->Send(); }).join();
    const std::shared_ptr<Buffer> array = upload->Receive();
    EXPECT_EQ(array->device(), kCudaDevice);
    EXPECT_EQ(array->num_bytes(), count * sizeof(float));
    EXPECT_EQ(ToHost(*array, count), numbers) << count;
  }
}

// Imitates a training run: the next array travels while kernels read the last one. An array's owner
// goes before its kernels have run.
TEST_F(UploadTest, ManyArraysShareAFewBlocks) {
  constexpr int kSteps = 60;
  constexpr int64_t kCount = 30000;
  Uploads uploads(&device());
  const OnDevice<float> sums(Array<float>(Shape{kSteps, kCount}), device());
  std::deque<std::unique_ptr<Upload>> ahead;
  for (int step = 0; step < kSteps + 2; ++step) {
    if (step < kSteps) {
      ahead.push_back(Begin(uploads, Numbers(kCount, static_cast<size_t>(step))));
      ahead.back()->Send();
    }
    if (step < 2) continue;
    const std::shared_ptr<Buffer> array = ahead.front()->Receive();
    ahead.pop_front();
    const ArrayView from(array->data(), DType::F32, Shape{kCount});
    const ArrayView to(sums.data() + (step - 2) * kCount, DType::F32, Shape{kCount});
    for (int times = 0; times < 5; ++times) AddScaled(to, from, 1.0, device());
    if (step % 10 == 0) {
      ASSERT_TRUE(device().Wait().ok());
    }  // a device may be slower than the host for any number of steps
  }
  const Array<float> found = sums.Get();
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> numbers = Numbers(kCount, static_cast<size_t>(step));
    for (int64_t i = 0; i < kCount; i += 997)
      ASSERT_EQ(found.values[step * kCount + i], 5 * numbers[i]) << step << " " << i;
  }
  EXPECT_LE(uploads.num_blocks(), 16u);
}

// The number of blocks is the number of copies that may be late. Other processes on the card raise
// it, so the test only expects it to settle.
TEST_F(UploadTest, WhatNobodyReceivesMakesRoom) {
  Uploads uploads(&device());
  size_t before = 0;
  for (int round = 0; round < 100 && (round == 0 || uploads.num_blocks() > before); ++round) {
    before = uploads.num_blocks();
    for (int i = 0; i < 20; ++i) {
      const auto upload = Begin(uploads, Numbers(100, 1));
      if (i % 2 == 0) upload->Send();
      EXPECT_TRUE(device().Wait().ok());
    }
  }
  EXPECT_EQ(uploads.num_blocks(), before) << "of twenty arrays some still wanted new memory";
}

TEST_F(UploadTest, ABlockIsNotSharedByTwoArraysAtOnce) {
  Uploads uploads(&device());
  const std::vector<float> first = Numbers(500, 1), second = Numbers(400, 2);
  const auto a = Begin(uploads, first);
  a->Send();
  const std::shared_ptr<Buffer> a_array = a->Receive();
  const auto b = Begin(uploads, second);
  b->Send();
  const std::shared_ptr<Buffer> b_array = b->Receive();
  EXPECT_EQ(ToHost(*a_array, first.size()), first);
  EXPECT_EQ(ToHost(*b_array, second.size()), second);
}

}  // namespace
}  // namespace tandem::kernels
