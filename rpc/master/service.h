// The master as a service: carries calls of proto/master.proto and the time to the pure cores
// (membership.h, rendezvous.h).
// Thread rule: all methods from any thread. The service and its server may be destroyed in either
// order.
#pragma once

#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "rpc/master/membership.h"
#include "rpc/server.h"
#include "rpc/wait_note.h"

namespace tandem::rpc {

class MasterService {
 public:
  explicit MasterService(const MembershipOptions& options, double tick_seconds = 0.1);
  ~MasterService();  // answers Cancelled to calls that still wait
  MasterService(const MasterService&) = delete;
  MasterService& operator=(const MasterService&) = delete;

  // The registration timeout starts now.
  // REQUIRES: the server is not started.
  void RegisterHandlers(Server& server);
  // Fails the job for a reason in this process (a signal). No effect on a job that has ended.
  void Fail(absl::Status reason);

  Phase phase() const;
  // Returns when the job has ended and its members have left or had time to leave. Ok if the job
  // completed, otherwise its first failure. Always returns in the end, because silent and missing
  // members fail the job.
  // `on_wait` is told now and then who is missing while the job waits for its members.
  absl::Status WaitForEnd(const WaitNote& on_wait = nullptr);

 private:
  struct State;
  void Tick(double tick_seconds);

  const std::shared_ptr<State> state_;
  std::thread timer_;
};

}  // namespace tandem::rpc
