#include "rpc/master/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "proto/wire.pb.h"
#include "rpc/constant_time.h"

namespace tandem::rpc {
namespace {

constexpr Role kRoles[] = {PS, TRAINER, WORKER};

const char* RoleName(Role role) {
  return role == PS ? "ps" : role == TRAINER ? "trainer" : "worker";
}

// "2 trainers", "1 worker", "2 PS"
std::string Count(uint32_t count, Role role) {
  return role == PS ? absl::StrCat(count, " PS")
                    : absl::StrCat(count, " ", RoleName(role), count == 1 ? "" : "s");
}

// True if the two cannot live at the same time.
bool HasPlaceOf(const Member& a, const Member& b) {
  return a.role == b.role && a.host == b.host && a.pid == b.pid && a.address == b.address;
}

std::string HostPid(const Member& member) { return absl::StrCat(member.host, " pid ", member.pid); }

}  // namespace

std::string MemberName(Role role, uint32_t rank) { return absl::StrCat(RoleName(role), "-", rank); }

Membership::Membership(const MembershipOptions& options, double now_seconds)
    : options_(options), started_(now_seconds), now_(now_seconds), last_tick_(now_seconds) {}

std::vector<Action> Membership::Step(const Event& event, double now_seconds) {
  now_ = now_seconds;
  std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(actions_, {});
}

std::vector<Member> Membership::members() const {
  TANDEM_CHECK(ranked_);
  std::vector<Member> members;
  for (const Entry& entry : entries_) members.push_back(entry.member);
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::make_pair(a.role, a.rank) < std::make_pair(b.role, b.rank);
  });
  return members;
}

void Membership::On(const RegisterEvent& event) {
  Entry* entry = Find(event);
  if (entry == nullptr) {
    if (Entry* predecessor = Predecessor(event);
        predecessor != nullptr && (ranked_ || phase_ == Phase::REGISTERING)) {
      return Refuse(event.call, RefuseSuccessor(*predecessor));
    }
    if (absl::Status refusal = CheckRegistration(event); !refusal.ok())
      return Refuse(event.call, std::move(refusal));
    if (phase_ == Phase::REGISTERING) {
      entry = &entries_.emplace_back();
      entry->member = event.self;
      entry->incarnation = event.incarnation;
      entry->preferred_index = event.preferred_index;
      entry->key = event.key;
    }
  }
  if (entry == nullptr) {  // Too late to join a failed job; the answer is the job's state.
    actions_.push_back({event.call, absl::OkStatus(), std::nullopt});
    return;
  }
  // The caller calls again, so its older call is dead.
  if (entry->held_call.has_value()) AnswerHeld(*entry, std::nullopt);
  entry->held_call = event.call;
  entry->held_since = entry->last_seen = now_;
  if (phase_ == Phase::REGISTERING) {
    StartIfComplete();
  } else {
    AnswerHeld(*entry, ranked_ ? std::optional(entry->member.rank) : std::nullopt);
  }
}

absl::Status Membership::CheckRegistration(const RegisterEvent& event) const {
  const Role role = event.self.role;
  if (role != PS && role != TRAINER && role != WORKER) {
    return absl::InvalidArgumentError("only PS, TRAINER and WORKER processes register");
  }
  const uint32_t expected = Expected(role);
  if (event.job_fingerprint != options_.job_fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s has resolved another job (fingerprint %016x) than the master (%016x): "
                        "start every role with the same job file, "
                        "--set options, --ps and --trainers",
                        HostPid(event.self), event.job_fingerprint, options_.job_fingerprint));
  }
  if (event.preferred_index >= 0 && static_cast<uint32_t>(event.preferred_index) >= expected) {
    return absl::FailedPreconditionError(
        absl::StrCat(RoleName(role), " index ", event.preferred_index,
                     " does not exist: this job has ", Count(expected, role)));
  }
  if (phase_ == Phase::FAILED) return absl::OkStatus();  // hears why
  for (const Entry& entry : entries_) {
    const bool same_place =
        event.preferred_index >= 0 && entry.preferred_index == event.preferred_index;
    if (entry.member.role == role && same_place) {
      return absl::FailedPreconditionError(
          absl::StrCat(RoleName(role), " index ", event.preferred_index, " is already taken by ",
                       HostPid(entry.member)));
    }
  }
  if (Registered(role) >= expected) {
    return absl::FailedPreconditionError(
        absl::StrCat("this job has ", Count(expected, role), " and no place is free"));
  }
  return absl::OkStatus();
}

Membership::Entry* Membership::Find(const RegisterEvent& event) {
  for (Entry& entry : entries_) {
    if (HasPlaceOf(entry.member, event.self) && EqualInConstantTime(entry.key, event.key))
      return &entry;
  }
  return nullptr;
}

