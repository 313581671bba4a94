#include "rpc/master/service.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/trace/trace.h"
#include "proto/master.pb.h"
#include "rpc/first_field.h"
#include "rpc/master/rendezvous.h"
#include "rpc/master/shard_map.h"
#include "rpc/protocol_version.h"
#include "rpc/role_trace.h"

namespace tandem::rpc {
namespace {

constexpr char kServiceName[] = "tandem.MasterService";
constexpr uint32_t kGeneration = 1;
constexpr double kLongestHoldSeconds = 60;
constexpr size_t kMaxMemberKeyBytes = 64;

Payload ToPayload(const google::protobuf::MessageLite& message) {
  return Payload(message.SerializeAsString());
}

uint64_t RandomNumber() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Limits of a request: its top-level fields, and its bytes. The largest content is a value of the
// store; the limit leaves room for more.
constexpr size_t kMaxRequestFields = 64;
constexpr size_t kMaxRequestBytes = 2 * kMaxStoreValueBytes;

absl::Status CheckSize(const Payload& request) {
  if (request.size() <= kMaxRequestBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a request of ", request.size(), " bytes, the master takes at most ", kMaxRequestBytes));
}

absl::Status CheckVersion(const RequestHeader& header) {
  return CheckProtocolVersion(header.protocol_version(), "this master");
}

// Ends the span with the answer.
Reply Traced(ConcurrentSpan span, Reply reply) {
  return [span = std::move(span), reply = std::move(reply)](absl::StatusOr<Payload> answer) {
    span.End();
    reply(std::move(answer));
  };
}

}  // namespace

// `Deliveries` collects replies under the mutex; they are given after its release.
struct MasterService::State {
  using Deliveries = std::vector<std::function<void()>>;
  enum class Kind { REGISTER, HEARTBEAT, LEAVE, GET, WAIT };
  struct Caller {
    Kind kind;
    Reply reply;
  };

  explicit State(const MembershipOptions& options)
      : options(options),
        job_epoch(RandomNumber()),
        job_token(absl::StrFormat("%016x%016x", RandomNumber(), RandomNumber())),
        shard_map(ShardMap::Even(options.num_ps)),
        membership(options, MonotonicSeconds()) {}

