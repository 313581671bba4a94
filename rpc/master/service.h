// The master as a service: carries calls of proto/master.proto to the pure cores (membership.h, rendezvous.h) and
// gives them the time. Thread rule: all methods from any thread. The service and its server may go in either order.
#pragma once

#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "rpc/master/membership.h"
#include "rpc/server.h"

namespace tandem::rpc {

class MasterService {
 public:
  explicit MasterService(const MembershipOptions& options, double tick_seconds = 0.1);
  ~MasterService();  // calls that still wait are answered Cancelled
  MasterService(const MasterService&) = delete;
  MasterService& operator=(const MasterService&) = delete;

  // REQUIRES: the server is not started. The time to register starts now.
  void RegisterHandlers(Server& server);
  // Fails the job for a reason of this process (a signal). No effect on a job that has ended.
  void Fail(absl::Status reason);

  Phase phase() const;
  // Returns when the job has ended and its members have left or had the time to: Ok if it completed, otherwise its
  // first failure. Ends by itself: silent members and missing ones fail the job.
  absl::Status WaitForEnd();

 private:
  struct State;
  void Tick(double tick_seconds);

  const std::shared_ptr<State> state_;
  std::thread timer_;
};

}  // namespace tandem::rpc
