#include "kernels/base/stream.h"

#include "kernels/base/block_cache.h"
#include "kernels/base/check.h"
#include "kernels/base/cuda_runtime_calls.h"

namespace tandem {

Stream::Stream(ThreadPool* pool, Device device)
    : pool_(pool), device_(device), queue_(device.is_cuda() ? cuda::MakeQueue(device.index) : nullptr),
      staging_(device.is_cuda() ? std::make_unique<Staging>(device, queue_) : nullptr) {
  if (on_cuda()) BlockCache::Of(device)->TakeShortage().IgnoreError();  // an older stream's
}

Stream::~Stream() {
  if (!on_cuda()) return;
  cuda::WaitForQueue(queue_).IgnoreError();
  device_spans_ = nullptr;
  staging_ = nullptr;
  cuda::DestroyQueue(queue_);
}

void Stream::set_tracer(Tracer* tracer) {
  if (tracer == tracer_) return;
  device_spans_ = nullptr;
  tracer_ = tracer;
  if (tracer != nullptr && on_cuda()) device_spans_ = std::make_unique<DeviceSpans>(device_, queue_, tracer);
}

const absl::Status& Stream::status() const {
  if (on_cuda() && status_.ok()) status_.Update(BlockCache::Of(device_)->TakeShortage());
  return status_;
}

absl::Status Stream::Wait() {
  if (on_cuda()) Fail(cuda::WaitForQueue(queue_));
  return status();
}

void Stream::CopyToDevice(void* to, const void* from, size_t num_bytes) {
  TANDEM_CHECK(on_cuda());
  if (status().ok()) Fail(staging_->Copy(to, from, num_bytes));
}

absl::Status Stream::CopyToHost(void* to, const void* from, size_t num_bytes) {
  TANDEM_CHECK(on_cuda());
  if (status().ok()) Fail(cuda::CopyAsync(to, from, num_bytes, queue_));
  return Wait();
}

}  // namespace tandem
