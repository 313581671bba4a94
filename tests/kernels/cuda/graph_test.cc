// Graphs: a launched recording gives the bits of the same work given to the stream. No other owner
// gets the memory that a graph uses.
// Work that cannot be recorded is an error of the recording alone.
#include "kernels/memory/graph.h"

#include <functional>
#include <set>
#include <utility>

#include "kernels/cuda/kernels.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kRows = 9, kColumns = 40;
constexpr size_t kNumBytes = kRows * kColumns * sizeof(float);

// A chain of operations: kernels, a product, a dropout that knows its step, a copy, bytes set to 0,
// and allocations in between.
class Chain {
 public:
  explicit Chain(Stream& stream) : stream_(stream) {}

  void Fill(uint64_t seed) {
    const Array<float> values = RandomArray<float>({kRows, kColumns}, seed);
    stream_.CopyToDevice(x_.data(), values.values.data(), kNumBytes);
  }
  void Submit(uint64_t step) {
    const std::shared_ptr<Buffer> memory = Buffer::Allocate(kNumBytes, kCudaDevice),
                                  more = Buffer::Allocate(kNumBytes, kCudaDevice);
    const ArrayView between(memory->data(), DType::F32, {kRows, kColumns}),
        copy(more->data(), DType::F32, {kRows, kColumns});
    cuda::Gemm({.a = x_, .b = weight_, .c = between}, stream_);
    cuda::Dropout({between, between, rows_, 0.3f, {42, 7}, step}, stream_);
    cuda::Copy(copy, between, stream_);
    cuda::ScatterAddRows(between, copy, rows_, false, stream_);
    cuda::Add(y_, between, x_, stream_);
  }
  std::vector<float> Result() { return y_.Get().values; }

  std::vector<float> RunEagerly(uint64_t seed, uint64_t step) {
    Fill(seed);
    Submit(step);
    return Result();
  }

 private:
  Stream& stream_;
  OnDevice<float> x_{RandomArray<float>({kRows, kColumns}, 1), stream_},
      weight_{RandomArray<float>({kColumns, kColumns}, 2), stream_};
  OnDevice<float> y_{Poisoned<float>({kRows, kColumns}), stream_};
  OnDevice<int64_t> rows_{Consecutive(kRows, 0), stream_};
};

class GraphTest : public DeviceTest {
 protected:
  std::unique_ptr<Graph> Record(const std::function<void()>& submit) {
    auto graph = Graph::Record(device(), [&](Graph::Recording&) { submit(); });
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    EXPECT_TRUE(device().status().ok()) << device().status().ToString();
    return graph.ok() ? *std::move(graph) : nullptr;
  }
};

TEST_F(GraphTest, EveryLaunchHasTheBitsOfTheWorkItselfOnNewInputsInANewStep) {
  Chain chain(device());
  std::vector<std::vector<float>> wanted;
  for (uint64_t step = 1; step <= 4; ++step)
    wanted.push_back(chain.RunEagerly(/*seed=*/step, step));
  EXPECT_NE(wanted[0], wanted[1]);
  device().StepOnDevice(2);
  const auto graph = Record([&] { chain.Submit(2); });
  ASSERT_NE(graph, nullptr);
  for (const uint64_t step : {3, 1, 4, 4, 2}) {
    chain.Fill(step);
    device().StepOnDevice(step);
    graph->Launch();
    EXPECT_EQ(chain.Result(), wanted[step - 1]) << "step " << step;
  }
  EXPECT_EQ(chain.RunEagerly(3, 3), wanted[2]) << "a graph does not stand in the way of other work";
}

TEST_F(GraphTest, StepAloneChangesWhatIsDropped) {
  Chain chain(device());
  const std::vector<float> first = chain.RunEagerly(1, 1), second = chain.RunEagerly(1, 2);
  EXPECT_NE(first, second);
  device().StepOnDevice(1);
  const auto graph = Record([&] { chain.Submit(1); });
  ASSERT_NE(graph, nullptr);
  device().StepOnDevice(2);
  graph->Launch();
  EXPECT_EQ(chain.Result(), second);
}

TEST_F(GraphTest, NothingRunsWhileItIsRecorded) {
  OnDevice<float> x(Poisoned<float>({100}), device());
  const auto graph = Record([&] { cuda::Fill(x, 3, device()); });
  ASSERT_NE(graph, nullptr);
  EXPECT_TRUE(std::isnan(x.Get()[0]));
  graph->Launch();
  EXPECT_EQ(x.Get()[99], 3);
}

