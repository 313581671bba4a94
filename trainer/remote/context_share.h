// One process's share of a distributed context: the frames of the calls made to this process, the
// known participants, and the waits. A context ends everywhere, once, well or with the first
// failure. Afterwards nothing of it is left.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "trainer/remote/frame.h"

namespace tandem::remote {

class ContextShare {
 public:
  ContextShare(uint64_t id, absl::Time deadline) : id_(id), deadline_(deadline) {}

  uint64_t id() const { return id_; }
  absl::Time deadline() const { return deadline_; }
  // "context 2.17": the trainer's number and the trainer's counter.
  static std::string NameOf(uint64_t id);
  std::string name() const { return NameOf(id_); }

  // Returns the reason if the context is over. A call number belongs to its first frame:
  // InvalidArgument for a second one.
  absl::Status Add(std::shared_ptr<Frame> frame);
  absl::Status AddPeer(const std::string& address);
  // Registers a call made by `frame`. Runs `wake` if the context ends before EndWait.
  absl::Status BeginWait(uint64_t call, std::shared_ptr<Frame> frame,
                         std::function<void(absl::Status)> wake);
  void EndWait(uint64_t call);

  std::shared_ptr<Frame> FindCalled(uint64_t call) const;
  std::shared_ptr<Frame> FindCaller(uint64_t call) const;
  std::vector<std::string> peers() const;
  absl::Status status() const;
  // Applies the gradients that the calls' passes left for the optimizer's parameters. Gradients of
  // other parameters stay. Returns how many parameters had a gradient.
  uint64_t Step(HostedOptimizer& optimizer, double learning_rate, double gradient_scale,
                Stream& stream);
  // Fails all waits and releases all frames. Keeps the first reason.
  // REQUIRES: !reason.ok().
  void End(const absl::Status& reason);

 private:
  const uint64_t id_;
  const absl::Time deadline_;
  mutable absl::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Frame>> called_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::weak_ptr<Frame>> callers_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::function<void(absl::Status)>> waits_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> peers_ ABSL_GUARDED_BY(mutex_);
  absl::Mutex gradients_mutex_;
  // Taken from frames and not yet applied.
  ModuleGradients gradients_ ABSL_GUARDED_BY(gradients_mutex_);
};

}  // namespace tandem::remote
