#include "kernels/memory/stream.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/block_cache.h"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem {

namespace {

absl::Status NotWhileRecording(const char* what) {
  return absl::FailedPreconditionError(absl::StrCat(what, " cannot be recorded"));
}

}  // namespace

Stream::Stream(ThreadPool* pool, Device device)
    : pool_(pool),
      device_(device),
      queue_(device.is_cuda() ? cuda::MakeQueue(device.index) : nullptr),
      staging_(device.is_cuda() ? std::make_unique<Staging>(device, queue_) : nullptr) {
  // Drops a previous stream's shortage.
  if (on_cuda()) BlockCache::Of(device)->TakeShortage().IgnoreError();
}

Stream::~Stream() {
  if (!on_cuda()) return;
  Wait().IgnoreError();
  if (is_late()) {
    Abandon(std::move(device_spans_));
    Abandon(std::move(staging_));
  }
  device_spans_ = nullptr;
  staging_ = nullptr;
  cuda::DestroyQueue(queue_);
}

void Stream::set_tracer(Tracer* tracer) {
  if (tracer == tracer_) return;
  if (is_late()) Abandon(std::move(device_spans_));
  device_spans_ = nullptr;
  tracer_ = tracer;
  if (tracer != nullptr && on_cuda())
    device_spans_ = std::make_unique<DeviceSpans>(device_, queue_, tracer);
}

const absl::Status& Stream::status() const {
  if (!on_cuda() || !status_.ok()) return status_;
  absl::Status shortage = BlockCache::Of(device_)->TakeShortage();
  if (shortage.ok()) return status_;
  // A failed device also gives no memory, and its own error says more.
  if (!recording_) status_.Update(cuda::WaitForQueue(queue_, timeout_));
  status_.Update(shortage);
  return status_;
}

absl::Status Stream::Wait() {
  if (recording_)
    Fail(NotWhileRecording("a wait for the device"));
  else if (on_cuda() && !is_late())
    Fail(cuda::WaitForQueue(queue_, timeout_));
  return status();
}

void Stream::Abandon(std::shared_ptr<void> what) {
  static auto* const mutex = new absl::Mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  absl::MutexLock lock(mutex);
  kept->push_back(std::move(what));
}

void Stream::CopyToDevice(void* to, const void* from, size_t num_bytes) {
  TANDEM_CHECK(on_cuda());
  if (recording_) Fail(NotWhileRecording("a copy from the host"));
  if (status().ok()) Fail(staging_->Copy(to, from, num_bytes));
}

absl::Status Stream::CopyToHost(void* to, const void* from, size_t num_bytes) {
  TANDEM_CHECK(on_cuda());
  if (recording_) Fail(NotWhileRecording("a copy to the host"));
  // The copy itself waits, without a deadline, so wait with a deadline first.
  else if (Wait().ok())
    Fail(cuda::CopyAsync(to, from, num_bytes, queue_));
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
