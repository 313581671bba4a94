#include "ps/client/remote_client.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/client/pull_message.h"
#include "ps/client/push_message.h"
#include "ps/client/shared_promise.h"
#include "ps/wire/saturating.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;
using rpc::Payload;

// Accepts an answer without content.
absl::Status TakeNothing(const Payload&) { return absl::OkStatus(); }

}  // namespace

RemoteClient::RemoteClient(const std::vector<std::string>& addresses, Router router,
                           RequestHeader header, uint32_t num_trainers, RemoteClientOptions options)
    : RemoteTables(addresses, std::move(router), std::move(header), num_trainers,
                   std::move(options)) {}

RemoteClient::~RemoteClient() { Abort(absl::CancelledError("the client was closed")); }

std::shared_ptr<Operation> RemoteClient::Start(std::string what, const MessagePlan& plan,
                                               ConcurrentSpan span) {
  span.AddBytes(static_cast<double>(plan.num_bytes));
  return servers().Begin(std::move(what), plan.messages_of_server, std::move(span));
}

Future<Done> RemoteClient::Pull(uint64_t step, bool create, std::vector<PullSegment> segments) {
  const ConcurrentSpan span = TraceCall(SpanKind::PULL, "pull", step);
  const auto planned =
      PlanMessages(IdsOf(segments), specs(), router(), options().wire, options().message_bytes);
  if (!planned.ok()) return Future<Done>::Ready(planned.status());
  const std::shared_ptr<const MessagePlan> plan = *planned;
  if (plan->messages.empty()) return Future<Done>::Ready(Done());
  const auto operation = Start(absl::StrCat("pull for step ", step), *plan, span);
  const auto targets = std::make_shared<const std::vector<PullSegment>>(std::move(segments));
  for (const CutMessage& message : plan->messages) {
    PullRequest request;
    *request.mutable_header() = HeaderOf(span);
    request.set_step(step);
    request.set_create(create);
    Servers::Send(servers().stream(Servers::PULL, message.server),
                  EncodePull(*plan, message, *targets, std::move(request)), operation,
                  message.server, [plan, targets, &message](Payload answer) {
                    return TakePulled(*plan, message, *targets, std::move(answer));
                  });
  }
  return operation->future();
}

PushName RemoteClient::NamePush() {
  return {sender().rank(), sender().incarnation(), next_sequence_++};
}

Future<Done> RemoteClient::Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) {
  return SendPush(step, slice, segments, {});
}

Future<Done> RemoteClient::PushMerged(uint64_t step, const std::vector<PushName>& names,
                                      std::vector<PushSegment> segments) {
  return SendPush(step, /*slice=*/0, segments, names);
}

Future<Done> RemoteClient::SendPush(uint64_t step, uint32_t slice,
                                    const std::vector<PushSegment>& segments,
                                    const std::vector<PushName>& merged) {
  const ConcurrentSpan span = TraceCall(SpanKind::PUSH, "push", step);
  // Sends a merged push as one message per server, because a server takes each name once per
  // virtual shard.
  const size_t message_bytes =
      merged.empty() ? options().message_bytes : std::numeric_limits<size_t>::max();
  const auto planned =
      PlanMessages(IdsOf(segments), specs(), router(), options().wire, message_bytes);
  if (!planned.ok()) return pushes_.emplace_back(Future<Done>::Ready(planned.status()));
  const MessagePlan& plan = **planned;
  if (plan.messages.empty()) return Future<Done>::Ready(Done());
  const auto operation = Start(absl::StrCat("push for step ", step), plan, span);
  for (const CutMessage& message : plan.messages) {
    PushRequest request;
    *request.mutable_header() = HeaderOf(span);
    request.set_sequence(merged.empty() ? next_sequence_++ : merged[0].sequence);
    for (size_t i = 1; i < merged.size(); ++i) {
      CoveredPush* const push = request.add_covered();
      push->set_trainer(merged[i].trainer);
      push->set_incarnation(merged[i].incarnation);
      push->set_sequence(merged[i].sequence);
    }
    request.set_step(step);
    request.set_slice(slice);
    ResendingStream& stream = servers().stream(Servers::PUSH, message.server);
    Servers::Send(stream,
                  EncodePush(plan, message, segments, std::move(request), residuals_, stream),
                  operation, message.server, TakeNothing);
  }
  return pushes_.emplace_back(operation->future());
}

absl::StatusOr<RemoteClient::PooledCall> RemoteClient::StartPooled(std::string what,
                                                                   const Bags& bags, size_t dim,
                                                                   ConcurrentSpan span) {
  ASSIGN_OR_RETURN(const TableSpec* const spec, FindSpec(specs(), bags.table));
  TANDEM_CHECK_EQ(spec->dim(), dim);
  ASSIGN_OR_RETURN(std::vector<PooledMessage> messages,
                   CutBags(bags, router(), dim, options().message_bytes));
  std::vector<int> messages_of_server(servers().size());
  for (const PooledMessage& message : messages) {
    ++messages_of_server[static_cast<size_t>(message.server)];
    span.AddBytes(static_cast<double>(message.ids.size() * sizeof(uint64_t) +
                                      message.bags.size() * dim * sizeof(float)));
  }
  PooledCall call;
  if (!messages.empty())
    call.operation =
        servers().Begin(std::move(what), std::move(messages_of_server), std::move(span));
  call.messages = std::make_shared<PooledMessages>(std::move(messages));
  return call;
}

