// The master's core: who is in the job, and the job's phase. Pure: no clock, socket or gRPC. Events
// and the time go in; answers for waiting callers come out. The service shell (service.h) carries
// both. The first failure is the job's failure.
// Thread rule: one thread at a time. Invariant: every event that carries a call is answered exactly
// once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "rpc/master/member.h"

namespace tandem::rpc {

struct MembershipOptions {
  uint32_t num_ps = 0;
  uint32_t num_trainers = 1;
  uint32_t num_workers = 0;  // processes that host remote modules
  uint64_t job_fingerprint = 0;
  double register_timeout_seconds = 60;
  double heartbeat_timeout_seconds = 6;
  // A member silent for this long, and then registered again as a new process, was restarted.
  double restart_silence_seconds = 2.5;
  double register_hold_seconds = 2;  // how long Register waits before the caller must call again
  double linger_seconds = 5;         // how long an ended job waits for its members to leave
};

// `call` is the number of the caller that waits for the answer.
struct RegisterEvent {
  uint64_t call = 0;
  Member self;  // rank unset
  uint32_t incarnation = 1;
  int preferred_index = -1;  // -1: any
  uint64_t job_fingerprint = 0;
  // Drawn anew by each process, and known to it and the master only. A process that was restarted
  // may have the old host, pid and address, but never the old key.
  std::string key;
};
struct HeartbeatEvent {
  uint64_t call = 0;
  Role role{};
  uint32_t rank = 0;
  std::string key;  // the key of the member's RegisterEvent
};
struct LeaveEvent {
  uint64_t call = 0;
  Role role{};
  uint32_t rank = 0;
  absl::Status status;
  std::string key;  // the key of the member's RegisterEvent
};
struct FailEvent {  // a failure in the master's own process
  absl::Status reason;
};
struct TickEvent {};  // about every 100 ms
using Event = std::variant<RegisterEvent, HeartbeatEvent, LeaveEvent, FailEvent, TickEvent>;

// The answer to `call`: `refusal` if not ok, otherwise the job's state after the step. An answer to
// Register also holds the rank, which is set once the job runs.
struct Action {
  uint64_t call = 0;
  absl::Status refusal;
  std::optional<uint32_t> rank;
};

enum class Phase { REGISTERING, RUNNING, FAILED, COMPLETED };

class Membership {
 public:
  Membership(const MembershipOptions& options, double now_seconds);

  std::vector<Action> Step(const Event& event, double now_seconds);

  Phase phase() const { return phase_; }
  const absl::Status& failure() const { return failure_; }  // REQUIRES: phase FAILED
  // Parameter servers by rank, then trainers by rank, then workers by rank.
  // REQUIRES: all have registered once.
  std::vector<Member> members() const;
  // Names the members that the job waits for ("ps-1 and trainer-0"). REQUIRES: phase REGISTERING.
  std::string Missing() const;
  // True if the job has ended and every member has left or had time to leave. If the job failed
  // before it ran: true if every registered process has been told, or had time to call again.
  bool ended() const { return ended_; }

 private:
  struct Entry {
    Member member;  // rank set when the job starts
    uint32_t incarnation = 1;
    int preferred_index = -1;
    std::string key;
    std::optional<uint64_t> held_call;  // a waiting Register
    double held_since = 0;
    double last_seen = 0;
    bool left = false;  // or was told of a failure before the job ran
  };

  void On(const RegisterEvent& event);
  void On(const HeartbeatEvent& event);
  void On(const LeaveEvent& event);
  void On(const FailEvent& event);
  void On(const TickEvent& event);

  absl::Status CheckRegistration(const RegisterEvent& event) const;
  Entry* Find(const RegisterEvent& event);
  Entry* Find(Role role, uint32_t rank);
  // Checks a caller that claims to be the member `entry` (null: no such member). `what` begins the
  // error.
  absl::Status CheckMember(const Entry* entry, const std::string& key, const char* what) const;
  // Finds the member whose place on its host the caller has taken over.
  Entry* Predecessor(const RegisterEvent& event);
  // Refuses a caller whose predecessor may still live. Fails the job for a member that is gone.
  absl::Status RefuseSuccessor(const Entry& predecessor);
  uint32_t Expected(Role role) const;
  uint32_t Registered(Role role) const;
  void AssignRanks(Role role);
  // The ranks of a role that nobody has or wants yet.
  std::vector<uint32_t> FreeRanks(Role role) const;
  void StartIfComplete();
  absl::Status RegistrationTimeout() const;
  void TickRegistering();
  void TickStarted();
  void Fail(absl::Status reason);
  void Refuse(uint64_t call, absl::Status reason) {
    actions_.push_back({call, std::move(reason), std::nullopt});
  }
  void AnswerHeld(Entry& entry, std::optional<uint32_t> rank);

  const MembershipOptions options_;
  const double started_;
  double now_;
  double last_tick_;
  double ended_at_ = 0;  // when the job failed or completed
  Phase phase_ = Phase::REGISTERING;
  absl::Status failure_;
  bool ranked_ = false;  // ranks are assigned
  bool ended_ = false;
  std::vector<Entry> entries_;  // in the order of registration
  std::vector<Action> actions_;
};

}  // namespace tandem::rpc
