#include "rpc/shared/server.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "rpc/grpc_bytes.h"
#include "rpc/ordered_answers.h"
#include "rpc/served_call.h"
#include "rpc/shared/link.h"
#include "rpc/shared/local_socket.h"
#include "rpc/shared/memory.h"
#include "rpc/shared/protocol.h"

namespace tandem::rpc {

namespace {

constexpr size_t kMaxUnanswered = 16;  // messages of one stream that its handler holds
constexpr int kMaxPackets = 16;  // packets taken from one socket before others have their turn

}  // namespace

// Counts the messages that handlers hold, of all streams.
class SharedServer::Running {
 public:
  void Add(int count) {
    absl::MutexLock lock(&mutex_);
    count_ += count;
  }
  void AwaitNone(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return count_ == 0; };
    mutex_.AwaitWithDeadline(absl::Condition(&none), deadline);
  }

 private:
  absl::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One client's stream. Passes messages to the handler as they arrive, and sends replies in the
// order of the messages.
class SharedServer::Stream : public SharedPoller::Member,
                             public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::unique_ptr<LocalSocket> socket, std::shared_ptr<const Credentials> credentials,
         std::shared_ptr<const HandlerMap> handlers, SharedMemoryOptions options,
         std::shared_ptr<SharedPoller> poller, std::shared_ptr<Running> running)
      : socket_(std::move(socket)),
        credentials_(std::move(credentials)),
        handlers_(std::move(handlers)),
        options_(options),
        poller_(std::move(poller)),
        running_(std::move(running)) {}

  int fd() const override { return socket_->fd(); }
  bool Step() override;
  bool Rest() override { return link_ == nullptr || link_->Rest(TakesMessages()); }
  bool OnReadable() override;
  void End() override {
    socket_->Shutdown();
    if (link_ != nullptr) link_->End();
  }

 private:
  // One message, with its place in the order of replies.
  class Call : public ServedCall {
   public:
    Call(std::shared_ptr<Stream> stream, uint64_t number)
        : stream_(std::move(stream)), number_(number) {}
    void Answer(absl::StatusOr<Payload> answer) override {
      stream_->Answer(number_, std::move(answer));
    }
    std::shared_ptr<Buffer> Allocate(size_t num_bytes) override {
      return stream_->link_->Allocate(num_bytes);
    }

   private:
    const std::shared_ptr<Stream> stream_;
    const uint64_t number_;
  };

  // Returns false if the stream was refused and is over.
  bool Welcome(const std::string& hello);
  absl::StatusOr<std::shared_ptr<SharedMemory>> Open(const std::string& hello);
  void Answer(uint64_t number, absl::StatusOr<Payload> answer);
  bool TakesMessages() {
    absl::MutexLock lock(&mutex_);
    return !ended_ && answers_.size() < kMaxUnanswered;
  }

  const std::shared_ptr<LocalSocket> socket_;
  const std::shared_ptr<const Credentials> credentials_;
  const std::shared_ptr<const HandlerMap> handlers_;
  const SharedMemoryOptions options_;
  const std::shared_ptr<SharedPoller> poller_;
  const std::shared_ptr<Running> running_;
  const Stopwatch accepted_;
  std::shared_ptr<const Handler> handler_;
  std::shared_ptr<SharedLink> link_;  // set by the welcome, before any message
  absl::Mutex mutex_;
  OrderedAnswers answers_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // ended by an error reply
  // One thread at a time sends, without the lock; that keeps the order.
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
};

bool SharedServer::Stream::Step() {
  if (link_ == nullptr) {
    if (absl::Seconds(accepted_.Seconds()) > options_.hello_timeout) socket_->Shutdown();
    return false;
  }
  const absl::StatusOr<bool> sent = link_->Step();
  if (!sent.ok()) link_->Close();
  if (!sent.ok() || !TakesMessages()) return sent.ok() && *sent;
  absl::StatusOr<std::optional<SharedMessage>> message = link_->Take();
  if (!message.ok()) link_->Close();  // a peer that breaks the protocol cannot be trusted
  if (!message.ok() || !message->has_value()) return *sent;
  uint64_t number;
  {
    absl::MutexLock lock(&mutex_);
    number = answers_.Expect();
  }
  running_->Add(1);
  (*handler_)(std::move((**message).payload),
              MakeReply(std::make_shared<Call>(shared_from_this(), number)));
  return true;
}

void SharedServer::Stream::Answer(uint64_t number, absl::StatusOr<Payload> answer) {
  if (answer.ok() && answer->size() > size_t{kMaxMessageBytes}) {
    answer = absl::ResourceExhaustedError(
        absl::StrCat("a reply of ", answer->size(), " bytes, the limit is ", kMaxMessageBytes));
  }
  {
    absl::MutexLock lock(&mutex_);
    answers_.Give(number, std::move(answer));
    if (std::exchange(sending_, true)) return;
  }
  while (true) {
    bool was_full, is_sent;
    {
      absl::MutexLock lock(&mutex_);
      sending_ = answers_.ready();
      if (!sending_) return;
      was_full = answers_.size() >= kMaxUnanswered;
      answer = answers_.Take();
      is_sent = !ended_;
      ended_ = ended_ || !answer.ok();
    }
    if (is_sent && answer.ok())
      link_->Send({*std::move(answer)});
    else if (is_sent)
      link_->Send({Payload(std::string(answer.status().message())), answer.status().code()});
    answer = Payload();
    running_->Add(-1);
    if (was_full) poller_->Wake();
  }
}

