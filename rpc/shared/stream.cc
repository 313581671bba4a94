#include "rpc/shared/stream.h"

#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <unistd.h>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "rpc/grpc_bytes.h"
#include "rpc/shared/link.h"
#include "rpc/shared/local_socket.h"
#include "rpc/shared/memory.h"
#include "rpc/shared/protocol.h"

namespace tandem::rpc {

// Servers that refuse shared memory, or cannot share it with this process.
struct SharedStreams::Refusals {
  absl::Mutex mutex;
  std::set<std::string> addresses ABSL_GUARDED_BY(mutex);
};

class SharedStreams::Stream : public SharedPoller::Member,
                              public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::string address, std::string method, int window, absl::Duration welcome_timeout,
         std::unique_ptr<LocalSocket> socket, std::shared_ptr<Refusals> refusals)
      : address_(std::move(address)),
        method_(std::move(method)),
        window_(static_cast<size_t>(window)),
        welcome_timeout_(welcome_timeout),
        socket_(std::move(socket)),
        refusals_(std::move(refusals)) {}

  Future<Payload> Send(Payload message);
  bool broken() {
    absl::MutexLock lock(&mutex_);
    return failure_.has_value();
  }
  std::shared_ptr<Buffer> Allocate(size_t num_bytes) {
    const std::shared_ptr<SharedLink> link = this->link();
    return link != nullptr ? link->Allocate(num_bytes) : Buffer::Allocate(num_bytes);
  }
  // Ends the stream with `cause`. A stream that has ended keeps its first cause.
  void Break(const absl::Status& cause);

  int fd() const override { return socket_->fd(); }
  bool Step() override;
  bool Rest() override { return link() == nullptr || link()->Rest(/*takes_messages=*/true); }
  bool OnReadable() override;
  void End() override;

 private:
  struct Outgoing {
    Payload message;
    Promise<Payload> promise;
  };

  std::shared_ptr<SharedLink> link() {
    absl::MutexLock lock(&mutex_);
    return link_;
  }
  // Sends as many messages as the window allows. One thread at a time sends, without holding the
  // lock while it copies.
  void Pump();
  bool TakeReply(SharedLink& link);
  // Takes ownership of `fd`.
  absl::Status OnWelcome(const std::string& packet, int fd);
  // Makes later Opens to this server fail, so that they use another way.
  void RememberRefusal();
  // Remembers the refusal and breaks this stream.
  void Refuse(absl::string_view why) {
    RememberRefusal();
    Break(absl::UnavailableError(absl::StrCat("no shared memory: ", why)));
  }

  const std::string address_, method_;
  const size_t window_;
  const absl::Duration welcome_timeout_;
  const std::shared_ptr<LocalSocket> socket_;
  const std::shared_ptr<Refusals> refusals_;
  const Stopwatch started_;
  absl::Mutex mutex_;
  std::shared_ptr<SharedLink> link_ ABSL_GUARDED_BY(mutex_);  // set by the welcome
  std::optional<absl::Status> failure_ ABSL_GUARDED_BY(mutex_);
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mutex_);
  // Sent and unanswered, in order.
  std::deque<Promise<Payload>> unanswered_ ABSL_GUARDED_BY(mutex_);
};

