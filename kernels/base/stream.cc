#include "kernels/base/stream.h"

#include "kernels/base/check.h"
#include "kernels/base/cuda_runtime_calls.h"

namespace tandem {

Stream::Stream(ThreadPool* pool, Device device)
    : pool_(pool), device_(device), queue_(device.is_cuda() ? cuda::MakeQueue(device.index) : nullptr),
      staging_(device.is_cuda() ? std::make_unique<Staging>(device, queue_) : nullptr) {}

Stream::~Stream() {
  if (!on_cuda()) return;
  cuda::WaitForQueue(queue_).IgnoreError();
  staging_ = nullptr;
  cuda::DestroyQueue(queue_);
}

absl::Status Stream::Wait() {
  if (on_cuda()) Fail(cuda::WaitForQueue(queue_));
  return status_;
}

void Stream::CopyToDevice(void* to, const void* from, size_t num_bytes) {
  TANDEM_CHECK(on_cuda());
  if (status_.ok()) Fail(staging_->Copy(to, from, num_bytes));
}

absl::Status Stream::CopyToHost(void* to, const void* from, size_t num_bytes) {
  TANDEM_CHECK(on_cuda());
  Fail(cuda::CopyAsync(to, from, num_bytes, queue_));
  return Wait();
}

}  // namespace tandem
