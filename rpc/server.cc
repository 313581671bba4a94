#include "rpc/server.h"

#include <atomic>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "kernels/base/machine_memory.h"
#include "kernels/base/status_macros.h"
#include "rpc/grpc_bytes.h"
#include "rpc/grpc_thread.h"
#include "rpc/listen.h"
#include "rpc/ordered_answers.h"
#include "rpc/request_memory.h"
#include "rpc/served_call.h"
#include "rpc/shared/server.h"

namespace tandem::rpc {
namespace {

using grpc::ByteBuffer;

// Messages of a stream that are with the handler or have unwritten answers.
constexpr size_t kMaxUnanswered = 4;

// The data that a handler's calls need. Shared by them and gRPC's method.
struct Method {
  Handler handler;
  std::shared_ptr<const Credentials> credentials;
  std::shared_ptr<RequestMemory> memory;

  absl::Status CheckCaller(const grpc::CallbackServerContext& context) const {
    const auto shown = context.client_metadata().find(Credentials::kMetadataKey);
    if (shown == context.client_metadata().end()) return credentials->Check("");
    return credentials->Check({shown->second.data(), shown->second.size()});
  }
};

// A unary call. To gRPC it is a client stream whose single message is read only after the caller is
// checked. For a unary method gRPC would read the message before it reports the call.
class UnaryCall : public grpc::ServerReadReactor<ByteBuffer>,
                  public std::enable_shared_from_this<UnaryCall>,
                  public ServedCall {
 public:
  static UnaryCall* Start(std::shared_ptr<const Method> method,
                          const grpc::CallbackServerContext& context, ByteBuffer* response) {
    auto call = std::make_shared<UnaryCall>();
    call->self_ = call;
    call->method_ = std::move(method);
    call->response_ = response;
    if (absl::Status refusal = call->method_->CheckCaller(context); !refusal.ok()) {
      call->Answer(std::move(refusal));
    } else {
      call->StartRead(&call->request_);
    }
    return call.get();
  }

  void OnReadDone(bool ok) override {
    if (!ok)
      return Answer(absl::InvalidArgumentError("the call has no message, or one that is too long"));
    auto held = method_->memory->Hold(request_.Length());
    if (!held.ok()) return Answer(held.status());
    ReactionScope scope;
    Payload request = FromByteBuffer(request_, *std::move(held));
    request_.Clear();
    method_->handler(std::move(request), MakeReply(shared_from_this()));
  }

  void Answer(absl::StatusOr<Payload> answer) override {
    if (finished_.exchange(true)) return;  // cancelled before
    if (answer.ok()) ToByteBuffer(*answer, response_);
    Finish(ToGrpcStatus(answer.status()));
  }
  void OnCancel() override { Answer(absl::CancelledError("the call was cancelled")); }
  void OnDone() override { std::shared_ptr<UnaryCall> last = std::move(self_); }

 private:
  std::shared_ptr<UnaryCall> self_;  // gRPC's reference
  std::shared_ptr<const Method> method_;
  ByteBuffer request_;
  ByteBuffer* response_ = nullptr;  // owned by gRPC, valid until Finish
  std::atomic<bool> finished_{false};
};

// A stream. Reads the next message when the handler has returned from the last and few enough
// messages lack an answer. So reading and writing overlap the handler's work, and a client that
// takes no replies is read no further.
class StreamCall : public grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>,
                   public std::enable_shared_from_this<StreamCall> {
 public:
  explicit StreamCall(std::shared_ptr<const Method> method) : method_(std::move(method)) {}
  ~StreamCall() override {
    if (counted_) method_->memory->RemoveStream();
  }

  static StreamCall* Start(std::shared_ptr<const Method> method,
                           const grpc::CallbackServerContext& context) {
    auto call = std::make_shared<StreamCall>(std::move(method));
    call->self_ = call;
    if (absl::Status refusal = call->method_->CheckCaller(context); !refusal.ok()) {
      absl::MutexLock lock(&call->mutex_);
      call->End(std::move(refusal));
    } else {
      call->counted_ = true;
      call->method_->memory->AddStream();
    }
    call->Advance();
    return call.get();
  }

  void OnReadDone(bool ok) override {
    uint64_t number = 0;
    {
      absl::MutexLock lock(&mutex_);
      reading_ = false;
      all_read_ |= !ok;  // the client has sent everything or is gone
      handling_ = ok;
      if (ok) number = answers_.Expect();
    }
    if (!ok) return Advance();
    ReactionScope scope;
    Reply reply = MakeReply(std::make_shared<Message>(shared_from_this(), number));
    if (auto held = method_->memory->Hold(request_.Length()); held.ok()) {
      Payload message = FromByteBuffer(request_, *std::move(held));
      request_.Clear();
      method_->handler(std::move(message), std::move(reply));
    } else {
      request_.Clear();
      reply(held.status());
    }
    {
      absl::MutexLock lock(&mutex_);
      handling_ = false;
    }
    Advance();
  }
  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) End(absl::CancelledError("the client is gone"));
    }
    Advance();
  }
  void OnCancel() override {
    {
      absl::MutexLock lock(&mutex_);
      End(absl::CancelledError("the stream was cancelled"));
    }
    Advance();
  }
  void OnDone() override { std::shared_ptr<StreamCall> last = std::move(self_); }

 private:
  class Message : public ServedCall {
   public:
    Message(std::shared_ptr<StreamCall> stream, uint64_t number)
        : stream_(std::move(stream)), number_(number) {}
    void Answer(absl::StatusOr<Payload> answer) override {
      {
        absl::MutexLock lock(&stream_->mutex_);
        stream_->answers_.Give(number_, std::move(answer));
      }
      stream_->Advance();
    }

   private:
    const std::shared_ptr<StreamCall> stream_;
    const uint64_t number_;
  };

  void End(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!end_.has_value()) end_ = std::move(status);
  }

  // Starts all operations that can start. A write starts outside the mutex: the write may block
  // until the socket has taken a large reply, and other threads go on reading. writing_ delays
  // Finish, after which no operation may start, until the write is done. Other operations start
  // under the mutex, because gRPC runs no reaction inside their calls.
  void Advance() {
    bool write = false;
    {
      absl::MutexLock lock(&mutex_);
      write = AdvanceLocked();
    }
    if (write) StartWrite(&reply_);
  }

  // Returns true if the caller must write reply_.
  bool AdvanceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return false;
    bool write = false;
    if (!writing_ && !end_.has_value() && answers_.ready()) {
      const absl::StatusOr<Payload> answer = answers_.Take();
      if (answer.ok()) {
        writing_ = write = true;
        reply_.Clear();
        ToByteBuffer(*answer, &reply_);
      } else {
        End(answer.status());
      }
    }
    if (all_read_ && answers_.size() == 0) End(absl::OkStatus());
    if (end_.has_value()) {
      if (writing_) return write;
      finished_ = true;
      Finish(ToGrpcStatus(*end_));
    } else if (!reading_ && !handling_ && !all_read_ &&
               answers_.size() + (writing_ ? 1 : 0) < kMaxUnanswered) {
      reading_ = true;
      StartRead(&request_);
    }
    return write;
  }

  std::shared_ptr<StreamCall> self_;  // gRPC's reference
  const std::shared_ptr<const Method> method_;
  bool counted_ = false;  // counted as a stream of the job
  ByteBuffer request_;    // being read; reading alternates with handing the message over
  ByteBuffer reply_;      // being written while writing_, otherwise under the mutex
  absl::Mutex mutex_;
  OrderedAnswers answers_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // the status that the stream ends with
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;  // the handler has not returned yet
  bool all_read_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// The run-time equivalent of protoc's gRPC plugin: methods by name that take and give bytes.