  void Step(const Event& event, Deliveries* deliveries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Deliver(const std::vector<Rendezvous::Answer>& answers, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Registers a caller whose answer comes later, and returns its number.
  uint64_t Hold(Kind kind, Reply reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    callers.emplace(++last_call, Caller{kind, std::move(reply)});
    return last_call;
  }
  Payload Encode(Kind kind, const Action& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void FillJob(JobState* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status CheckHeader(const RequestHeader& header) const;
  absl::Status FailureIfAny() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return membership.phase() == Phase::FAILED ? membership.failure() : absl::OkStatus();
  }

  void Register(const RegisterRequest& request, Reply reply, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Heartbeat(const HeartbeatRequest& request, Reply reply, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Leave(const LeaveRequest& request, Reply reply, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Set(const StoreSetRequest& request, Reply reply, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Get(const StoreGetRequest& request, Reply reply, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Add(const StoreAddRequest& request, Reply reply, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void WaitCounter(const StoreWaitRequest& request, Reply reply, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void TakeTrace(const TakeTraceRequest& request, Reply reply, Deliveries* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const MembershipOptions options;
  const uint64_t job_epoch;
  const std::string job_token;
  const ShardMap shard_map;
  std::string secret_proof;  // set before the first call
  const std::shared_ptr<Tracer> tracer = std::make_shared<Tracer>(kMaxServerSpans);
  absl::Mutex mutex;
  Membership membership ABSL_GUARDED_BY(mutex);
  Rendezvous rendezvous ABSL_GUARDED_BY(mutex);
  std::map<uint64_t, Caller> callers ABSL_GUARDED_BY(mutex);
  uint64_t last_call ABSL_GUARDED_BY(mutex) = 0;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
};

void MasterService::State::Step(const Event& event, Deliveries* deliveries) {
  const bool had_failed = membership.phase() == Phase::FAILED;
  for (const Action& action : membership.Step(event, MonotonicSeconds())) {
    auto caller = callers.extract(action.call);
    TANDEM_CHECK(!caller.empty()) << "call " << action.call << " was answered twice";
    auto answer = action.refusal.ok()
                      ? absl::StatusOr<Payload>(Encode(caller.mapped().kind, action))
                      : action.refusal;
    deliveries->push_back(
        [reply = std::move(caller.mapped().reply), answer = std::move(answer)] { reply(answer); });
  }
  if (!had_failed && membership.phase() == Phase::FAILED)
    Deliver(rendezvous.FailAll(membership.failure()), deliveries);
}

void MasterService::State::Deliver(const std::vector<Rendezvous::Answer>& answers,
                                   Deliveries* deliveries) {
  for (const Rendezvous::Answer& found : answers) {
    auto caller = callers.extract(found.call);
    TANDEM_CHECK(!caller.empty()) << "call " << found.call << " was answered twice";
    StoreGetReply reply;  // A counter's reply is empty, like this reply without its value.
    reply.set_value(found.value);
    auto answer = found.status.ok() ? absl::StatusOr<Payload>(ToPayload(reply)) : found.status;
    deliveries->push_back(
        [reply = std::move(caller.mapped().reply), answer = std::move(answer)] { reply(answer); });
  }
}

void MasterService::State::FillJob(JobState* job) {
  switch (membership.phase()) {
    case Phase::REGISTERING:
      job->set_phase(REGISTERING);
      return job->set_message(membership.Missing());
    case Phase::RUNNING:
      return job->set_phase(RUNNING);
    case Phase::COMPLETED:
      return job->set_phase(COMPLETED);
    case Phase::FAILED:
      job->set_phase(FAILED);
      job->set_code(membership.failure().raw_code());
      job->set_message(std::string(membership.failure().message().data(),
                                   membership.failure().message().size()));
  }
}

Payload MasterService::State::Encode(Kind kind, const Action& action) {
  if (kind == Kind::LEAVE) return ToPayload(LeaveReply());
  if (kind == Kind::HEARTBEAT) {
    HeartbeatReply reply;
    FillJob(reply.mutable_job());
    return ToPayload(reply);
  }
  RegisterReply reply;
  FillJob(reply.mutable_job());
  if (!action.rank.has_value()) return ToPayload(reply);
  reply.set_rank(*action.rank);
  reply.set_job_epoch(job_epoch);
  reply.set_generation(kGeneration);
  reply.set_job_token(job_token);
  reply.set_secret_proof(secret_proof);
  reply.mutable_shard_map()->set_version(shard_map.version());
  for (const ShardMap::Run& run : shard_map.Runs()) {
    ShardRun* added = reply.mutable_shard_map()->add_runs();
    added->set_num_shards(run.num_shards);
    added->set_ps(run.ps);
  }
  for (const Member& member : membership.members()) {
    MemberInfo* added = reply.add_members();
    added->set_role(member.role);
    added->set_rank(member.rank);
    added->set_host(member.host);
    added->set_address(member.address);
    added->set_pid(member.pid);
  }
  return ToPayload(reply);
}

absl::Status MasterService::State::CheckHeader(const RequestHeader& header) const {
  if (absl::Status status = CheckVersion(header); !status.ok()) return status;
  if (header.job_epoch() == job_epoch && header.generation() == kGeneration)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("the request belongs to job epoch %016x generation %u, the master's is %016x "
                      "generation %u: it has been restarted",
                      header.job_epoch(), header.generation(), job_epoch, kGeneration));
}

void MasterService::State::Register(const RegisterRequest& request, Reply reply,
                                    Deliveries* deliveries) {
  if (request.member_key().size() > kMaxMemberKeyBytes) {
    const absl::Status refusal =
        absl::InvalidArgumentError(absl::StrCat("a member_key of ", request.member_key().size(),
                                                " bytes, the limit is ", kMaxMemberKeyBytes));
    deliveries->push_back([reply = std::move(reply), refusal] { reply(refusal); });
    return;
  }
  RegisterEvent event;
  event.self = {request.header().sender().role(), 0, request.host(), request.pid(),
                request.address()};
  event.incarnation = request.header().sender().incarnation();
  event.preferred_index = request.preferred_index();
  event.job_fingerprint = request.job_fingerprint();
  event.key = request.member_key();
  event.call = Hold(Kind::REGISTER, std::move(reply));
  Step(event, deliveries);
}

void MasterService::State::Heartbeat(const HeartbeatRequest& request, Reply reply,
                                     Deliveries* deliveries) {
  const Sender& sender = request.header().sender();
  const uint64_t call = Hold(Kind::HEARTBEAT, std::move(reply));
  Step(HeartbeatEvent{call, sender.role(), sender.rank(), request.member_key()}, deliveries);
}

void MasterService::State::Leave(const LeaveRequest& request, Reply reply, Deliveries* deliveries) {
  const Sender& sender = request.header().sender();
  const uint64_t call = Hold(Kind::LEAVE, std::move(reply));
  const absl::Status status(static_cast<absl::StatusCode>(request.code()), request.message());
  Step(LeaveEvent{call, sender.role(), sender.rank(), status, request.member_key()}, deliveries);
}

void MasterService::State::Set(const StoreSetRequest& request, Reply reply,
                               Deliveries* deliveries) {
  const auto answers = rendezvous.Set(request.key(), request.value());
  if (answers.ok()) Deliver(*answers, deliveries);
  auto answer = answers.ok() ? absl::StatusOr<Payload>(Payload()) : answers.status();
  deliveries->push_back([reply = std::move(reply), answer = std::move(answer)] { reply(answer); });
}

void MasterService::State::Get(const StoreGetRequest& request, Reply reply,
                               Deliveries* deliveries) {
  if (absl::Status failure = FailureIfAny(); !failure.ok()) {
    deliveries->push_back([reply = std::move(reply), failure] { reply(failure); });
    return;
  }
  const uint64_t call = Hold(Kind::GET, std::move(reply));
  const double hold = std::clamp(request.timeout_seconds(), 0.0, kLongestHoldSeconds);
  Deliver(rendezvous.Get(call, request.key(), MonotonicSeconds() + hold), deliveries);
}

void MasterService::State::Add(const StoreAddRequest& request, Reply reply,
                               Deliveries* deliveries) {
  int64_t sum = 0;
  const auto answers = rendezvous.Add(request.key(), request.amount(), &sum);
  if (answers.ok()) Deliver(*answers, deliveries);
  StoreAddReply message;
  message.set_value(sum);
  auto answer = answers.ok() ? absl::StatusOr<Payload>(ToPayload(message)) : answers.status();
  deliveries->push_back([reply = std::move(reply), answer = std::move(answer)] { reply(answer); });
}

void MasterService::State::WaitCounter(const StoreWaitRequest& request, Reply reply,
                                       Deliveries* deliveries) {
  if (absl::Status failure = FailureIfAny(); !failure.ok()) {
    deliveries->push_back([reply = std::move(reply), failure] { reply(failure); });
    return;
  }
  const uint64_t call = Hold(Kind::WAIT, std::move(reply));
  const double hold = std::clamp(request.timeout_seconds(), 0.0, kLongestHoldSeconds);
  Deliver(rendezvous.WaitCounter(call, request.key(), request.value(), MonotonicSeconds() + hold),
          deliveries);
}

void MasterService::State::TakeTrace(const TakeTraceRequest&, Reply reply, Deliveries* deliveries) {
  deliveries->push_back(
      [reply = std::move(reply), bytes = ToPayload(AnswerTakeTrace(*tracer))] { reply(bytes); });
}

MasterService::MasterService(const MembershipOptions& options, double tick_seconds)
    : state_(std::make_shared<State>(options)),
      timer_([this, tick_seconds] { Tick(tick_seconds); }) {}

MasterService::~MasterService() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
  }
  timer_.join();
  // Destroyed outside the mutex, because destruction answers the callers.
  std::map<uint64_t, State::Caller> abandoned;
  absl::MutexLock lock(&state_->mutex);
  abandoned.swap(state_->callers);
}

void MasterService::Tick(double tick_seconds) {
  while (true) {
    State::Deliveries deliveries;
    {
      absl::MutexLock lock(&state_->mutex);
      if (state_->mutex.AwaitWithTimeout(absl::Condition(&state_->stopping),
                                         absl::Seconds(tick_seconds)))
        return;
      state_->Step(TickEvent(), &deliveries);
      state_->Deliver(state_->rendezvous.Expire(MonotonicSeconds()), &deliveries);
    }
    for (auto& deliver : deliveries) deliver();
  }
}

void MasterService::RegisterHandlers(Server& server) {
  state_->secret_proof = server.credentials().proof();
  // Checks the header, parses the rest, runs the method under the mutex, and delivers the answers
  // after.
  auto handle = [&](const char* method, auto request_type, auto run) {
    using Request = decltype(request_type);
    server.Handle(
        kServiceName, method, MethodKind::UNARY,
        [state = state_, method, run](Payload bytes, Reply reply) {
          RequestHeader header;
          absl::Status status = ReadFirstField(bytes, &header);
          // A caller that registers does not know the epoch yet.
          constexpr bool knows_epoch = !std::is_same_v<Request, RegisterRequest>;
          if (status.ok()) status = knows_epoch ? state->CheckHeader(header) : CheckVersion(header);
          if (status.ok()) status = CheckSize(bytes);
          if (!status.ok()) return reply(status);
          Request request;
          const std::string_view flat = bytes.Flatten();
          if (!CheckFields(flat, kMaxRequestFields).ok() ||
              !request.ParseFromArray(flat.data(), static_cast<int>(flat.size()))) {
            return reply(absl::InvalidArgumentError("the request is not a well-formed message"));
          }
          if (const uint64_t trace_id = request.header().trace_id(); trace_id != 0) {
            reply =
                Traced(ConcurrentSpan(state->tracer, CallSpan(method, trace_id)), std::move(reply));
          }
          State::Deliveries deliveries;
          {
            absl::MutexLock lock(&state->mutex);
            if (!state->stopping) std::invoke(run, *state, request, std::move(reply), &deliveries);
          }
          for (auto& deliver : deliveries) deliver();
        });
  };
  handle("Register", RegisterRequest(), &State::Register);
  handle("Heartbeat", HeartbeatRequest(), &State::Heartbeat);
  handle("Leave", LeaveRequest(), &State::Leave);
  handle("Set", StoreSetRequest(), &State::Set);
  handle("Get", StoreGetRequest(), &State::Get);
  handle("Add", StoreAddRequest(), &State::Add);
  handle("WaitCounter", StoreWaitRequest(), &State::WaitCounter);
  handle("TakeTrace", TakeTraceRequest(), &State::TakeTrace);
}

void MasterService::Fail(absl::Status reason) {
  State::Deliveries deliveries;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->Step(FailEvent{std::move(reason)}, &deliveries);
  }
  for (auto& deliver : deliveries) deliver();
}

Phase MasterService::phase() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->membership.phase();
}

absl::Status MasterService::WaitForEnd(const WaitNote& on_wait) {
  absl::MutexLock lock(&state_->mutex);
  auto ended = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return state_->membership.ended(); };
  while (!state_->mutex.AwaitWithTimeout(absl::Condition(&ended), kWaitNotePeriod)) {
    if (on_wait && state_->membership.phase() == Phase::REGISTERING)
      on_wait(absl::StrCat("waiting for ", state_->membership.Missing()));
  }
  return state_->FailureIfAny();
}

}  // namespace tandem::rpc
