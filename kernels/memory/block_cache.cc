#include "kernels/memory/block_cache.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/out_of_memory.h"
#include "kernels/memory/cuda_runtime_calls.h"
#include "kernels/memory/large_memory.h"

namespace tandem {

namespace {

constexpr size_t kUnit = kCacheLine;
// A request takes an idle block of up to twice its size before it asks the system. Steps differ in
// their numbers of tokens, so sizes vary.
constexpr int kClassesPerDoubling = 4;

// Under a sanitizer the cache keeps no idle blocks, so that the sanitizer finds uses after the end.
#ifdef TANDEM_SANITIZED
constexpr bool kKeepIdle = false;
#else
constexpr bool kKeepIdle = true;
#endif

std::atomic<uint64_t>& SystemBlocks() {
  static std::atomic<uint64_t> count{0};
  return count;
}

}  // namespace

int BlockCache::ClassOf(size_t num_bytes) {
  const size_t units = std::max<size_t>(1, num_bytes / kUnit + (num_bytes % kUnit != 0));
  if (units <= kClassesPerDoubling) return static_cast<int>(units) - 1;
  const int doublings = std::bit_width(units - 1) - 3;  // sizes grow by 1 << doublings units
  return kClassesPerDoubling * doublings + static_cast<int>((units - 1) >> doublings);
}

size_t BlockCache::BytesOf(int size_class) {
  if (size_class < kClassesPerDoubling) return kUnit * static_cast<size_t>(size_class + 1);
  const int doublings = size_class / kClassesPerDoubling - 1;
  return kUnit *
         (static_cast<size_t>(size_class - kClassesPerDoubling * doublings + 1) << doublings);
}

std::shared_ptr<BlockCache>& BlockCache::OfThread(Device device) {
  if (!device.is_cuda()) {
    thread_local std::shared_ptr<BlockCache> cache = std::make_shared<BlockCache>();
    return cache;
  }
  thread_local std::map<int, std::shared_ptr<BlockCache>> caches;
  std::shared_ptr<BlockCache>& cache = caches[device.index];
  if (cache == nullptr) cache = std::make_shared<BlockCache>(device);
  return cache;
}

std::shared_ptr<BlockCache> BlockCache::Exchange(Device device, std::shared_ptr<BlockCache> cache) {
  TANDEM_CHECK(cache != nullptr && cache->device_ == device) << "a cache of another device";
  return std::exchange(OfThread(device), std::move(cache));
}

bool BlockCache::KeepsIdle() const { return kKeepIdle || keep_ == Keep::ALL; }

void* BlockCache::AllocateBlock(size_t num_bytes) {
  return device_.is_cuda() ? cuda::AllocateMemory(num_bytes, device_.index)
                           : AllocateArray(num_bytes);
}

void BlockCache::FreeBlock(void* data) {
  if (device_.is_cuda())
    cuda::FreeMemory(data, device_.index);
  else
    std::free(data);
}

uint64_t BlockCache::num_system_blocks() { return SystemBlocks().load(std::memory_order_relaxed); }

BlockCache::Block BlockCache::Take(size_t num_bytes) {
  const int size_class = ClassOf(num_bytes);
  TANDEM_CHECK(size_class < kNumClasses) << "a buffer of " << num_bytes << " bytes";
  {
    absl::MutexLock lock(&mutex_);
    const int last = std::min(kNumClasses, size_class + kClassesPerDoubling + 1);
    for (int c = size_class; c < last; ++c) {
      if (idle_[c].empty()) continue;
      const Block block{idle_[c].back().data, c};
      idle_[c].pop_back();
      idle_bytes_ -= BytesOf(c);
      used_bytes_ += BytesOf(c);
      most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
      return block;
    }
    used_bytes_ += BytesOf(size_class);
    most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
  }
  SystemBlocks().fetch_add(1, std::memory_order_relaxed);
  // Under a sanitizer the block ends where the request does.
  const size_t block_bytes = KeepsIdle() ? BytesOf(size_class) : num_bytes;
  void* data = AllocateBlock(block_bytes);
  if (data == nullptr && keep_ != Keep::ALL) {
    FreeIdle();
    data = AllocateBlock(block_bytes);
  }
  if (data == nullptr && !device_.is_cuda()) OutOfMemory(num_bytes);
  if (data != nullptr) return {data, size_class};
  NoteShortage(num_bytes);
  return {Nowhere(), size_class};
}

void BlockCache::NoteShortage(size_t num_bytes) {
  absl::MutexLock lock(&mutex_);
  shortage_.Update(absl::ResourceExhaustedError(
      absl::StrCat("CUDA device ", device_.index, " gives no memory for an array of ", num_bytes,
                   " bytes beside ", used_bytes_ >> 20,
                   " MiB that are in use; a smaller batch, or more parts of it (train.accumulate), "
                   "needs less")));
  short_ = true;
}

absl::Status BlockCache::TakeShortage() {
  if (!short_) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  short_ = false;
  return std::exchange(shortage_, absl::OkStatus());
}

void BlockCache::Return(Block block) {
  absl::MutexLock lock(&mutex_);
  used_bytes_ -= BytesOf(block.size_class);
  if (block.data == Nowhere()) return;
  if (!KeepsIdle()) {
    FreeBlock(block.data);
    return;
  }
  idle_bytes_ += BytesOf(block.size_class);
  idle_[block.size_class].push_back({block.data, ++num_returns_});
  while (keep_ != Keep::ALL && idle_bytes_ > 2 * most_used_bytes_) EvictOldest();
}

void BlockCache::FreeIdle() {
  TANDEM_CHECK(keep_ != Keep::ALL) << "recorded kernels use its blocks";
  absl::MutexLock lock(&mutex_);
  while (idle_bytes_ > 0) EvictOldest();
}

size_t BlockCache::used_bytes() const {
  absl::MutexLock lock(&mutex_);
  return used_bytes_;
}

size_t BlockCache::num_bytes() const {
  absl::MutexLock lock(&mutex_);
  return idle_bytes_ + used_bytes_;
}

void BlockCache::EvictOldest() {
  int oldest = -1;
  for (int c = 0; c < kNumClasses; ++c) {
    if (idle_[c].empty()) continue;
    if (oldest < 0 || idle_[c].front().since < idle_[oldest].front().since) oldest = c;
  }
  FreeBlock(idle_[oldest].front().data);
  idle_[oldest].erase(idle_[oldest].begin());
  idle_bytes_ -= BytesOf(oldest);
}

BlockCache::~BlockCache() {
  for (const std::vector<Idle>& blocks : idle_) {
    for (const Idle& block : blocks) FreeBlock(block.data);
  }
}

}  // namespace tandem
