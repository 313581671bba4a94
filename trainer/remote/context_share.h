// One process's share of a distributed context: the frames of the calls made to it, who takes part as far as it knows, and what waits.
// A context ends everywhere, once, well or with the first failure; afterwards nothing of it is left.
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
  // "context 2.17": the trainer's number and its counter.
  static std::string NameOf(uint64_t id);
  std::string name() const { return NameOf(id_); }

  // Not Ok, the reason, once the context is over. A frame that came first keeps a call's number: a second one is InvalidArgument.
  absl::Status Add(std::shared_ptr<Frame> frame);
  absl::Status AddPeer(const std::string& address);
  // A call made by `frame`; `wake` is run if the context ends before EndWait.
  absl::Status BeginWait(uint64_t call, std::shared_ptr<Frame> frame, std::function<void(absl::Status)> wake);
  void EndWait(uint64_t call);

  std::shared_ptr<Frame> FindCalled(uint64_t call) const;
  std::shared_ptr<Frame> FindCaller(uint64_t call) const;
  std::vector<std::string> peers() const;
  absl::Status status() const;
  // Applies what the calls' passes have left for the optimizer's parameters; what is left for others' stays. Returns how many had any.
  uint64_t Step(HostedOptimizer& optimizer, double learning_rate, double gradient_scale, Stream& stream);
  // Fails what waits and lets go of all frames. The first reason stays. REQUIRES: !reason.ok().
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
  ModuleGradients gradients_ ABSL_GUARDED_BY(gradients_mutex_);  // taken from frames and not applied yet
};

}  // namespace tandem::remote
