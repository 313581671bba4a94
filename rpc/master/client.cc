#include "rpc/master/client.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "proto/master.pb.h"
#include "rpc/channel.h"
#include "rpc/protocol_version.h"
#include "rpc/role_trace.h"

namespace tandem::rpc {
namespace {

// The most bytes of a member's reason for leaving: a part of the largest request.
constexpr size_t kMaxReasonBytes = 16384;

constexpr absl::Duration kRegisterCall = absl::Seconds(4);  // the master holds a Register for 2 s
constexpr absl::Duration kHold = absl::Seconds(10);   // limit of one store wait; longer: call again
constexpr absl::Duration kMargin = absl::Seconds(5);  // travel time for the answer of a held call
constexpr int kFailedBeatsOfALostMaster = 3;
// A member that only waits for the job's end beats this often, to hear of the end soon.
constexpr absl::Duration kWaitingPeriod = absl::Milliseconds(250);

// 256 random bits. Whoever knows the key speaks for this member.
std::string DrawMemberKey() {
  std::random_device device;
  std::string key;
  for (int i = 0; i < 8; ++i) absl::StrAppend(&key, absl::Hex(device(), absl::kZeroPad8));
  return key;
}

// Makes one blocking call of MasterService.
template <class Reply, class Request>
absl::StatusOr<Reply> Call(Channel& channel, const char* method, const Request& request,
                           CallOptions options) {
  auto future = channel.Call(absl::StrCat("/tandem.MasterService/", method),
                             Payload(request.SerializeAsString()), options);
  ASSIGN_OR_RETURN(Payload bytes, future.Wait(absl::Now() + options.deadline + kMargin));
  Reply reply;
  const std::string_view flat = bytes.Flatten();
  if (!reply.ParseFromArray(flat.data(), static_cast<int>(flat.size()))) {
    return absl::InternalError(
        absl::StrCat(method, ": the master's reply is not a well-formed message"));
  }
  return reply;
}

absl::Status FailureOf(const JobState& job) {
  if (job.phase() != FAILED) return absl::OkStatus();
  const absl::Status status(static_cast<absl::StatusCode>(job.code()), job.message());
  return status.ok() ? absl::InternalError("the job failed without a reason") : status;
}

absl::StatusOr<Assignment> AssignmentFrom(const MemberSelf& self, const RegisterReply& reply) {
  Assignment assignment{.role = self.role,
                        .rank = reply.rank(),
                        .incarnation = self.incarnation,
                        .job_epoch = reply.job_epoch(),
                        .generation = reply.generation(),
                        .job_token = reply.job_token(),
                        .shard_map = {},
                        .members = {}};
  for (const MemberInfo& member : reply.members()) {
    assignment.members.push_back(
        {member.role(), member.rank(), member.host(), member.pid(), member.address()});
  }
  std::vector<ShardMap::Run> runs;
  for (const ShardRun& run : reply.shard_map().runs()) runs.push_back({run.num_shards(), run.ps()});
  const auto num_ps = static_cast<uint32_t>(assignment.MembersOf(PS).size());
  ASSIGN_OR_RETURN(assignment.shard_map,
                   ShardMap::FromRuns(reply.shard_map().version(), num_ps, runs));
  return assignment;
}

absl::Status OfAnotherJob(const std::string& master_address, const absl::Status& why) {
  return absl::UnauthenticatedError(
      absl::StrCat("the master at ", master_address,
                   " belongs to another job, or this process has not been given the job's secret: ",
                   std::string(why.message())));
}

// Registers until the job runs. The master holds a call for only 2 s, so every answer is a sign of
// life.
absl::StatusOr<Assignment> Register(Channel& channel, const MemberSelf& self,
                                    const std::string& member_key,
                                    const MasterClientOptions& options) {
  RegisterRequest request;
  request.mutable_header()->set_protocol_version(kProtocolVersion);
  request.mutable_header()->mutable_sender()->set_role(self.role);
  request.mutable_header()->mutable_sender()->set_incarnation(self.incarnation);
  request.set_host(self.host);
  request.set_pid(self.pid);
  request.set_address(self.address);
  request.set_preferred_index(self.preferred_index);
  request.set_job_fingerprint(self.job_fingerprint);
  request.set_member_key(member_key);
  absl::Time last_answer = absl::Now();
  PeriodicNote note(options.on_wait);
  const std::string master = absl::StrCat("master-0 at ", channel.address());
  std::string missing = master, why_silent;
  while (true) {
    const absl::Duration left = last_answer + options.connect_timeout - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::UnavailableError(absl::StrFormat("%s unreachable for %g s%s%s", master,
                                                    absl::ToDoubleSeconds(options.connect_timeout),
                                                    why_silent.empty() ? "" : ": ", why_silent));
    }
    note.Tell(absl::StrCat("waiting for ", missing));
    auto reply =
        Call<RegisterReply>(channel, "Register", request,
                            {.deadline = std::min(left, kRegisterCall), .idempotent = true});
    if (reply.ok()) {
      last_answer = absl::Now();
      missing = reply->job().message();
      RETURN_IF_ERROR(FailureOf(reply->job()));
      if (reply->job().phase() == RUNNING) {
        if (const absl::Status proven = options.credentials.CheckProof(reply->secret_proof());
            !proven.ok()) {
          return OfAnotherJob(channel.address(), proven);
        }
        return AssignmentFrom(self, *reply);
      }
      if (reply->job().phase() == COMPLETED)
        return absl::FailedPreconditionError("the job has completed already");
    } else if (absl::IsUnauthenticated(reply.status())) {
      return OfAnotherJob(channel.address(), reply.status());
    } else if (!absl::IsUnavailable(reply.status()) && !absl::IsDeadlineExceeded(reply.status())) {
      return reply.status();
    } else {
      missing = master;
      if (absl::IsUnavailable(reply.status()))  // a deadline does not say why
        why_silent = std::string(reply.status().message());
    }
  }
}

}  // namespace