// Containers of one host name may each have pid 1, so the wanted rank tells them apart.
Membership::Entry* Membership::Predecessor(const RegisterEvent& event) {
  for (Entry& entry : entries_) {
    if (HasPlaceOf(entry.member, event.self) && entry.preferred_index == event.preferred_index)
      return &entry;
  }
  return nullptr;
}

absl::Status Membership::RefuseSuccessor(const Entry& predecessor) {
  const Member& member = predecessor.member;
  const double silence = now_ - predecessor.last_seen;
  const bool gone = predecessor.left || phase_ == Phase::FAILED || phase_ == Phase::COMPLETED ||
                    silence >= options_.restart_silence_seconds;
  if (ranked_ && gone) {
    const std::string restarted =
        absl::StrCat(MemberName(member.role, member.rank), " (", HostPid(member),
                     ") was restarted, and its state is lost");
    if (!predecessor.left) Fail(absl::UnavailableError(restarted));
    return absl::AbortedError(absl::StrCat(
        "this process has taken the place of another one in a job that has begun: ", restarted));
  }
  return absl::UnavailableError(absl::StrFormat(
      "another process has registered as %s of %s at %s; its place is free when it has been silent "
      "for %g s",
      RoleName(member.role), HostPid(member), member.address, options_.heartbeat_timeout_seconds));
}

uint32_t Membership::Expected(Role role) const {
  return role == PS        ? options_.num_ps
         : role == TRAINER ? options_.num_trainers
                           : options_.num_workers;
}

uint32_t Membership::Registered(Role role) const {
  return static_cast<uint32_t>(
      std::count_if(entries_.begin(), entries_.end(),
                    [&](const Entry& entry) { return entry.member.role == role; }));
}

// Assigns wanted ranks first. Other processes fill the free ranks, grouped by host so that
// neighbours share a machine.
void Membership::AssignRanks(Role role) {
  std::vector<bool> taken(Expected(role), false);
  std::vector<Entry*> others;
  for (Entry& entry : entries_) {
    if (entry.member.role != role) continue;
    if (entry.preferred_index >= 0) {
      entry.member.rank = static_cast<uint32_t>(entry.preferred_index);
      taken[entry.member.rank] = true;
    } else {
      others.push_back(&entry);
    }
  }
  std::stable_sort(others.begin(), others.end(),
                   [](Entry* a, Entry* b) { return a->member.host < b->member.host; });
  uint32_t rank = 0;
  for (Entry* entry : others) {
    while (taken[rank]) ++rank;
    entry->member.rank = rank;
    taken[rank] = true;
  }
}

void Membership::StartIfComplete() {
  for (Role role : kRoles) {
    if (Registered(role) < Expected(role)) return;
  }
  for (Role role : kRoles) AssignRanks(role);
  ranked_ = true;
  phase_ = Phase::RUNNING;
  for (Entry& entry : entries_) {
    entry.last_seen = now_;
    AnswerHeld(entry, entry.member.rank);
  }
}

std::vector<uint32_t> Membership::FreeRanks(Role role) const {
  std::vector<bool> taken(Expected(role), false);
  uint32_t num_others = 0;  // they take the first free ranks
  for (const Entry& entry : entries_) {
    if (entry.member.role != role) continue;
    if (entry.preferred_index >= 0)
      taken[static_cast<size_t>(entry.preferred_index)] = true;
    else
      ++num_others;
  }
  std::vector<uint32_t> free;
  for (uint32_t rank = 0; rank < taken.size(); ++rank) {
    if (taken[rank]) continue;
    if (num_others > 0)
      --num_others;
    else
      free.push_back(rank);
  }
  return free;
}

std::string Membership::Missing() const {
  std::vector<std::string> missing;
  for (Role role : kRoles) {
    for (const uint32_t rank : FreeRanks(role)) missing.push_back(MemberName(role, rank));
  }
  return absl::StrJoin(missing, ", ");
}

absl::Status Membership::RegistrationTimeout() const {
  std::vector<std::string> counts;
  for (Role role : kRoles) {
    const uint32_t registered = Registered(role), expected = Expected(role);
    if (registered < expected)
      counts.push_back(absl::StrCat(registered, " of ", Count(expected, role)));
  }
  return absl::UnavailableError(absl::StrFormat("only %s registered within %g s: missing %s",
                                                absl::StrJoin(counts, " and "),
                                                options_.register_timeout_seconds, Missing()));
}

void Membership::AnswerHeld(Entry& entry, std::optional<uint32_t> rank) {
  if (!entry.held_call.has_value()) return;
  actions_.push_back({*entry.held_call, absl::OkStatus(), rank});
  entry.held_call.reset();
  // A process that learns of a failure before the job ran was never a member. It has nothing to
  // leave.
  if (phase_ == Phase::FAILED && !ranked_) entry.left = true;
}