class ByteService : public grpc::Service {
 public:
  void Add(const std::string& full_name, MethodKind kind, std::shared_ptr<const Method> shared) {
    using grpc::internal::RpcMethod;
    const char* name = names_.emplace_back(full_name).c_str();  // gRPC keeps the pointer
    RpcMethod::RpcType type = RpcMethod::NORMAL_RPC;
    grpc::internal::MethodHandler* method = nullptr;
    if (kind == MethodKind::UNARY) {
      type = RpcMethod::CLIENT_STREAMING;
      method = new grpc::internal::CallbackClientStreamingHandler<ByteBuffer, ByteBuffer>(
          [shared](grpc::CallbackServerContext* context, ByteBuffer* response) {
            return UnaryCall::Start(shared, *context, response);
          });
    } else {
      type = RpcMethod::BIDI_STREAMING;
      method = new grpc::internal::CallbackBidiHandler<ByteBuffer, ByteBuffer>(
          [shared](grpc::CallbackServerContext* context) {
            return StreamCall::Start(shared, *context);
          });
    }
    auto* service_method = new grpc::internal::RpcServiceMethod(name, type, method);
    service_method->SetServerApiType(grpc::internal::RpcServiceMethod::ApiType::CALL_BACK);
    AddMethod(service_method);
  }

