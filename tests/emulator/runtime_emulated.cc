#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/device.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/memory/cuda_runtime_calls.h"
#include "tests/emulator/emulated_queue.h"

// The emulator's device: host memory, full of NaN when new, and queues that run work at once,
// except collectives of the stand-in for NCCL.
// A queue cannot wait for a collective by itself. The thread that gives the queue a copy waits in
// its place.
namespace tandem {

CudaInfo QueryCuda() {
  return {.built_in = true, .runtime_version = 0, .num_devices = 1, .why_none = ""};
}

double PeakFlops(Device, DType) { return 1e12; }

namespace cuda {

// The number of copies and waits that still succeed. Later ones all fail, as on a device that met
// an error. Negative: no limit.
std::atomic<int> emulated_calls_before_failure = -1;

// The device's free bytes, and the least free bytes since a test last wrote there. Negative: no
// limit.
std::atomic<int64_t> emulated_bytes_left = -1, emulated_fewest_bytes_left = 0;

// The number of ranges that the calling thread has begun and not ended.
thread_local int emulated_ranges = 0;

namespace {

absl::Status Failure() { return absl::InternalError("the emulated device failed"); }

absl::Status Called() {
  int left = emulated_calls_before_failure;
  while (left > 0 && !emulated_calls_before_failure.compare_exchange_weak(left, left - 1)) {
  }
  return left == 0 ? Failure() : absl::OkStatus();
}

// Waits until the queue has done all work given to it so far.
void WaitInTurn(void* queue) {
  if (queue != nullptr) static_cast<EmulatedQueue*>(queue)->WaitUntilIdle();
}

// Blocks of the device's memory, by address. All other addresses are the host's.
struct DeviceBlocks {
  std::mutex mutex;
  std::map<const char*, size_t> blocks;

  void Add(void* memory, size_t num_bytes) {
    const std::lock_guard lock(mutex);
    blocks[static_cast<const char*>(memory)] = num_bytes;
  }
  void Remove(void* memory) {
    const std::lock_guard lock(mutex);
    blocks.erase(static_cast<const char*>(memory));
  }
  bool Hold(const void* place) {
    const std::lock_guard lock(mutex);
    auto after = blocks.upper_bound(static_cast<const char*>(place));
    if (after == blocks.begin()) return false;
    const auto& [begin, num_bytes] = *std::prev(after);
    return static_cast<const char*>(place) < begin + num_bytes;
  }
};
DeviceBlocks& Blocks() {
  static auto* const blocks = new DeviceBlocks;
  return *blocks;
}

EmulatedQueue& QueueOf(void* queue) { return *static_cast<EmulatedQueue*>(queue); }

// Returns the error of a call that CUDA forbids on a recording queue. Spoils the recording.
absl::Status Spoil(void* queue, const char* what,
                   const char* error = "cudaErrorStreamCaptureUnsupported") {
  QueueOf(queue).spoilt = true;
  return absl::InternalError(
      absl::StrCat(what, ": ", error, ", operation not permitted when stream is capturing"));
}
bool IsRecorded(void* queue) { return queue != nullptr && QueueOf(queue).recording; }

// A cudaGraphExec_t.
struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};

// The place of a queue at which the event was last recorded. A queue that is gone counts as past
// all of its places.
struct EmulatedEvent {
  std::mutex mutex;
  std::shared_ptr<EmulatedQueue> queue;
  int64_t number = 0;
  std::chrono::steady_clock::time_point when;

