#include "tests/support/fault_proxy.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/random.h"

namespace tandem::support {
namespace {

constexpr char kService[] = "tandem.EmbeddingService";
constexpr int kMaxAttempts = 4;           // so many times the same message may suffer
constexpr uint64_t kMaxReplayAfter = 24;  // messages

}  // namespace

FaultProxy::FaultProxy(const std::string& target, const FaultPlan& plan)
    : plan_(plan),
      methods_({{"CreateTables", rpc::MethodKind::UNARY},
                {"Pull", rpc::MethodKind::STREAM},
                {"Push", rpc::MethodKind::STREAM},
                {"PullPooled", rpc::MethodKind::STREAM},
                {"PushPooled", rpc::MethodKind::STREAM},
                {"GradientNorm", rpc::MethodKind::STREAM},
                {"Commit", rpc::MethodKind::STREAM},
                {"Hash", rpc::MethodKind::UNARY},
                {"Save", rpc::MethodKind::UNARY},
                {"Load", rpc::MethodKind::UNARY}}),
      channel_(std::make_unique<rpc::Channel>(target)),
      server_(std::make_unique<rpc::Server>()) {
  for (const Method& method : methods_) {
    server_->Handle(kService, method.name, method.kind,
                    [this, &method](rpc::Payload message, rpc::Reply reply) {
                      Take(method, std::move(message), reply);
                    });
  }
  const absl::Status status = server_->Start("127.0.0.1:0");
  TANDEM_CHECK(status.ok()) << status.ToString();
}

FaultProxy::~FaultProxy() {
  server_.reset();
  timer_.Stop();
  channel_.reset();  // what is still unanswered ends and is counted
}

FaultProxy::Fault FaultProxy::Draw(const Method& method, std::string_view bytes, uint64_t* bits) {
  const uint64_t hash = StableHash(bytes);
  absl::MutexLock lock(&mutex_);
  ++num_messages_;
  FaultCounts& counts = counts_[method.name];
  ++counts.messages;
  const int attempt = attempts_[hash]++;
  if (attempt >= kMaxAttempts) return Fault::NONE;
  *bits = Fmix64(hash ^ Fmix64(plan_.seed * kMaxAttempts + static_cast<uint64_t>(attempt)));
  int thousandth = static_cast<int>(*bits % 1000);
  const auto falls_to = [&thousandth](int share) {
    thousandth -= share;
    return thousandth < 0;
  };
  const auto count = [](uint64_t* number, Fault fault) {
    ++*number;
    return fault;
  };
  if (falls_to(plan_.drop_request)) return count(&counts.dropped_requests, Fault::DROP_REQUEST);
  if (falls_to(plan_.drop_reply)) return count(&counts.dropped_replies, Fault::DROP_REPLY);
  if (falls_to(plan_.delay)) return count(&counts.delayed, Fault::DELAY);
  if (falls_to(plan_.duplicate)) return count(&counts.duplicated, Fault::DUPLICATE);
  if (falls_to(plan_.replay)) return count(&counts.replayed, Fault::REPLAY);
  return Fault::NONE;
}

void FaultProxy::Take(const Method& method, rpc::Payload message, const rpc::Reply& reply) {
  uint64_t bits = 0;
  const Fault fault = Draw(method, message.Flatten(), &bits);
  for (const Kept& kept : TakeDue(/*all=*/false)) ForwardCopy(*kept.method, kept.message);
  switch (fault) {
    case Fault::NONE:
      return Forward(method, message, reply);
    case Fault::DROP_REQUEST:
      return reply(absl::UnavailableError("the request is lost"));
    case Fault::DROP_REPLY:
      return Forward(method, message, [reply](const absl::StatusOr<rpc::Payload>&) {
        reply(absl::UnavailableError("the reply is lost"));
      });
    case Fault::DELAY:
      timer_.Schedule(absl::Now() + absl::Milliseconds(1 + bits / 1000 % 8),
                      [this, &method, message, reply] { Forward(method, message, reply); });
      return;
    case Fault::DUPLICATE:
      // Either copy may arrive first.
      if (bits / 1000 % 2 == 0) ForwardCopy(method, message);
      Forward(method, message, reply);
      if (bits / 1000 % 2 != 0) ForwardCopy(method, message);
      return;
    case Fault::REPLAY:
      Forward(method, message, reply);
      absl::MutexLock lock(&mutex_);
      kept_.push_back({&method, message, num_messages_ + 1 + bits / 1000 % kMaxReplayAfter});
  }
}

void FaultProxy::Forward(const Method& method, const rpc::Payload& message, Answer answer) {
  const std::string path = absl::StrCat("/", kService, "/", method.name);
  if (method.kind == rpc::MethodKind::UNARY) {
    channel_->Call(path, message, {.deadline = absl::Seconds(30), .idempotent = false})
        .OnReady(std::move(answer));
    return;
  }
  // Each message has a stream of its own, so a late or refused message holds up no other.
  const std::shared_ptr<rpc::ClientStream> stream = channel_->OpenStream(path);
  stream->Send(message).OnReady([stream, answer = std::move(answer)](
                                    const absl::StatusOr<rpc::Payload>& reply) { answer(reply); });
}

void FaultProxy::ForwardCopy(const Method& method, const rpc::Payload& message) {
  {
    absl::MutexLock lock(&mutex_);
    ++copies_on_their_way_;
  }
  Forward(method, message, [this, &method](const absl::StatusOr<rpc::Payload>& reply) {
    absl::MutexLock lock(&mutex_);
    --copies_on_their_way_;
    ++(reply.ok() ? counts_[method.name].copies_accepted : counts_[method.name].copies_refused);
  });
}

std::vector<FaultProxy::Kept> FaultProxy::TakeDue(bool all) {
  absl::MutexLock lock(&mutex_);
  std::vector<Kept> due, others;
  for (Kept& kept : kept_)
    (all || kept.due <= num_messages_ ? due : others).push_back(std::move(kept));
  kept_ = std::move(others);
  return due;
}

bool FaultProxy::ReplayKept() {
  for (const Kept& kept : TakeDue(/*all=*/true)) ForwardCopy(*kept.method, kept.message);
  absl::MutexLock lock(&mutex_);
  auto none = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return copies_on_their_way_ == 0; };
  return mutex_.AwaitWithTimeout(absl::Condition(&none), absl::Seconds(20));
}

FaultCounts FaultProxy::counts(const std::string& method) const {
  absl::MutexLock lock(&mutex_);
  const auto found = counts_.find(method);
  return found == counts_.end() ? FaultCounts() : found->second;
}

}  // namespace tandem::support