 private:
  std::list<std::string> names_;
};

void SetServerOptions(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Refuses compressed requests, because a few bytes could expand to any size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // A taken port must be an error, not shared.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadChunkBytes);
  // Only reflection is served synchronously, so one thread is enough.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
}

}  // namespace

struct Server::State {
  State(Credentials shown, size_t max_request_bytes)
      : credentials(std::make_shared<const Credentials>(std::move(shown))),
        memory(std::make_shared<RequestMemory>(max_request_bytes)) {}

  const std::shared_ptr<const Credentials> credentials;
  const std::shared_ptr<RequestMemory> memory;
  std::map<std::string, ByteService> services;
  HandlerMap streams;  // by full name
  // Declared after the services, so that it is destroyed first.
  std::unique_ptr<grpc::Server> server;
  std::string address;
  std::unique_ptr<SharedServer> shared;  // null: streams use gRPC only
};

Server::Server(Credentials credentials, ServerOptions options)
    : state_(std::make_unique<State>(std::move(credentials), options.max_request_bytes != 0
                                                                 ? options.max_request_bytes
                                                                 : MachineMemory() / 2)) {}

Server::~Server() { Shutdown(0); }

void Server::Handle(const std::string& service, const std::string& method, MethodKind kind,
                    Handler handler) {
  TANDEM_CHECK(state_->server == nullptr) << "register handlers before Start";
  const std::string full_name = absl::StrCat("/", service, "/", method);
  const auto shared = std::make_shared<const Method>(
      Method{std::move(handler), state_->credentials, state_->memory});
  if (kind == MethodKind::STREAM) state_->streams[full_name] = {shared, &shared->handler};
  state_->services[service].Add(full_name, kind, shared);
}

absl::Status Server::Start(const std::string& listen) {
  TANDEM_CHECK(state_->server == nullptr) << "a server starts once";
  if (const auto held = HeldAddress::Hold(listen); !held.ok()) return held.status();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetServerOptions(builder);
  builder.SetResourceQuota(state_->memory->quota());
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  for (auto& [name, service] : state_->services) builder.RegisterService(&service);
  state_->server = builder.BuildAndStart();
  if (state_->server == nullptr || port == 0) {  // taken since Hold
    state_->server = nullptr;
    return absl::UnavailableError(absl::StrCat("port in use: ", listen));
  }
  state_->address = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
  state_->server->GetHealthCheckService()->SetServingStatus(kReady, false);
  return absl::OkStatus();
}

void Server::SetReady() { state_->server->GetHealthCheckService()->SetServingStatus(kReady, true); }

absl::Status Server::ServeSharedMemory(SharedMemoryOptions options) {
  ASSIGN_OR_RETURN(state_->shared,
                   SharedServer::Start(address(), *state_->credentials, state_->streams, options));
  return absl::OkStatus();
}

const Credentials& Server::credentials() const { return *state_->credentials; }

std::string Server::address() const {
  TANDEM_CHECK(!state_->address.empty()) << "the server was not started";
  return state_->address;
}

void Server::Shutdown(double grace_seconds) {
  if (state_->server == nullptr) return;
  TANDEM_CHECK(!InReaction()) << "a handler must not stop its own server";
  const absl::Time deadline = absl::Now() + absl::Seconds(grace_seconds);
  state_->server->Shutdown(absl::ToChronoTime(deadline));
  state_->server = nullptr;
  if (state_->shared != nullptr) state_->shared->AwaitReplies(deadline);
  state_->shared = nullptr;
}

}  // namespace tandem::rpc