class SharedStreams::Handle : public ClientStream {
 public:
  explicit Handle(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  ~Handle() override { stream_->Break(absl::CancelledError("the stream was closed")); }
  Future<Payload> Send(Payload message) override { return stream_->Send(std::move(message)); }
  bool broken() const override { return stream_->broken(); }
  std::shared_ptr<Buffer> Allocate(size_t num_bytes) override {
    return stream_->Allocate(num_bytes);
  }

 private:
  const std::shared_ptr<Stream> stream_;
};

Future<Payload> SharedStreams::Stream::Send(Payload message) {
  if (message.size() > size_t{kMaxMessageBytes}) {
    Break(absl::ResourceExhaustedError(
        absl::StrCat("a message of ", message.size(), " bytes, the limit is ", kMaxMessageBytes)));
  }
  Future<Payload> future;
  {
    absl::MutexLock lock(&mutex_);
    if (failure_.has_value()) return Future<Payload>::Ready(*failure_);
    future = queue_.emplace_back(Outgoing{std::move(message), {}}).promise.future();
  }
  Pump();
  return future;
}

void SharedStreams::Stream::Pump() {
  absl::ReleasableMutexLock first(&mutex_);
  if (pumping_) return;
  pumping_ = true;
  first.Release();
  while (true) {
    std::shared_ptr<SharedLink> link;
    Payload message;
    {
      absl::MutexLock lock(&mutex_);
      if (link_ == nullptr || failure_.has_value() || queue_.empty() ||
          unanswered_.size() >= window_) {
        pumping_ = false;
        return;
      }
      link = link_;
      message = std::move(queue_.front().message);
      unanswered_.push_back(std::move(queue_.front().promise));
      queue_.pop_front();
    }
    link->Send({std::move(message)});
  }
}

bool SharedStreams::Stream::Step() {
  const std::shared_ptr<SharedLink> link = this->link();
  if (link == nullptr) {
    // For example a server that hangs or was stopped.
    if (absl::Seconds(started_.Seconds()) > welcome_timeout_ && !broken())
      Refuse("the server has not answered");
    return false;
  }
  const absl::StatusOr<bool> sent = link->Step();
  if (!sent.ok()) Break(sent.status());
  return TakeReply(*link) || (sent.ok() && *sent);
}

bool SharedStreams::Stream::TakeReply(SharedLink& link) {
  if (broken()) return false;
  absl::StatusOr<std::optional<SharedMessage>> reply = link.Take();
  if (!reply.ok()) {
    Break(reply.status());
    return false;
  }
  if (!reply->has_value()) return false;
  SharedMessage& message = **reply;
  if (message.code != absl::StatusCode::kOk) {
    const std::string_view text = message.payload.Flatten();
    Break(absl::Status(message.code, absl::string_view(text.data(), text.size())));
    return true;
  }
  std::optional<Promise<Payload>> promise;
  {
    absl::MutexLock lock(&mutex_);
    if (!unanswered_.empty()) {
      promise = std::move(unanswered_.front());
      unanswered_.pop_front();
    }
  }
  if (!promise.has_value()) {
    if (!broken()) Break(absl::InternalError("more replies than messages"));
    return false;
  }
  Pump();
  promise->Set(std::move(message.payload));
  return true;
}

bool SharedStreams::Stream::OnReadable() {
  std::string packet;
  while (true) {
    const bool welcome = link() == nullptr;
    int fd = -1;
    switch (socket_->Receive(&packet, kMaxPacketBytes, welcome ? &fd : nullptr)) {
      case LocalSocket::Received::CLOSED:
        return false;
      case LocalSocket::Received::NOTHING:
        return true;
      case LocalSocket::Received::PACKET:
        if (!welcome) continue;
        if (const absl::Status status = OnWelcome(packet, fd); !status.ok()) {
          Refuse(status.message());
          return false;
        }
        Pump();
    }
  }
}

absl::Status SharedStreams::Stream::OnWelcome(const std::string& packet, int fd) {
  absl::Cleanup unused = [fd] {
    if (fd >= 0) close(fd);
  };
  SharedWelcome welcome;
  if (packet.size() < sizeof welcome) return absl::DataLossError("not a welcome");
  std::memcpy(&welcome, packet.data(), sizeof welcome);
  if (welcome.magic != kSharedMagic || welcome.version != kSharedVersion)
    return absl::FailedPreconditionError("another version");
  if (fd < 0 && welcome.arena_bytes != 0)
    return absl::ResourceExhaustedError("this process has no descriptor left");
  if (fd < 0) return absl::UnavailableError(packet.substr(sizeof welcome));
  if (welcome.arena_bytes == 0 || welcome.arena_bytes % Extents::kUnit != 0 ||
      welcome.arena_bytes > size_t{1} << 40) {
    return absl::DataLossError(absl::StrCat("arenas of ", welcome.arena_bytes, " bytes"));
  }
  std::move(unused).Cancel();
  ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                   SharedMemory::Adopt(fd, SharedLink::SegmentBytes(welcome.arena_bytes)));
  absl::MutexLock lock(&mutex_);
  link_ = std::make_shared<SharedLink>(std::move(memory), welcome.arena_bytes,
                                       SharedLink::Side::CLIENT, socket_);
  return absl::OkStatus();
}

void SharedStreams::Stream::RememberRefusal() {
  absl::MutexLock lock(&refusals_->mutex);
  refusals_->addresses.insert(address_);
}

void SharedStreams::Stream::End() {
  const std::shared_ptr<SharedLink> link = this->link();
  if (link == nullptr && !broken()) RememberRefusal();
  // The server's last message may be an error in the segment.
  while (link != nullptr && TakeReply(*link)) {
  }
  Break(absl::UnavailableError("the server closed the stream, or is gone"));
  if (link != nullptr) link->End();
}

void SharedStreams::Stream::Break(const absl::Status& cause) {
  std::deque<Promise<Payload>> unanswered;
  std::deque<Outgoing> queue;
  const absl::Status reason(
      cause.code(), absl::StrFormat("%s (%s at %s through shared memory, after %.1f s)",
                                    cause.message(), method_, address_, started_.Seconds()));
  std::shared_ptr<SharedLink> link;
  {
    absl::MutexLock lock(&mutex_);
    if (failure_.has_value()) return;
    failure_ = reason;
    unanswered.swap(unanswered_);
    queue.swap(queue_);
    link = link_;
  }
  if (link != nullptr)
    link->Close();
  else
    socket_->Shutdown();
  for (auto& promise : unanswered) promise.Set(reason);
  for (auto& outgoing : queue) outgoing.promise.Set(reason);
}

SharedStreams::SharedStreams(Credentials credentials, absl::Duration welcome_timeout)
    : credentials_(std::move(credentials)),
      welcome_timeout_(welcome_timeout),
      refusals_(std::make_shared<Refusals>()),
      poller_(std::make_shared<SharedPoller>("shared streams")) {}

absl::StatusOr<std::unique_ptr<ClientStream>> SharedStreams::Open(const std::string& address,
                                                                  const std::string& method,
                                                                  int window) {
  TANDEM_CHECK_GE(window, 1);
  {
    absl::MutexLock lock(&refusals_->mutex);
    if (refusals_->addresses.count(address) > 0)
      return absl::UnavailableError(absl::StrCat(address, " refused shared memory"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<LocalSocket> socket,
                   LocalSocket::Connect(SharedSocketName(address)));
  SharedHello hello;
  std::memcpy(hello.shown, credentials_.shown().data(), credentials_.shown().size());
  const std::string packet =
      absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&hello), sizeof hello), method);
  if (packet.size() > kMaxPacketBytes || !socket->Send(packet.data(), packet.size())) {
    return absl::UnavailableError(absl::StrCat(address, " takes no stream through shared memory"));
  }
  auto stream = std::make_shared<Stream>(address, method, window, welcome_timeout_,
                                         std::move(socket), refusals_);
  poller_->Add(stream);
  return std::make_unique<Handle>(std::move(stream));
}

}  // namespace tandem::rpc