struct MasterClient::State {
  State(const std::string& master_address, std::function<void(absl::Status)> on_failure,
        const MasterClientOptions& options)
      : options(options),
        channel(master_address, options.credentials),
        on_failure(std::move(on_failure)),
        store(*this) {}

  RequestHeader Header() const {
    RequestHeader header;
    header.set_protocol_version(kProtocolVersion);
    header.set_job_epoch(assignment.job_epoch);
    header.set_generation(assignment.generation);
    header.mutable_sender()->set_role(assignment.role);
    header.mutable_sender()->set_rank(assignment.rank);
    header.mutable_sender()->set_incarnation(assignment.incarnation);
    header.set_shard_map_version(assignment.shard_map.version());
    return header;
  }
  absl::Status Failure() {
    absl::MutexLock lock(&mutex);
    return failure;
  }
  // Begins the span of a call of this member; its header gets the call's number. Does nothing
  // unless calls are traced.
  ConcurrentSpan TraceCall(const char* method, RequestHeader* header);
  void BeatUntilTheEnd();
  bool Beat(absl::Time* last_answer, int* failed_beats);
  void JobFailed(absl::Status reason);

  class MasterStore : public Store {
   public:
    explicit MasterStore(State& state) : state_(state) {}
    absl::Status Set(const std::string& key, const std::string& value) override;
    absl::StatusOr<std::string> Get(const std::string& key, absl::Time deadline) override;
    absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override;
    absl::Status Wait(const std::string& key, int64_t value, absl::Time deadline) override;

   private:
    template <class Reply, class Request>
    absl::StatusOr<Reply> Now(const char* method, Request request, bool idempotent);
    template <class Reply, class Request>
    absl::StatusOr<Reply> Held(const char* method, Request request, absl::Time deadline);
    State& state_;
  };

  const MasterClientOptions options;
  Channel channel;
  const std::function<void(absl::Status)> on_failure;
  const std::string member_key = DrawMemberKey();
  Assignment assignment;
  MasterStore store;
  std::thread heart;
  absl::Mutex mutex;
  absl::Status failure ABSL_GUARDED_BY(mutex);
  bool telling ABSL_GUARDED_BY(mutex) = false;  // on_failure runs
  bool completed ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::shared_ptr<Tracer> tracer ABSL_GUARDED_BY(mutex);
  bool wants_beat ABSL_GUARDED_BY(mutex) = false;  // beat now, before the period ends
};

ConcurrentSpan MasterClient::State::TraceCall(const char* method, RequestHeader* header) {
  absl::MutexLock lock(&mutex);
  if (tracer == nullptr) return {};
  header->set_trace_id(uint64_t{assignment.rank + 1} << 40 | tracer->NextCall());
  return {tracer, CallSpan(method, header->trace_id())};
}

