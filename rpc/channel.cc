#include "rpc/channel.h"

#include <chrono>
#include <deque>
#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/random.h"
#include "rpc/grpc_bytes.h"
#include "rpc/grpc_thread.h"
#include "rpc/retry.h"

namespace tandem::rpc {
namespace {

using grpc::ByteBuffer;

// An operation in flight: a unary call or a stream.
class LiveCall {
 public:
  virtual ~LiveCall() = default;
  virtual void Cancel() = 0;  // completes soon, on a gRPC thread
};

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // A connection of our own, closed with the channel.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // This file retries, because it knows what is idempotent.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Time limit of one connection attempt.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  arguments.SetInt(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadChunkBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

struct Channel::State {
  State(const std::string& address, Credentials credentials)
      : address(address),
        credentials(std::move(credentials)),
        stub(std::make_unique<grpc::GenericStub>(Connect(address))) {}

  std::unique_ptr<grpc::ClientContext> MakeContext() const {
    auto context = std::make_unique<grpc::ClientContext>();
    if (!credentials.empty()) context->AddMetadata(Credentials::kMetadataKey, credentials.shown());
    return context;
  }

  // Returns false after Abort.
  bool Add(std::shared_ptr<LiveCall> call) {
    absl::MutexLock lock(&mutex);
    if (!abort_reason.ok()) return false;
    live.emplace(call.get(), std::move(call));
    return true;
  }
  absl::Status AbortReason() {
    absl::MutexLock lock(&mutex);
    return abort_reason;
  }
  // Removes a call that is over: its callbacks have run and it holds no gRPC objects.
  void Remove(LiveCall* call) {
    absl::MutexLock lock(&mutex);
    live.erase(call);
  }
  void Abort(absl::Status reason);
  // Ends everything and closes the connection.
  // REQUIRES: not called below a gRPC reaction.
  void Close();
  // The caller's view of an error: the cause first, then the method, the address and the elapsed
  // time.
  absl::Status Describe(const absl::Status& cause, const std::string& method,
                        double seconds) const {
    return absl::Status(cause.code(), absl::StrFormat("%s (%s at %s, after %.1f s)",
                                                      cause.message(), method, address, seconds));
  }

  const std::string address;
  const Credentials credentials;
  std::unique_ptr<grpc::GenericStub> stub;
  absl::Mutex mutex;
  absl::Status abort_reason ABSL_GUARDED_BY(mutex);
  std::map<LiveCall*, std::shared_ptr<LiveCall>> live ABSL_GUARDED_BY(mutex);

  class Unary;
  class Stream;
  class StreamHandle;
};

// One unary call with its retries.
class Channel::State::Unary : public LiveCall, public std::enable_shared_from_this<Unary> {
 public:
  Unary(std::shared_ptr<State> channel, std::string method, const Payload& request,
        CallOptions options)
      : channel_(std::move(channel)),
        method_(std::move(method)),
        idempotent_(options.idempotent),
        deadline_(absl::Now() + options.deadline) {
    ToByteBuffer(request, &request_);
  }

  Future<Payload> Start() {
    Future<Payload> future = promise_.future();
    if (channel_->Add(shared_from_this())) {
      Attempt();
    } else {
      promise_.Set(channel_->AbortReason());
    }
    return future;
  }

  void Cancel() override {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
    if (retry_alarm_ != nullptr) retry_alarm_->Cancel();
  }

 private:
  void Attempt() {
    grpc::ClientContext* context = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      if (!cancelled_) {
        context_ = channel_->MakeContext();
        context_->set_deadline(absl::ToChronoTime(deadline_));
        context = context_.get();
      }
    }
    if (context == nullptr) return End(absl::CancelledError("the call was cancelled"));
    response_.Clear();
    channel_->stub->UnaryCall(context, method_, grpc::StubOptions(), &request_, &response_,
                              [self = shared_from_this()](grpc::Status status) {
                                ReactionScope scope;
                                self->AttemptEnded(FromGrpcStatus(status));
                              });
  }

  void AttemptEnded(const absl::Status& status) {
    if (!(idempotent_ && IsRetryable(status) && RetryLater())) End(status);
  }

  void End(const absl::Status& status) {
    const absl::Status reason = channel_->AbortReason();
    if (status.ok()) {
      promise_.Set(FromByteBuffer(response_));
    } else if (!reason.ok()) {
      promise_.Set(reason);
    } else {
      promise_.Set(channel_->Describe(status, method_, started_.Seconds()));
    }
    {
      absl::MutexLock lock(&mutex_);
      context_.reset();  // it holds the connection
    }
    channel_->Remove(this);
  }

