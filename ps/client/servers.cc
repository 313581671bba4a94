#include "ps/client/servers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "ps/client/shared_promise.h"

namespace tandem::ps {
namespace {

using rpc::Done;
using rpc::Future;
using rpc::Payload;

constexpr char kService[] = "/tandem.EmbeddingService/";
constexpr std::array<const char*, Servers::NUM_VERBS> kMethods = {
    "Pull", "Push", "PullPooled", "PushPooled", "GradientNorm", "Commit"};

// Runs `then` once: when all are done, or with the first error.
void WhenAll(const std::vector<Future<Done>>& futures, std::function<void(absl::Status)> then) {
  SharedPromise<Done> all;
  auto remaining = std::make_shared<std::atomic<size_t>>(futures.size());
  all.future().OnReady(
      [then = std::move(then)](const absl::StatusOr<Done>& done) { then(done.status()); });
  if (futures.empty()) all.Set(Done());
  for (const auto& future : futures) {
    future.OnReady([all, remaining](const absl::StatusOr<Done>& done) {
      if (!done.ok())
        all.Set(done.status());
      else if (remaining->fetch_sub(1) == 1)
        all.Set(Done());
    });
  }
}

// Opens a stream, through shared memory if `shared` is not null and the server offers it.
std::unique_ptr<rpc::ClientStream> Open(rpc::Channel& channel, rpc::SharedStreams* shared,
                                        const std::string& method, std::atomic<bool>& is_shared) {
  if (shared != nullptr) {
    auto stream = shared->Open(channel.address(), method);
    is_shared = stream.ok();
    if (stream.ok()) return *std::move(stream);
  }
  return channel.OpenStream(method);
}

}  // namespace

absl::Status Annotate(const absl::Status& status, const std::string& what, int server) {
  return absl::Status(status.code(), absl::StrCat(what, ": ps-", server, ": ", status.message()));
}

Servers::Servers(const std::vector<std::string>& addresses, absl::Duration timeout,
                 bool shared_memory, const rpc::Credentials& credentials)
    : timeout_(timeout), servers_(addresses.size()) {
  std::shared_ptr<rpc::SharedStreams> shared;  // null: gRPC only
  if (shared_memory) shared = std::make_shared<rpc::SharedStreams>(credentials);
  for (size_t i = 0; i < addresses.size(); ++i) {
    Server& server = servers_[i];
    server.channel = std::make_shared<rpc::Channel>(addresses[i], credentials);
    for (size_t verb = 0; verb < NUM_VERBS; ++verb) {
      server.is_shared[verb] = std::make_shared<std::atomic<bool>>(false);
      server.streams[verb] = ResendingStream::Create(
          [channel = server.channel, shared, is_shared = server.is_shared[verb],
           method = absl::StrCat(kService, kMethods[verb])] {
            return Open(*channel, shared.get(), method, *is_shared);
          },
          timer_);
    }
  }
}

Servers::~Servers() {
  Abort(absl::CancelledError("the client was closed"));
  timer_->Stop();
}

std::shared_ptr<Operation> Servers::Begin(std::string what, std::vector<int> messages_of_server,
                                          ConcurrentSpan span) {
  auto operation =
      std::make_shared<Operation>(std::move(what), std::move(messages_of_server), std::move(span));
  const std::weak_ptr<Operation> weak = operation;
  const Timer::Key key = timer_->Schedule(absl::Now() + timeout_, [weak, after = timeout_] {
    if (const auto late = weak.lock()) late->TimeOut(after);
  });
  operation->future().OnReady(
      [timer = timer_, key](const absl::StatusOr<Done>&) { timer->Cancel(key); });
  return operation;
}

std::shared_ptr<Operation> Servers::BeginAll(std::string what, ConcurrentSpan span) {
  return Begin(std::move(what), std::vector<int>(size(), 1), std::move(span));
}

void Servers::Send(ResendingStream& stream, Payload payload,
                   const std::shared_ptr<Operation>& operation, int server, Take take) {
  stream.Send({std::move(payload), [operation] { return operation->wanted(); },
               [operation, server, take = std::move(take)](absl::StatusOr<Payload> answer) {
                 if (!operation->Enter()) return;
                 absl::Status status = answer.status();
                 if (status.ok()) status = take(*std::move(answer));
                 if (!status.ok()) status = Annotate(status, operation->what(), server);
                 operation->Leave(server, std::move(status));
               }});
}

Future<Done> Servers::SendAll(Verb verb, const std::vector<Future<Done>>& before,
                              std::string request, const std::shared_ptr<Operation>& operation,
                              const Take& take) {
  std::vector<std::shared_ptr<ResendingStream>> streams;
  for (const Server& server : servers_) streams.push_back(server.streams[verb]);
  SharedPromise<Done> sent;
  WhenAll(before, [streams = std::move(streams), operation, take, sent,
                   request = std::move(request)](const absl::Status& status) {
    if (!status.ok()) operation->Fail(status);
    for (size_t server = 0; status.ok() && server < streams.size(); ++server)
      Send(*streams[server], Payload(request), operation, static_cast<int>(server), take);
    sent.Set(Done());
  });
  return sent.future();
}

Future<Payload> Servers::Call(size_t server, const char* method, Payload request,
                              absl::Time deadline) {
  return servers_[server].channel->Call(absl::StrCat(kService, method), std::move(request),
                                        {deadline - absl::Now(), /*idempotent=*/true});
}

void Servers::CallEach(const char* method, const std::string& what,
                       const std::vector<Payload>& requests, absl::Time deadline,
                       const std::function<void(Replies)>& then) {
  struct State {
    absl::Mutex mutex;
    std::vector<Payload> payloads;
    size_t missing;
    bool ended = false;
  };
  auto state = std::make_shared<State>();
  state->payloads.resize(size());
  state->missing = size();
  for (size_t server = 0; server < size(); ++server) {
    Call(server, method, requests[server], deadline)
        .OnReady([state, then, what, server](const absl::StatusOr<Payload>& reply) {
          {
            absl::MutexLock lock(&state->mutex);
            if (state->ended) return;
            if (reply.ok()) state->payloads[server] = *reply;
            state->ended = --state->missing == 0 || !reply.ok();
            if (!state->ended) return;
          }
          if (!reply.ok()) return then(Annotate(reply.status(), what, static_cast<int>(server)));
          then(std::move(state->payloads));
        });
  }
}

void Servers::CallAll(const char* method, const std::string& what, std::string request,
                      absl::Time deadline, const std::function<void(Replies)>& then) {
  CallEach(method, what, std::vector<Payload>(size(), Payload(std::move(request))), deadline, then);
}

rpc::Traffic Servers::traffic(size_t server) const {
  rpc::Traffic sum;
  for (const auto& stream : servers_[server].streams) sum += stream->traffic();
  return sum;
}

int Servers::num_shared() const {
  int count = 0;
  for (const Server& server : servers_) {
    bool any = false;
    for (const auto& is_shared : server.is_shared) any |= *is_shared;
    count += any;
  }
  return count;
}

void Servers::Abort(const absl::Status& reason) {
  for (const Server& server : servers_) {
    for (const auto& stream : server.streams) stream->Close(reason);
  }
  for (const Server& server : servers_) server.channel->Abort(reason);
}

}  // namespace tandem::ps