bool SharedServer::Stream::OnReadable() {
  std::string packet;
  for (int i = 0; i < kMaxPackets; ++i) {
    switch (socket_->Receive(&packet, kMaxPacketBytes)) {
      case LocalSocket::Received::CLOSED:
        return false;
      case LocalSocket::Received::NOTHING:
        return true;
      case LocalSocket::Received::PACKET:
        if (link_ == nullptr && !Welcome(packet)) return false;
    }
  }
  return true;
}

bool SharedServer::Stream::Welcome(const std::string& hello) {
  SharedWelcome welcome;
  const auto memory = Open(hello);
  if (memory.ok()) {
    welcome.arena_bytes = options_.arena_bytes;
    link_ = std::make_shared<SharedLink>(*memory, options_.arena_bytes, SharedLink::Side::SERVER,
                                         socket_);
  } else {
    welcome.code = static_cast<uint64_t>(memory.status().raw_code());
  }
  std::string packet(reinterpret_cast<const char*>(&welcome), sizeof welcome);
  if (!memory.ok())
    absl::StrAppend(&packet, memory.status().message().substr(0, kMaxPacketBytes - sizeof welcome));
  return socket_->Send(packet.data(), packet.size(), memory.ok() ? (*memory)->fd() : -1) &&
         memory.ok();
}

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedServer::Stream::Open(const std::string& hello) {
  SharedHello header;
  if (hello.size() < sizeof header) return absl::InvalidArgumentError("not a hello");
  std::memcpy(&header, hello.data(), sizeof header);
  if (header.magic != kSharedMagic || header.version != kSharedVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("version ", header.version, ", this server speaks ", kSharedVersion));
  }
  RETURN_IF_ERROR(credentials_->Check({header.shown, strnlen(header.shown, sizeof header.shown)}));
  const std::string method = hello.substr(sizeof header);
  const auto handler = handlers_->find(method);
  if (handler == handlers_->end())
    return absl::UnimplementedError(absl::StrCat("there is no stream ", method));
  handler_ = handler->second;
  return SharedMemory::Create(SharedLink::SegmentBytes(options_.arena_bytes));
}

class SharedServer::Listener : public SharedPoller::Member {
 public:
  Listener(std::unique_ptr<LocalSocket> socket, const Credentials& credentials, HandlerMap handlers,
           SharedMemoryOptions options, std::shared_ptr<SharedPoller> poller,
           std::shared_ptr<Running> running)
      : socket_(std::move(socket)),
        credentials_(std::make_shared<const Credentials>(credentials)),
        handlers_(std::make_shared<const HandlerMap>(std::move(handlers))),
        options_(options),
        poller_(std::move(poller)),
        running_(std::move(running)) {}

  int fd() const override { return socket_->fd(); }
  bool Step() override { return false; }
  bool Rest() override { return true; }
  bool OnReadable() override {
    if (auto accepted = socket_->Accept(); accepted != nullptr) {
      poller_->Add(std::make_shared<Stream>(std::move(accepted), credentials_, handlers_, options_,
                                            poller_, running_));
    }
    return true;
  }
  void End() override {}

 private:
  const std::unique_ptr<LocalSocket> socket_;
  const std::shared_ptr<const Credentials> credentials_;
  const std::shared_ptr<const HandlerMap> handlers_;
  const SharedMemoryOptions options_;
  const std::shared_ptr<SharedPoller> poller_;
  const std::shared_ptr<Running> running_;
};

SharedServer::SharedServer()
    : poller_(std::make_shared<SharedPoller>("shared streams")),
      running_(std::make_shared<Running>()) {}

void SharedServer::AwaitReplies(absl::Time deadline) { running_->AwaitNone(deadline); }

absl::StatusOr<std::unique_ptr<SharedServer>> SharedServer::Start(const std::string& address,
                                                                  const Credentials& credentials,
                                                                  HandlerMap streams,
                                                                  SharedMemoryOptions options) {
  TANDEM_CHECK(options.arena_bytes > 0 && options.arena_bytes % Extents::kUnit == 0)
      << options.arena_bytes;
  ASSIGN_OR_RETURN(std::unique_ptr<LocalSocket> socket,
                   LocalSocket::Listen(SharedSocketName(address)));
  std::unique_ptr<SharedServer> server(new SharedServer());
  server->poller_->Add(std::make_shared<Listener>(std::move(socket), credentials,
                                                  std::move(streams), options, server->poller_,
                                                  server->running_));
  return server;
}

}  // namespace tandem::rpc