Future<Done> RemoteClient::PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                      float* pooled) {
  const ConcurrentSpan span = TraceCall(SpanKind::PULL, "pull_pooled", step);
  const auto call = StartPooled(absl::StrCat("pooled pull for step ", step), bags, dim, span);
  if (!call.ok()) return Future<Done>::Ready(call.status());
  std::fill(pooled, pooled + bags.size() * dim, 0.0f);
  if (call->operation == nullptr) return Future<Done>::Ready(Done());
  const auto& messages = call->messages->messages();
  for (size_t number = 0; number < messages.size(); ++number) {
    const PooledMessage& message = messages[number];
    PullPooledRequest request;
    *request.mutable_header() = HeaderOf(span);
    request.set_step(step);
    request.set_create(create);
    Servers::Send(servers().stream(Servers::PULL_POOLED, message.server),
                  EncodePullPooled(bags.table, message, call->messages, std::move(request)),
                  call->operation, message.server,
                  [all = call->messages, number, bags, dim, pooled](Payload answer) {
                    return all->Take(number, bags, dim, std::move(answer), pooled);
                  });
  }
  return call->operation->future();
}

Future<Done> RemoteClient::PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                      const float* gradients) {
  const ConcurrentSpan span = TraceCall(SpanKind::PUSH, "push_pooled", step);
  const auto call = StartPooled(absl::StrCat("pooled push for step ", step), bags, dim, span);
  if (!call.ok()) return pushes_.emplace_back(Future<Done>::Ready(call.status()));
  if (call->operation == nullptr) return Future<Done>::Ready(Done());
  std::vector<float> of_sums(bags.size() * dim);
  ScalePooled(bags, dim, gradients, of_sums.data());
  for (const PooledMessage& message : call->messages->messages()) {
    PushPooledRequest request;
    *request.mutable_header() = HeaderOf(span);
    request.set_sequence(next_sequence_++);
    request.set_step(step);
    request.set_slice(slice);
    Servers::Send(servers().stream(Servers::PUSH_POOLED, message.server),
                  EncodePushPooled(bags.table, message, call->messages, dim, of_sums.data(),
                                   std::move(request)),
                  call->operation, message.server, TakeNothing);
  }
  return pushes_.emplace_back(call->operation->future());
}

Future<absl::uint128> RemoteClient::GradientNorm(uint64_t step) {
  const ConcurrentSpan span = TraceCall(SpanKind::COMMIT, "gradient_norm", step);
  GradientNormRequest request;
  *request.mutable_header() = HeaderOf(span);
  request.set_step(step);
  struct Sum {
    SharedPromise<absl::uint128> norm;
    absl::Mutex mutex;
    absl::uint128 total ABSL_GUARDED_BY(mutex) = 0;
  };
  const auto sum = std::make_shared<Sum>();
  const auto operation = servers().BeginAll(absl::StrCat("gradient norm of step ", step), span);
  operation->future().OnReady([sum](const absl::StatusOr<Done>& done) {
    if (!done.ok()) return sum->norm.Set(done.status());
    absl::ReleasableMutexLock lock(&sum->mutex);
    const absl::uint128 total = sum->total;
    lock.Release();
    sum->norm.Set(total);
  });
  servers().SendAll(Servers::GRADIENT_NORM, pushes_, request.SerializeAsString(), operation,
                    [sum](Payload payload) -> absl::Status {
                      const std::string_view bytes = payload.Flatten();
                      GradientNormReply reply;
                      if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
                        return absl::InternalError("malformed reply");
                      absl::MutexLock lock(&sum->mutex);
                      sum->total = SaturatingAdd(
                          sum->total,
                          absl::MakeUint128(reply.squared_norm_high(), reply.squared_norm_low()));
                      return absl::OkStatus();
                    });
  return sum->norm.future();
}

Future<Done> RemoteClient::Commit(const CommitArgs& args) {
  residuals_.EndStep(args.skip);
  const ConcurrentSpan span = TraceCall(SpanKind::COMMIT, "commit", args.step);
  CommitRequest request;
  *request.mutable_header() = HeaderOf(span);
  request.set_step(args.step);
  request.set_gradient_scale(args.gradient_scale);
  request.set_skip(args.skip);
  for (const TableRateValue& rate : args.rates) {
    TableRate* added = request.add_rates();
    added->set_table(rate.table);
    added->set_learning_rate(rate.learning_rate);
  }
  const auto operation = servers().BeginAll(absl::StrCat("commit of step ", args.step), span);
  // Waits for the previous commit to be sent, because its pushes may still be in flight.
  std::vector<Future<Done>> before = std::exchange(pushes_, {});
  before.push_back(commit_sent_);
  commit_sent_ = servers().SendAll(Servers::COMMIT, before, request.SerializeAsString(), operation,
                                   TakeNothing);
  return operation->future();
}

void RemoteClient::Abort(absl::Status reason) { servers().Abort(reason); }

}  // namespace tandem::ps
