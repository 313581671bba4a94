#include "kernels/base/stream.h"

#include "kernels/base/cuda_runtime_calls.h"

namespace tandem {

Stream::Stream(ThreadPool* pool, Device device)
    : pool_(pool), device_(device), queue_(device.is_cuda() ? cuda::MakeQueue(device.index) : nullptr) {}

Stream::~Stream() {
  if (on_cuda()) cuda::DestroyQueue(queue_);
}

absl::Status Stream::Wait() {
  if (on_cuda()) Fail(cuda::WaitForQueue(queue_));
  return status_;
}

}  // namespace tandem
