#include "trainer/bench/raw_bytes.h"

#include <cstring>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "trainer/bench/figures.h"

namespace tandem::bench {

namespace {

constexpr char kService[] = "tandem.RawBytes";
constexpr size_t kMemoryBytes = size_t{256} << 20, kMessageBytes = size_t{1} << 20,
                 kPieceBytes = 256;
constexpr size_t kPieces = kMessageBytes / kPieceBytes;
constexpr size_t kLookAhead = 8;  // pieces

// The messages in flight through all streams of one measurement.
struct OnTheWay {
  absl::Mutex mutex;
  std::vector<int> of_stream ABSL_GUARDED_BY(mutex);
  uint64_t num_answered ABSL_GUARDED_BY(mutex) = 0;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

}  // namespace

RawMemory::RawMemory() : memory_(Buffer::Allocate(kMemoryBytes)) {
  std::memset(memory_->data(), 1, kMemoryBytes);
}

rpc::Payload RawMemory::Gather(absl::FunctionRef<std::shared_ptr<Buffer>(size_t)> allocate) {
  const auto message = allocate(kMessageBytes);
  const char* source = static_cast<const char*>(memory_->data());
  char* target = static_cast<char*>(message->data());
  uint64_t state = Fmix64(++num_gathered_);
  const char* pieces[kLookAhead];
  for (size_t i = 0; i < kPieces + kLookAhead; ++i) {
    if (i >= kLookAhead)
      std::memcpy(target + (i - kLookAhead) * kPieceBytes, pieces[i % kLookAhead], kPieceBytes);
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    pieces[i % kLookAhead] = source + (state >> 32) % (kMemoryBytes / kPieceBytes) * kPieceBytes;
    for (size_t offset = 0; offset < kPieceBytes; offset += 64)
      __builtin_prefetch(pieces[i % kLookAhead] + offset);
  }
  rpc::Payload payload;
  payload.Append(message->data(), kMessageBytes, message);
  return payload;
}

void RawMemory::Take(const rpc::Payload& message) {
  const auto target = Buffer::Allocate(message.size());
  char* next = static_cast<char*>(target->data());
  for (const rpc::Payload::Slice& slice : message.slices()) {
    std::memcpy(next, slice.data, slice.size);
    next += slice.size;
  }
}

void RawBytesService::Register(rpc::Server& server) {
  server.Handle(kService, "Pull", rpc::MethodKind::STREAM, [this](rpc::Payload, rpc::Reply reply) {
    reply(memory_.Gather([&](size_t num_bytes) { return reply.Allocate(num_bytes); }));
  });
  server.Handle(kService, "Push", rpc::MethodKind::STREAM,
                [](rpc::Payload request, rpc::Reply reply) {
                  RawMemory::Take(request);
                  reply(rpc::Payload());
                });
}

std::vector<double> RatesOfBestWindow(const std::vector<std::vector<double>>& rates) {
  std::vector<double> best(rates.size());
  for (size_t window = 0; window < rates[0].size(); ++window) {
    std::vector<double> of_window;
    for (const std::vector<double>& repetition : rates) of_window.push_back(repetition[window]);
    if (Median(of_window) > Median(best)) best = of_window;
  }
  return best;
}

RawBytesClient::RawBytesClient(const std::vector<std::string>& addresses, bool shared_memory,
                               const rpc::Credentials& credentials)
    : shared_(shared_memory ? std::make_unique<rpc::SharedStreams>(credentials) : nullptr) {
  for (const std::string& address : addresses)
    channels_.push_back(std::make_unique<rpc::Channel>(address, credentials));
}

absl::StatusOr<std::unique_ptr<rpc::ClientStream>> RawBytesClient::Open(rpc::Channel& channel,
                                                                        const std::string& method,
                                                                        int window) {
  if (shared_ != nullptr) return shared_->Open(channel.address(), method, window);
  return channel.OpenStream(method, window);
}

absl::StatusOr<double> RawBytesClient::Measure(Direction direction, int window,
                                               absl::Duration duration) {
  const bool pull = direction == Direction::PULL;
  std::vector<std::unique_ptr<rpc::ClientStream>> streams;
  for (const auto& channel : channels_) {
    ASSIGN_OR_RETURN(
        streams.emplace_back(),
        Open(*channel, std::string("/") + kService + (pull ? "/Pull" : "/Push"), window));
  }
  const auto on_the_way = std::make_shared<OnTheWay>();
  absl::MutexLock lock(&on_the_way->mutex);
  on_the_way->of_stream.resize(streams.size());
  const Stopwatch watch;
  const double seconds = absl::ToDoubleSeconds(duration);
  while (watch.Seconds() < seconds && on_the_way->status.ok()) {
    size_t free = 0;
    const auto has_room = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      for (free = 0; free < streams.size(); ++free) {
        if (on_the_way->of_stream[free] < window) return true;
      }
      return !on_the_way->status.ok();
    };
    if (!on_the_way->mutex.AwaitWithTimeout(absl::Condition(&has_room), absl::Seconds(30))) {
      return absl::DeadlineExceededError("a raw stream stood still for 30 s");
    }
    if (free == streams.size()) break;
    ++on_the_way->of_stream[free];
    on_the_way->mutex.Unlock();
    streams[free]
        ->Send(pull ? rpc::Payload(std::string(8, 'p')) : memory_.Gather([&](size_t num_bytes) {
          return streams[free]->Allocate(num_bytes);
        }))
        .OnReady([on_the_way, free, pull](const absl::StatusOr<rpc::Payload>& reply) {
          if (pull && reply.ok()) RawMemory::Take(*reply);
          absl::MutexLock lock(&on_the_way->mutex);
          --on_the_way->of_stream[free];
          if (reply.ok())
            ++on_the_way->num_answered;
          else
            on_the_way->status.Update(reply.status());
        });
    on_the_way->mutex.Lock();
  }
  if (!on_the_way->status.ok()) return on_the_way->status;
  return static_cast<double>(on_the_way->num_answered * kMessageBytes) / watch.Seconds();
}

}  // namespace tandem::bench