  std::pair<std::shared_ptr<EmulatedQueue>, int64_t> Place() {
    const std::lock_guard lock(mutex);
    return {queue, number};
  }
};

}  // namespace

void* AllocateMemory(size_t num_bytes, int) {
  if (emulated_calls_before_failure == 0) return nullptr;
  constexpr size_t kAlignment = 256;
  void* memory =
      std::aligned_alloc(kAlignment, (num_bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) return nullptr;
  if (emulated_bytes_left >= 0) {
    const auto taken = static_cast<int64_t>(malloc_usable_size(memory));
    if (emulated_bytes_left < taken) {
      std::free(memory);
      return nullptr;
    }
    emulated_bytes_left -= taken;
    emulated_fewest_bytes_left =
        std::min(emulated_fewest_bytes_left.load(), emulated_bytes_left.load());
  }
  std::memset(memory, 0xff, num_bytes);
  Blocks().Add(memory, num_bytes);
  return memory;
}
void FreeMemory(void* memory, int) {
  Blocks().Remove(memory);
  if (emulated_bytes_left >= 0)
    emulated_bytes_left += static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
size_t AvailableBytes(int) {
  return emulated_bytes_left >= 0 ? static_cast<size_t>(emulated_bytes_left) : size_t{1} << 40;
}
void* AllocatePinnedMemory(size_t num_bytes) {
  return emulated_calls_before_failure == 0 ? nullptr : std::malloc(num_bytes);
}
void FreePinnedMemory(void* memory) { std::free(memory); }

void* MakeQueue(int) {
  auto queue = std::make_shared<EmulatedQueue>();
  queue->self = queue;
  return queue.get();
}
void DestroyQueue(void* queue) {
  WaitInTurn(queue);
  const std::shared_ptr<EmulatedQueue> last = std::move(static_cast<EmulatedQueue*>(queue)->self);
}
absl::Status CopyAsync(void* to, const void* from, size_t num_bytes, void* queue) {
  if (IsRecorded(queue)) {
    if (!Blocks().Hold(to) || !Blocks().Hold(from))
      return Spoil(queue, "copying to or from the host");
    QueueOf(queue).Give([=] { std::memmove(to, from, num_bytes); });
    return absl::OkStatus();
  }
  const absl::Status called = Called();
  WaitInTurn(queue);
  if (called.ok() && num_bytes > 0) std::memmove(to, from, num_bytes);
  if (!called.ok())
    std::memset(to, 0xff, num_bytes);  // not by chance what an earlier run left there
  return called;
}
absl::Status SetBytesAsync(void* to, int value, size_t num_bytes, int /*device*/, void* queue) {
  WaitInTurn(queue);
  if (num_bytes > 0) QueueOf(queue).Give([=] { std::memset(to, value, num_bytes); });
  return absl::OkStatus();
}
absl::Status WaitForQueue(void* queue, absl::Duration timeout) {
  if (IsRecorded(queue)) return Spoil(queue, "work on a CUDA device");
  RETURN_IF_ERROR(Called());  // a failed device does not keep the host waiting
  if (queue == nullptr || QueueOf(queue).IsIdleWithin(absl::ToChronoNanoseconds(timeout)))
    return absl::OkStatus();
  return absl::DeadlineExceededError("the emulated device did not end its work in time");
}

absl::Status BeginRecording(void* queue) {
  TANDEM_CHECK(!IsRecorded(queue)) << "cudaErrorIllegalState";
  QueueOf(queue).recording = true;
  QueueOf(queue).spoilt = false;
  return absl::OkStatus();
}
absl::StatusOr<void*> EndRecording(void* queue) {
  EmulatedQueue& recorded = QueueOf(queue);
  TANDEM_CHECK(recorded.recording) << "cudaErrorIllegalState";
  recorded.recording = false;
  auto graph = std::make_unique<EmulatedGraph>();
  graph->work.swap(recorded.recorded);
  if (recorded.spoilt)
    return absl::InternalError("recording a stream: cudaErrorStreamCaptureInvalidated");
  return static_cast<void*>(graph.release());
}
absl::Status LaunchGraph(void* graph, void* queue) {
  if (IsRecorded(queue))
    return Spoil(queue,
                 "launching a graph");  // CUDA makes it a part of the other; nobody wants that here
  RETURN_IF_ERROR(Called());
  WaitInTurn(queue);
  for (const auto& work : static_cast<EmulatedGraph*>(graph)->work) work();
  return absl::OkStatus();
}
void DestroyGraph(void* graph) { delete static_cast<EmulatedGraph*>(graph); }

void* MakeEvent(int, bool) {
  return emulated_calls_before_failure == 0 ? nullptr : new EmulatedEvent;
}
void DestroyEvent(void* event) { delete static_cast<EmulatedEvent*>(event); }
absl::Status RecordEvent(void* event, void* queue) {
  if (event == nullptr) return Failure();
  if (IsRecorded(queue))
    return Spoil(
        queue,
        "recording an event");  // CUDA lets it name a place in the graph; nobody wants that here
  auto& recorded = *static_cast<EmulatedEvent*>(event);
  const std::lock_guard lock(recorded.mutex);
  recorded.queue = queue == nullptr ? nullptr : static_cast<EmulatedQueue*>(queue)->self;
  recorded.number = queue == nullptr ? 0 : recorded.queue->submitted.load();
  recorded.when = std::chrono::steady_clock::now();  // kernels have run by then
  return absl::OkStatus();
}
absl::Status WaitForEvent(void* event, void* queue) {
  if (event == nullptr) return Failure();
  if (IsRecorded(queue))
    return Spoil(queue, "waiting for an event of another stream",
                 "cudaErrorStreamCaptureIsolation");
  const auto [recorded, number] = static_cast<EmulatedEvent*>(event)->Place();
  if (recorded != nullptr && recorded.get() != queue)
    recorded->WaitFor(number);  // a queue's own places need no waiting
  return absl::OkStatus();
}
// Fails with the device but does not count, because the number of queries depends on chance.
absl::StatusOr<bool> QueryEvent(void* event) {
  if (event == nullptr) return Failure();
  if (emulated_calls_before_failure == 0) return Failure();
  const auto [recorded, number] = static_cast<EmulatedEvent*>(event)->Place();
  return recorded == nullptr || recorded->completed >= number;
}
absl::StatusOr<double> SecondsBetween(void* from, void* to) {
  if (from == nullptr || to == nullptr) return Failure();
  return std::chrono::duration<double>(static_cast<EmulatedEvent*>(to)->when -
                                       static_cast<EmulatedEvent*>(from)->when)
      .count();
}

void PushRange(const char*) { ++emulated_ranges; }
void PopRange() { --emulated_ranges; }

absl::Status UseDevice(int) { return absl::OkStatus(); }

}  // namespace cuda

namespace kernels::cuda {

void Report(Stream&, const Operation& operation, cudaError_t error) {
  TANDEM_CHECK(error == cudaSuccess) << operation.name << " of " << operation.array.shape
                                     << ": the grid is beyond a device's limits";
}

}  // namespace kernels::cuda

}  // namespace tandem