void MasterClient::State::BeatUntilTheEnd() {
  absl::Time last_answer = absl::Now();
  int failed_beats = 0;
  while (true) {
    const absl::Time next = absl::Now() + options.heartbeat_period;
    const bool wanted = [this] {
      absl::MutexLock lock(&mutex);
      return wants_beat;
    }();
    if (!Beat(&last_answer, &failed_beats)) return;
    absl::MutexLock lock(&mutex);
    if (wanted) wants_beat = false;
    auto wake = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping || wants_beat; };
    mutex.AwaitWithDeadline(absl::Condition(&wake), next);
    if (stopping) return;
  }
}

// Sends one heartbeat. Returns false when no more are needed.
bool MasterClient::State::Beat(absl::Time* last_answer, int* failed_beats) {
  HeartbeatRequest request;
  *request.mutable_header() = Header();
  request.set_member_key(member_key);
  const ConcurrentSpan span = TraceCall("Heartbeat", request.mutable_header());
  const auto reply =
      Call<HeartbeatReply>(channel, "Heartbeat", request, {.deadline = options.heartbeat_deadline});
  span.End();
  if (reply.ok()) {
    *last_answer = absl::Now();
    *failed_beats = 0;
    if (absl::Status reason = FailureOf(reply->job()); !reason.ok()) {
      JobFailed(std::move(reason));
      return false;
    }
    absl::MutexLock lock(&mutex);
    completed = reply->job().phase() == COMPLETED;
    return true;
  }
  // Another master has taken the address, so this job is gone.
  if (absl::IsFailedPrecondition(reply.status()) || absl::IsUnauthenticated(reply.status())) {
    JobFailed(absl::UnavailableError(
        std::string(reply.status().message().data(), reply.status().message().size())));
    return false;
  }
  // Silence alone does not prove the master dead, because this process may have been stopped. So
  // also count failed heartbeats.
  ++*failed_beats;
  const absl::Duration silence = absl::Now() - *last_answer;
  if (silence < options.master_timeout || *failed_beats < kFailedBeatsOfALostMaster) return true;
  const absl::Status lost = absl::UnavailableError(
      absl::StrFormat("master-0 (%s) has not answered for %.1f s: it is stopped, dead or cut off",
                      channel.address(), absl::ToDoubleSeconds(silence)));
  JobFailed(lost);
  channel.Abort(lost);
  return false;
}

void MasterClient::State::JobFailed(absl::Status reason) {
  {
    absl::MutexLock lock(&mutex);
    if (stopping || completed || !failure.ok()) return;
    failure = reason;
    telling = true;
  }
  if (on_failure) on_failure(std::move(reason));
  absl::MutexLock lock(&mutex);
  telling = false;
}

template <class Reply, class Request>
absl::StatusOr<Reply> MasterClient::State::MasterStore::Now(const char* method, Request request,
                                                            bool idempotent) {
  RETURN_IF_ERROR(state_.Failure());
  const ConcurrentSpan span = state_.TraceCall(method, request.mutable_header());
  auto reply =
      Call<Reply>(state_.channel, method, request, {.deadline = kHold, .idempotent = idempotent});
  span.End();
  return reply;
}

// Waits possibly longer than the master holds one call, by repeated calls.
template <class Reply, class Request>
absl::StatusOr<Reply> MasterClient::State::MasterStore::Held(const char* method, Request request,
                                                             absl::Time deadline) {
  while (true) {
    RETURN_IF_ERROR(state_.Failure());
    const absl::Duration hold = std::clamp(deadline - absl::Now(), absl::ZeroDuration(), kHold);
    request.set_timeout_seconds(absl::ToDoubleSeconds(hold));
    const ConcurrentSpan span = state_.TraceCall(method, request.mutable_header());
    auto reply = Call<Reply>(state_.channel, method, request,
                             {.deadline = hold + kMargin, .idempotent = true});
    span.End();
    if (reply.ok()) return reply;
    RETURN_IF_ERROR(state_.Failure());
    if (!absl::IsDeadlineExceeded(reply.status()) || absl::Now() >= deadline) return reply.status();
  }
}

absl::Status MasterClient::State::MasterStore::Set(const std::string& key,
                                                   const std::string& value) {
  StoreSetRequest request;
  *request.mutable_header() = state_.Header();
  request.set_key(key);
  request.set_value(value);
  return Now<StoreSetReply>("Set", request, /*idempotent=*/true).status();
}