Membership::Entry* Membership::Find(Role role, uint32_t rank) {
  if (!ranked_) return nullptr;
  for (Entry& entry : entries_) {
    if (entry.member.role == role && entry.member.rank == rank) return &entry;
  }
  return nullptr;
}

absl::Status Membership::CheckMember(const Entry* entry, const std::string& key,
                                     const char* what) const {
  if (entry == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(what, " of a process that is not a member"));
  if (EqualInConstantTime(entry->key, key)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      what, " of ", MemberName(entry->member.role, entry->member.rank),
      " by a process that has not its member_key: members speak for themselves alone"));
}

void Membership::On(const HeartbeatEvent& event) {
  Entry* entry = Find(event.role, event.rank);
  if (absl::Status refusal = CheckMember(entry, event.key, "heartbeat"); !refusal.ok())
    return Refuse(event.call, std::move(refusal));
  entry->last_seen = now_;
  actions_.push_back({event.call, absl::OkStatus(), std::nullopt});
}

void Membership::On(const LeaveEvent& event) {
  Entry* entry = Find(event.role, event.rank);
  if (absl::Status refusal = CheckMember(entry, event.key, "leave"); !refusal.ok())
    return Refuse(event.call, std::move(refusal));
  if (!std::exchange(entry->left, true) && phase_ == Phase::RUNNING) {
    const std::string name = MemberName(event.role, event.rank);
    if (!event.status.ok()) {
      Fail(absl::Status(event.status.code(), absl::StrCat(name, ": ", event.status.message())));
    } else if (event.role != TRAINER) {
      Fail(absl::UnavailableError(
          absl::StrCat(name, " (", HostPid(entry->member), ") left before the job was finished")));
    } else if (std::all_of(entries_.begin(), entries_.end(),
                           [](auto& e) { return e.member.role != TRAINER || e.left; })) {
      phase_ = Phase::COMPLETED;
      ended_at_ = now_;
    }
  }
  actions_.push_back({event.call, absl::OkStatus(), std::nullopt});
  On(TickEvent());
}

void Membership::On(const FailEvent& event) { Fail(event.reason); }

void Membership::Fail(absl::Status reason) {
  if (phase_ == Phase::FAILED || phase_ == Phase::COMPLETED) return;  // the first end counts
  TANDEM_CHECK(!reason.ok());
  phase_ = Phase::FAILED;
  failure_ = std::move(reason);
  ended_at_ = now_;
  for (Entry& entry : entries_) AnswerHeld(entry, std::nullopt);
}

void Membership::On(const TickEvent&) {
  // A long gap between ticks means that this process was stopped or starved. It could not hear
  // members, so they get the time back.
  const double gap = now_ - last_tick_;
  last_tick_ = now_;
  if (gap > options_.heartbeat_timeout_seconds / 3) {
    for (Entry& entry : entries_) entry.last_seen = std::min(now_, entry.last_seen + gap);
  }
  if (phase_ == Phase::REGISTERING) {
    TickRegistering();
  } else {
    TickStarted();
  }
}

void Membership::TickRegistering() {
  for (Entry& entry : entries_) {
    if (entry.held_call.has_value()) {
      entry.last_seen = now_;
      if (now_ - entry.held_since >= options_.register_hold_seconds)
        AnswerHeld(entry, std::nullopt);
    }
  }
  // A process that does not call again died before the start, so its place is free.
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(),
                                [&](const Entry& e) {
                                  return now_ - e.last_seen >= options_.heartbeat_timeout_seconds;
                                }),
                 entries_.end());
  if (now_ - started_ >= options_.register_timeout_seconds) Fail(RegistrationTimeout());
}

void Membership::TickStarted() {
  // The member silent for longest; other silent ones may only be waiting for it.
  Entry* silent = nullptr;
  for (Entry& entry : entries_) {
    const bool lost = !entry.left && now_ - entry.last_seen >= options_.heartbeat_timeout_seconds;
    if (lost && (silent == nullptr || entry.last_seen < silent->last_seen)) silent = &entry;
  }
  if (silent != nullptr && phase_ == Phase::RUNNING) {
    Fail(absl::UnavailableError(
        absl::StrFormat("%s (%s) has not answered for %.1f s: it is stopped, dead or cut off",
                        MemberName(silent->member.role, silent->member.rank),
                        HostPid(silent->member), now_ - silent->last_seen)));
  }
  if (phase_ == Phase::RUNNING) return;
  const bool everybody_left =
      std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.left; });
  ended_ = everybody_left || now_ - ended_at_ >= options_.linger_seconds;
}

}  // namespace tandem::rpc
