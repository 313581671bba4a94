// One pull or push of a RemoteClient while its messages are in flight. The operation completes
// once: when every message is answered, or with the first error. Threads copy answers of several
// servers at the same time, without a lock.
// Invariant: a failed operation completes only when no thread copies any more. The caller owns its
// memory again after that.
// Thread rule: any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/trace/trace.h"
#include "rpc/future.h"

namespace tandem::ps {

class Operation {
 public:
  // `what` names the operation in errors. messages_of_server[i] counts the messages for ps-i.
  // `span` ends with the operation.
  Operation(std::string what, std::vector<int> messages_of_server, ConcurrentSpan span)
      : what_(std::move(what)),
        span_(std::move(span)),
        unanswered_(std::move(messages_of_server)) {}

  rpc::Future<rpc::Done> future() const { return future_; }
  const std::string& what() const { return what_; }
  bool wanted() const {
    absl::MutexLock lock(&mutex_);
    return !ended_;
  }

  // Enters the operation. Call before reading an answer or the caller's buffers. False: the
  // operation is over; touch nothing. After true, call Leave.
  bool Enter() {
    absl::MutexLock lock(&mutex_);
    if (ended_) return false;
    ++inside_;
    return true;
  }
  // Records that one answer of `server` was taken, with its status.
  void Leave(int server, absl::Status status) {
    absl::ReleasableMutexLock lock(&mutex_);
    --inside_;
    --unanswered_[static_cast<size_t>(server)];
    bool all = true;
    for (int count : unanswered_) all &= count == 0;
    if (!ended_ && (all || !status.ok())) {
      ended_ = true;
      result_ = std::move(status);
    }
    CompleteIfQuiet(lock);
  }
  void Fail(absl::Status reason) {
    absl::ReleasableMutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    result_ = std::move(reason);
    CompleteIfQuiet(lock);
  }
  // Ends the operation with DeadlineExceeded, naming the servers that have not answered.
  void TimeOut(absl::Duration after) {
    std::string missing;
    {
      absl::MutexLock lock(&mutex_);
      for (size_t server = 0; server < unanswered_.size(); ++server) {
        if (unanswered_[server] > 0)
          absl::StrAppend(&missing, missing.empty() ? "ps-" : ", ps-", server);
      }
    }
    Fail(absl::DeadlineExceededError(absl::StrCat(what_, ": no answer from ", missing, " within ",
                                                  absl::FormatDuration(after))));
  }

 private:
  void CompleteIfQuiet(absl::ReleasableMutexLock& lock) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!ended_ || inside_ > 0 || completed_) return;
    completed_ = true;
    const absl::Status result = result_;
    lock.Release();
    span_.End();
    if (result.ok())
      promise_.Set(rpc::Done());
    else
      promise_.Set(result);
  }

  const std::string what_;
  const ConcurrentSpan span_;
  rpc::Promise<rpc::Done> promise_;
  const rpc::Future<rpc::Done> future_ = promise_.future();
  mutable absl::Mutex mutex_;
  std::vector<int> unanswered_ ABSL_GUARDED_BY(mutex_);
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool completed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::ps
