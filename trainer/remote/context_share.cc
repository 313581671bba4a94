#include "trainer/remote/context_share.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::remote {

std::string ContextShare::NameOf(uint64_t id) {
  return absl::StrCat("context ", id >> 48, ".", id & ((uint64_t{1} << 48) - 1));
}

absl::Status ContextShare::Add(std::shared_ptr<Frame> frame) {
  absl::MutexLock lock(&mutex_);
  if (!ended_.ok()) return ended_;
  const uint64_t call = frame->call();
  if (!called_.emplace(call, std::move(frame)).second)
    return absl::InvalidArgumentError(absl::StrCat("call ", call, " came twice"));
  return absl::OkStatus();
}

absl::Status ContextShare::AddPeer(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  if (ended_.ok()) peers_.insert(address);
  return ended_;
}

absl::Status ContextShare::BeginWait(uint64_t call, std::shared_ptr<Frame> frame,
                                     std::function<void(absl::Status)> wake) {
  absl::MutexLock lock(&mutex_);
  if (!ended_.ok()) return ended_;
  callers_[call] = std::move(frame);
  waits_[call] = std::move(wake);
  return absl::OkStatus();
}

void ContextShare::EndWait(uint64_t call) {
  std::function<void(absl::Status)> dropped;  // destroyed outside the lock
  absl::MutexLock lock(&mutex_);
  const auto found = waits_.find(call);
  if (found == waits_.end()) return;
  dropped.swap(found->second);
  waits_.erase(found);
}

std::shared_ptr<Frame> ContextShare::FindCalled(uint64_t call) const {
  absl::MutexLock lock(&mutex_);
  const auto found = called_.find(call);
  return found == called_.end() ? nullptr : found->second;
}

std::shared_ptr<Frame> ContextShare::FindCaller(uint64_t call) const {
  absl::MutexLock lock(&mutex_);
  const auto found = callers_.find(call);
  return found == callers_.end() ? nullptr : found->second.lock();
}

std::vector<std::string> ContextShare::peers() const {
  absl::MutexLock lock(&mutex_);
  return {peers_.begin(), peers_.end()};
}

absl::Status ContextShare::status() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

uint64_t ContextShare::Step(HostedOptimizer& optimizer, double learning_rate, double gradient_scale,
                            Stream& stream) {
  std::vector<std::shared_ptr<Frame>> frames;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [call, frame] : called_) frames.push_back(frame);
  }
  // Sorts by order, because the numbers of nested calls depend on which task of their caller's
  // process ran first.
  std::stable_sort(frames.begin(), frames.end(),
                   [](const auto& a, const auto& b) { return a->order() < b->order(); });
  absl::MutexLock lock(&gradients_mutex_);
  for (const auto& frame : frames) frame->TakeGradients(&gradients_);
  return optimizer.Step(gradients_, learning_rate, gradient_scale, stream);
}

void ContextShare::End(const absl::Status& reason) {
  TANDEM_CHECK(!reason.ok());
  std::map<uint64_t, std::shared_ptr<Frame>> called;
  std::map<uint64_t, std::weak_ptr<Frame>> callers;
  std::map<uint64_t, std::function<void(absl::Status)>> waits;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_.ok()) ended_ = reason;
    called.swap(called_);
    callers.swap(callers_);
    waits.swap(waits_);
  }
  for (const auto& [call, frame] : called) frame->Fail(reason);
  for (const auto& [call, frame] : callers) {
    if (const auto alive = frame.lock()) alive->Fail(reason);
  }
  for (const auto& [call, wake] : waits) wake(reason);
}

}  // namespace tandem::remote