  // Returns false if there is no time left or the call was cancelled.
  bool RetryLater() {
    const auto entropy =
        static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    const absl::Time when =
        absl::Now() + BackoffDelay(num_retries_++, static_cast<uint32_t>(Fmix64(entropy)));
    if (when >= deadline_) return false;
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return false;
    retry_alarm_ = std::make_unique<grpc::Alarm>();
    // The alarm keeps its callback while it lives. So the callback, when it runs, moves its
    // reference to this call out.
    retry_alarm_->Set(absl::ToChronoTime(when), [self = shared_from_this()](bool) mutable {
      ReactionScope scope;
      std::shared_ptr<Unary> call = std::move(self);
      call->Attempt();
    });
    return true;
  }

  const std::shared_ptr<State> channel_;
  const std::string method_;
  const bool idempotent_;
  const absl::Time deadline_;
  const Stopwatch started_;
  ByteBuffer request_, response_;
  Promise<Payload> promise_;
  int num_retries_ = 0;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> retry_alarm_ ABSL_GUARDED_BY(mutex_);
};

// One bidirectional stream. A hold keeps gRPC's half alive for writes that start outside of
// reactions. Breaking the stream releases the hold; afterwards nothing starts.
class Channel::State::Stream : public LiveCall,
                               public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer>,
                               public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::shared_ptr<State> channel, std::string method, int window)
      : channel_(std::move(channel)), method_(std::move(method)), window_(window) {}

  void Open() {
    absl::MutexLock lock(&mutex_);  // an Abort that comes now cancels the stream after it is open
    if (!channel_->Add(shared_from_this())) {
      broken_ = true;
      failure_ = channel_->AbortReason();
      return;
    }
    self_ = shared_from_this();
    context_ = channel_->MakeContext();
    channel_->stub->PrepareBidiStreamingCall(context_.get(), method_, grpc::StubOptions(), this);
    AddHold();
    StartRead(&reply_);
    StartCall();
  }

  Future<Payload> Send(const Payload& message) {
    Outgoing outgoing;
    ToByteBuffer(message, &outgoing.message);
    Future<Payload> future = outgoing.promise.future();
    {
      absl::MutexLock lock(&mutex_);
      if (failure_.has_value()) return Future<Payload>::Ready(*failure_);
      queue_.push_back(std::move(outgoing));
    }
    Pump();
    return future;
  }

  bool broken() {
    absl::MutexLock lock(&mutex_);
    return broken_;
  }
  void Close() {
    {
      absl::MutexLock lock(&mutex_);
      closed_ = true;
    }
    Cancel();  // a stream that is done keeps its result
  }
  void Cancel() override {
    absl::MutexLock lock(&mutex_);
    if (context_ != nullptr) context_->TryCancel();
    BreakLocked();
  }

  void OnWriteDone(bool ok) override {
    ReactionScope scope;
    writing_message_.Clear();
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) BreakLocked();
    }
    Pump();
  }
  void OnReadDone(bool ok) override {
    ReactionScope scope;
    if (!ok) {
      Break();
      return;
    }
    Payload reply = FromByteBuffer(reply_);
    reply_.Clear();
    Promise<Payload> promise;
    {
      absl::MutexLock lock(&mutex_);
      if (unanswered_.empty()) {  // more replies than messages break our protocol
        context_->TryCancel();
        BreakLocked();
        return;
      }
      promise = std::move(unanswered_.front());
      unanswered_.pop_front();
      StartRead(&reply_);
    }
    Pump();
    promise.Set(std::move(reply));
  }
  void OnDone(const grpc::Status& status) override {
    ReactionScope scope;
    const std::shared_ptr<Stream> self = std::move(self_);
    FailAll(Reason(status));
    channel_->Remove(this);
  }

 private:
  struct Outgoing {
    ByteBuffer message;
    Promise<Payload> promise;
    Outgoing() = default;
    Outgoing(Outgoing&& other) noexcept : promise(std::move(other.promise)) {
      message.Swap(&other.message);
    }
  };

  // Starts a write outside the mutex: the write may block until the socket has taken a large
  // message, and replies arrive meanwhile. A hold of its own lets the write start even if the
  // stream breaks meanwhile.
  void Pump() {
    {
      absl::MutexLock lock(&mutex_);
      if (broken_ || writing_ || queue_.empty() ||
          unanswered_.size() >= static_cast<size_t>(window_))
        return;
      writing_ = true;
      writing_message_.Swap(&queue_.front().message);
      unanswered_.push_back(std::move(queue_.front().promise));
      queue_.pop_front();
      AddHold();
    }
    const std::shared_ptr<Stream> self = shared_from_this();
    StartWrite(&writing_message_);
    RemoveHold();
  }
  void Break() {
    absl::MutexLock lock(&mutex_);
    BreakLocked();
  }
  void BreakLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (broken_) return;
    broken_ = true;
    RemoveHold();
  }

  absl::Status Reason(const grpc::Status& status) {
    if (absl::Status reason = channel_->AbortReason(); !reason.ok()) return reason;
    absl::Status cause = FromGrpcStatus(status);
    if (cause.ok()) cause = absl::UnavailableError("the server closed the stream");
    {
      absl::MutexLock lock(&mutex_);
      if (closed_) cause = absl::CancelledError("the stream was closed");
    }
    return channel_->Describe(cause, method_, started_.Seconds());
  }
  void FailAll(const absl::Status& reason) {
    std::deque<Promise<Payload>> unanswered;
    std::deque<Outgoing> queue;
    {
      absl::MutexLock lock(&mutex_);
      broken_ = true;
      failure_ = reason;
      unanswered.swap(unanswered_);
      queue.swap(queue_);
      context_.reset();  // it holds the connection
    }
    for (auto& promise : unanswered) promise.Set(reason);
    for (auto& outgoing : queue) outgoing.promise.Set(reason);
  }

  const std::shared_ptr<State> channel_;
  const std::string method_;
  const int window_;
  const Stopwatch started_;
  std::shared_ptr<Stream> self_;  // gRPC's reference
  ByteBuffer reply_;
  absl::Mutex mutex_;
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);  // while the stream lives
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;                           // closed by our side
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;                           // nothing starts any more
  // Set once gRPC is done with the stream.
  std::optional<absl::Status> failure_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  ByteBuffer writing_message_;  // being written while writing_, otherwise under the mutex
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mutex_);
  // Sent and unanswered, in order.
  std::deque<Promise<Payload>> unanswered_ ABSL_GUARDED_BY(mutex_);
};