TEST_F(GraphTest, TheHostWorksBetweenTheParts) {
  OnDevice<float> x(Poisoned<float>({100}), device()), y(Poisoned<float>({100}), device());
  std::vector<float> found;
  auto graph = Graph::Record(device(), [&](Graph::Recording& recording) {
    cuda::Fill(x, 3, device());
    recording.DoOnHost([&] {
      found.push_back(x.Get()[99]);  // only work recorded before
      cuda::Fill(y, static_cast<float>(found.size()), device());
    });
    cuda::Add(x, x, y, device());
    recording.DoOnHost([&] { found.push_back(x.Get()[0]); });
    recording.DoOnHost([&] { found.push_back(-1); });  // nothing between
    cuda::Scale(x, x, 2, device());
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(found.empty());
  EXPECT_TRUE(std::isnan(x.Get()[0]));
  (*graph)->Launch();
  EXPECT_EQ(found, (std::vector<float>{3, 4, -1}));
  EXPECT_EQ(x.Get()[50], 8);
  (*graph)->Launch();
  EXPECT_EQ(found, (std::vector<float>{3, 4, -1, 3, 7, -1}));
  EXPECT_EQ(x.Get()[50], 14);
}

TEST_F(GraphTest, AnErrorInOnePartIsTheRecordingsAndNothingOfTheOthersRuns) {
  OnDevice<float> x(Poisoned<float>({100}), device());
  const auto graph = Graph::Record(device(), [&](Graph::Recording& recording) {
    cuda::Fill(x, 1, device());
    recording.DoOnHost([] { ADD_FAILURE(); });
    device().Wait().IgnoreError();
    recording.DoOnHost([] { ADD_FAILURE(); });
    cuda::Fill(x, 2, device());
  });
  EXPECT_EQ(graph.status().message(), "a wait for the device cannot be recorded");
  EXPECT_TRUE(device().status().ok()) << device().status();
  EXPECT_TRUE(std::isnan(x.Get()[0]));
}

TEST_F(GraphTest, MemoryOfTheRecordingIsNobodyElsesWhileTheGraphLives) {
  constexpr size_t kSize = 50000;
  constexpr int64_t kCount = kSize / sizeof(float);
  Buffer::Allocate(kSize, kCudaDevice);  // an idle block of the size
  std::set<void*> used;
  OnDevice<float> result(Poisoned<float>({kCount}), device());
  auto graph = Record([&] {
    const auto first = Buffer::Allocate(kSize, kCudaDevice);
    used.insert(first->data());
    cuda::Fill(ArrayView(first->data(), DType::F32, {kCount}), 5, device());
    cuda::Copy(result, ArrayView(first->data(), DType::F32, {kCount}), device());
  });
  ASSERT_NE(graph, nullptr);
  std::vector<std::shared_ptr<Buffer>> others;
  for (int i = 0; i < 20; ++i) {
    others.push_back(Buffer::Allocate(kSize, kCudaDevice));
    EXPECT_EQ(used.count(others.back()->data()), 0u);
    cuda::Fill(ArrayView(others.back()->data(), DType::F32, {kCount}), i, device());
  }
  graph->Launch();
  EXPECT_EQ(result.Get()[kCount - 1], 5);
  std::vector<float> found(kCount);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(device().CopyToHost(found.data(), others[i]->data(), kSize).ok());
    EXPECT_EQ(found[kCount - 1], static_cast<float>(i))
        << "a launch wrote to memory that is not the graph's";
  }
}

TEST_F(GraphTest, TensorsOfARecordingAreFilledByEachLaunch) {
  std::shared_ptr<Buffer> kept;
  OnDevice<float> x(Poisoned<float>({8}), device());
  auto graph = Record([&] {
    for (int i = 0; i < 3; ++i) Buffer::Allocate(8 * sizeof(float), kCudaDevice);
    kept = Buffer::Allocate(8 * sizeof(float), kCudaDevice);
    cuda::Scale(ArrayView(kept->data(), DType::F32, {8}), x, 2, device());
  });
  ASSERT_NE(graph, nullptr);
  for (const float value : {1.0f, -4.0f}) {
    cuda::Fill(x, value, device());
    graph->Launch();
    std::vector<float> found(8);
    ASSERT_TRUE(device().CopyToHost(found.data(), kept->data(), 8 * sizeof(float)).ok());
    EXPECT_EQ(found[7], 2 * value);
  }
  graph = nullptr;  // before what it filled
}

TEST_F(GraphTest, WhatCannotBeRecordedIsAnErrorOfTheRecordingAlone) {
  Chain chain(device());
  const std::vector<float> wanted = chain.RunEagerly(5, 5);
  float number = 0;
  OnDevice<float> x(Poisoned<float>({1}), device());
  const std::vector<std::pair<const char*, std::function<void()>>> cases{
      {"a copy from the host cannot be recorded",
       [&] { device().CopyToDevice(x.data(), &number, sizeof(number)); }},
      {"a copy to the host cannot be recorded",
       [&] { device().CopyToHost(&number, x.data(), sizeof(number)).IgnoreError(); }},
      {"a wait for the device cannot be recorded", [&] { device().Wait().IgnoreError(); }},
      {"a change of the step cannot be recorded", [&] { chain.Submit(6); }}};
  for (const auto& [why, submit] : cases) {
    const BlockCache* const memory = BlockCache::Of(kCudaDevice).get();
    const auto graph = Graph::Record(device(), [&, &refused = submit](Graph::Recording&) {
      cuda::Fill(x, 1, device());
      refused();
      cuda::Fill(x, 2, device());
    });
    EXPECT_EQ(graph.status().code(), absl::StatusCode::kFailedPrecondition) << why;
    EXPECT_EQ(graph.status().message(), why);
    EXPECT_TRUE(device().status().ok()) << why << ": " << device().status().ToString();
    EXPECT_EQ(BlockCache::Of(kCudaDevice).get(), memory) << why;
    EXPECT_TRUE(std::isnan(x.Get()[0])) << why;
    EXPECT_EQ(chain.RunEagerly(5, 5), wanted) << why;
  }
}

TEST_F(GraphTest, AFirstStepIsNotTakenForTold) {
  Stream& stream = device();
  const auto refused = Graph::Record(stream, [&](Graph::Recording&) {
    stream.StepOnDevice(0);
  });  // 0: what a cell that nobody filled might say
  EXPECT_EQ(refused.status().message(), "a change of the step cannot be recorded");
  uint64_t found = 1;
  const uint64_t* const cell = stream.StepOnDevice(0);
  ASSERT_TRUE(stream.CopyToHost(&found, cell, sizeof(found)).ok());
  EXPECT_EQ(found, 0u);
}

}  // namespace
}  // namespace tandem::kernels