absl::StatusOr<std::string> MasterClient::State::MasterStore::Get(const std::string& key,
                                                                  absl::Time deadline) {
  StoreGetRequest request;
  *request.mutable_header() = state_.Header();
  request.set_key(key);
  ASSIGN_OR_RETURN(StoreGetReply reply, Held<StoreGetReply>("Get", std::move(request), deadline));
  return std::move(*reply.mutable_value());
}

absl::StatusOr<int64_t> MasterClient::State::MasterStore::Add(const std::string& key,
                                                              int64_t amount) {
  StoreAddRequest request;
  *request.mutable_header() = state_.Header();
  request.set_key(key);
  request.set_amount(amount);
  ASSIGN_OR_RETURN(const StoreAddReply reply,
                   Now<StoreAddReply>("Add", request, /*idempotent=*/false));
  return reply.value();
}

absl::Status MasterClient::State::MasterStore::Wait(const std::string& key, int64_t value,
                                                    absl::Time deadline) {
  StoreWaitRequest request;
  *request.mutable_header() = state_.Header();
  request.set_key(key);
  request.set_value(value);
  return Held<StoreWaitReply>("WaitCounter", std::move(request), deadline).status();
}

std::vector<Member> Assignment::MembersOf(Role wanted) const {
  std::vector<Member> found;
  for (const Member& member : members) {
    if (member.role == wanted) found.push_back(member);
  }
  return found;
}

absl::StatusOr<std::unique_ptr<MasterClient>> MasterClient::Connect(
    const std::string& master_address, const MemberSelf& self,
    std::function<void(absl::Status)> on_failure, const MasterClientOptions& options) {
  auto state = std::make_unique<State>(master_address, std::move(on_failure), options);
  ASSIGN_OR_RETURN(state->assignment, Register(state->channel, self, state->member_key, options));
  State* raw = state.get();
  raw->heart = std::thread([raw] { raw->BeatUntilTheEnd(); });
  return std::unique_ptr<MasterClient>(new MasterClient(std::move(state)));
}

MasterClient::MasterClient(std::unique_ptr<State> state) : state_(std::move(state)) {}

MasterClient::~MasterClient() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
  }
  state_->channel.Abort(absl::CancelledError("the link to the master was closed"));
  state_->heart.join();
}

const Assignment& MasterClient::assignment() const { return state_->assignment; }
RequestHeader MasterClient::MakeHeader() const { return state_->Header(); }
const Credentials& MasterClient::credentials() const { return state_->options.credentials; }
Store& MasterClient::store() { return state_->store; }
void MasterClient::TraceCalls(std::shared_ptr<Tracer> tracer) {
  absl::MutexLock lock(&state_->mutex);
  state_->wants_beat = tracer != nullptr;
  state_->tracer = std::move(tracer);
}

absl::StatusOr<RoleTrace> MasterClient::TakeTrace(absl::Time deadline) {
  {
    // Waits for the heartbeat that TraceCalls asked for.
    absl::MutexLock lock(&state_->mutex);
    auto beaten = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !state_->wants_beat; };
    state_->mutex.AwaitWithDeadline(
        absl::Condition(&beaten),
        std::min(deadline, absl::Now() + state_->options.heartbeat_deadline));
  }
  return CallTakeTrace(state_->channel, "tandem.MasterService", state_->Header(), "master",
                       deadline);
}

absl::Status MasterClient::failure() const { return state_->Failure(); }

absl::Status MasterClient::WaitForCompletion() {
  absl::MutexLock lock(&state_->mutex);
  auto over = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !state_->telling && (state_->completed || state_->stopping || !state_->failure.ok());
  };
  while (!state_->mutex.AwaitWithTimeout(absl::Condition(&over), kWaitingPeriod))
    state_->wants_beat = true;
  if (state_->completed || !state_->failure.ok()) return state_->failure;
  return absl::CancelledError("this member has left the job");
}

absl::Status MasterClient::Leave(const absl::Status& status) {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
  }
  LeaveRequest request;
  *request.mutable_header() = state_->Header();
  request.set_member_key(state_->member_key);
  request.set_code(status.raw_code());
  request.set_message(std::string(status.message().substr(0, kMaxReasonBytes)));
  return Call<LeaveReply>(state_->channel, "Leave", request,
                          {.deadline = state_->options.heartbeat_deadline, .idempotent = true})
      .status();
}

}  // namespace tandem::rpc