class Channel::State::StreamHandle : public ClientStream {
 public:
  explicit StreamHandle(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  ~StreamHandle() override { stream_->Close(); }
  Future<Payload> Send(Payload message) override { return stream_->Send(message); }
  bool broken() const override { return stream_->broken(); }

 private:
  const std::shared_ptr<Stream> stream_;
};

void Channel::State::Abort(absl::Status reason) {
  std::map<LiveCall*, std::shared_ptr<LiveCall>> cancelled;
  {
    absl::MutexLock lock(&mutex);
    if (abort_reason.ok()) abort_reason = std::move(reason);
    cancelled = live;
  }
  for (auto& [pointer, call] : cancelled) call->Cancel();
}

void Channel::State::Close() {
  Abort(absl::CancelledError(absl::StrCat("the channel to ", address, " was closed")));
  absl::MutexLock lock(&mutex);
  auto idle = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return live.empty(); };
  // Cancelled calls end at once. Only a blocking callback can use up this time.
  if (mutex.AwaitWithTimeout(absl::Condition(&idle), absl::Seconds(30))) stub.reset();
}

Channel::Channel(std::string address, Credentials credentials)
    : state_(std::make_shared<State>(address, std::move(credentials))) {}

Channel::~Channel() {
  auto close = [state = std::move(state_)] { state->Close(); };
  if (InReaction()) {
    std::thread(std::move(close)).detach();  // ends by itself, because everything is cancelled
  } else {
    close();
  }
}

const std::string& Channel::address() const { return state_->address; }

Future<Payload> Channel::Call(const std::string& method, Payload request, CallOptions options) {
  return std::make_shared<State::Unary>(state_, method, request, options)->Start();
}

std::unique_ptr<ClientStream> Channel::OpenStream(const std::string& method, int window) {
  TANDEM_CHECK_GE(window, 1);
  auto stream = std::make_shared<State::Stream>(state_, method, window);
  stream->Open();
  return std::make_unique<State::StreamHandle>(std::move(stream));
}

void Channel::Abort(absl::Status reason) {
  TANDEM_CHECK(!reason.ok());
  state_->Abort(std::move(reason));
}

}  // namespace tandem::rpc
