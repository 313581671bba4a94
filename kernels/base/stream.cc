#include "kernels/base/stream.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/cuda_runtime_calls.h"
#include "kernels/base/status_macros.h"

namespace tandem {

namespace {

absl::Status NotWhileRecording(const char* what) {
  return absl::FailedPreconditionError(absl::StrCat(what, " cannot be recorded"));
}

}  // namespace

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
  if (recording_) Fail(NotWhileRecording("a wait for the device"));
  else if (on_cuda()) Fail(cuda::WaitForQueue(queue_));
  return status_;
}

void Stream::CopyToDevice(void* to, const void* from, size_t num_bytes) {
  TANDEM_CHECK(on_cuda());
  if (recording_) Fail(NotWhileRecording("a copy from the host"));
  if (status_.ok()) Fail(staging_->Copy(to, from, num_bytes));
}

absl::Status Stream::CopyToHost(void* to, const void* from, size_t num_bytes) {
  TANDEM_CHECK(on_cuda());
  if (recording_) Fail(NotWhileRecording("a copy to the host"));
  else Fail(cuda::CopyAsync(to, from, num_bytes, queue_));
  return Wait();
}

const uint64_t* Stream::StepOnDevice(uint64_t step) {
  TANDEM_CHECK(on_cuda());
  const bool is_there = step_memory_ != nullptr && step_ == step;
  if (!is_there && recording_) Fail(NotWhileRecording("a change of the step"));
  if (!is_there && status().ok()) {
    if (step_memory_ == nullptr) step_memory_ = Buffer::Allocate(sizeof(step), device_);
    CopyToDevice(step_memory_->data(), &step, sizeof(step));
    step_ = step;
  }
  return step_memory_ == nullptr ? nullptr : static_cast<const uint64_t*>(step_memory_->data());
}

absl::Status Stream::BeginRecording() {
  TANDEM_CHECK(on_cuda() && !recording_ && status().ok()) << status().ToString();
  RETURN_IF_ERROR(cuda::BeginRecording(queue_));
  recording_ = true;
  return absl::OkStatus();
}

absl::StatusOr<void*> Stream::EndRecording() {
  TANDEM_CHECK(recording_);
  recording_ = false;
  absl::StatusOr<void*> graph = cuda::EndRecording(queue_);
  const absl::Status submitted = status();
  status_ = absl::OkStatus();
  if (submitted.ok() || !graph.ok()) return submitted.ok() ? graph : submitted;
  cuda::DestroyGraph(*graph);
  return submitted;
}

}  // namespace tandem
