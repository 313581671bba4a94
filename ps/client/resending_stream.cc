#include "ps/client/resending_stream.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/random.h"
#include "rpc/retry.h"

namespace tandem::ps {
namespace {

// Server shutdown cancels calls, so Cancelled means a lost peer. This side cancels only in Close,
// and reads no answer after that.
bool MayComeBack(const absl::Status& status) {
  return rpc::IsRetryable(status) || absl::IsCancelled(status);
}

}  // namespace

std::shared_ptr<ResendingStream> ResendingStream::Create(Open open, std::shared_ptr<Timer> timer) {
  return std::shared_ptr<ResendingStream>(new ResendingStream(std::move(open), std::move(timer)));
}

void ResendingStream::Send(Message message) {
  auto shared = std::make_shared<Message>(std::move(message));
  absl::Status closed;
  {
    absl::MutexLock lock(&mutex_);
    closed = closed_;
    if (closed.ok()) queue_.push_back(shared);
  }
  if (!closed.ok()) return shared->done(closed);
  Pump();
}

std::shared_ptr<Buffer> ResendingStream::Allocate(size_t num_bytes) {
  const std::shared_ptr<rpc::ClientStream> open = stream();
  return open != nullptr ? open->Allocate(num_bytes) : Buffer::Allocate(num_bytes);
}

void ResendingStream::Close(absl::Status reason) {
  Messages ended;
  std::shared_ptr<rpc::ClientStream> last;
  {
    absl::MutexLock lock(&mutex_);
    if (!closed_.ok()) return;
    closed_ = reason;
    ended = std::move(sent_);
    ended.insert(ended.end(), queue_.begin(), queue_.end());
    sent_.clear();
    queue_.clear();
    ++generation_;
    last = std::move(stream_);
  }
  End(ended, reason);
}

void ResendingStream::Pump() {
  absl::ReleasableMutexLock first(&mutex_);
  if (pumping_) return;
  pumping_ = true;
  first.Release();
  while (true) {
    std::shared_ptr<Message> message;
    std::shared_ptr<rpc::ClientStream> stream;
    uint64_t generation;
    {
      absl::MutexLock lock(&mutex_);
      if (!closed_.ok() || pausing_ || queue_.empty()) {
        pumping_ = false;
        return;
      }
      if (stream_ == nullptr) stream_ = open_();
      stream = stream_;
      generation = generation_;
      message = queue_.front();
      queue_.pop_front();
      sent_.push_back(message);
    }
    traffic_.Count({message->payload.size(), 0});
    stream->Send(message->payload)
        .OnReady([self = shared_from_this(), message,
                  generation](const absl::StatusOr<rpc::Payload>& answer) {
          self->OnAnswer(message, generation, answer);
        });
  }
}

bool ResendingStream::Remove(const std::shared_ptr<Message>& message) {
  for (Messages* list : {&sent_, &queue_}) {
    const auto found = std::find(list->begin(), list->end(), message);
    if (found == list->end()) continue;
    list->erase(found);
    return true;
  }
  return false;
}

ResendingStream::Messages ResendingStream::Requeue() {
  Messages unwanted, wanted;
  for (Messages* list : {&sent_, &queue_}) {
    for (auto& message : *list)
      (message->wanted() ? wanted : unwanted).push_back(std::move(message));
    list->clear();
  }
  queue_ = std::move(wanted);
  if (queue_.empty()) return unwanted;
  pausing_ = true;
  const auto entropy = static_cast<uint64_t>(absl::ToUnixNanos(absl::Now()));
  const absl::Duration pause =
      rpc::BackoffDelay(failures_++, static_cast<uint32_t>(Fmix64(entropy)));
  timer_->Schedule(absl::Now() + pause, [self = shared_from_this()] {
    {
      absl::MutexLock lock(&self->mutex_);
      self->pausing_ = false;
    }
    self->Pump();
  });
  return unwanted;
}

void ResendingStream::OnAnswer(const std::shared_ptr<Message>& message, uint64_t generation,
                               const absl::StatusOr<rpc::Payload>& answer) {
  if (answer.ok()) traffic_.Count({0, answer->size()});
  Messages ended;
  std::shared_ptr<rpc::ClientStream> broken;  // destroyed after the lock is released
  absl::Status status = answer.status();
  {
    absl::MutexLock lock(&mutex_);
    if (answer.ok()) {
      if (!Remove(message)) return;  // Close ended the message
      failures_ = 0;
    } else {
      if (generation != generation_) return;  // the stream was abandoned; the message was requeued
      ++generation_;
      broken = std::move(stream_);
      if (MayComeBack(status)) {
        ended = Requeue();
        status = absl::CancelledError("nobody waits for the answer any more");
      } else {
        ended.swap(sent_);
        timer_->Schedule(absl::Now(), [self = shared_from_this()] { self->Pump(); });
      }
    }
  }
  if (answer.ok()) message->done(answer);
  End(ended, status);
}

void ResendingStream::End(const Messages& messages, const absl::Status& status) {
  for (const auto& message : messages) message->done(status);
}

}  // namespace tandem::ps
