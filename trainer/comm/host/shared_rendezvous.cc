#include "trainer/comm/host/shared_rendezvous.h"

#include <algorithm>
#include <atomic>
#include <poll.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "rpc/constant_time.h"
#include "rpc/shared/local_socket.h"

namespace tandem::comm {

namespace {

constexpr char kReady[] =
    "ready";  // else the segment's key has the code and text of rank 0's error
constexpr int kPollMilliseconds = 20;
constexpr size_t kMaxToken = 256;

std::string StoreKey(const SharedRendezvous& where, const std::string& part) {
  return absl::StrCat("comm/", where.key, "/", part);
}

// The socket's name is a hash, because the key may hold any characters and any length, and the
// token must stay hidden.
std::string SocketName(const SharedRendezvous& where) {
  return absl::StrFormat("tandem-comm-%016x",
                         StableHash(absl::StrCat(where.token, "/", where.key)));
}

// Gives a segment to every process that shows the job's token, on a thread of its own, until
// destroyed.
class Giver {
 public:
  Giver(std::unique_ptr<rpc::LocalSocket> socket, std::string token, int segment)
      : socket_(std::move(socket)),
        token_(std::move(token)),
        segment_(segment),
        thread_([this] { Serve(); }) {}
  ~Giver() {
    stopping_ = true;
    thread_.join();
  }
  Giver(const Giver&) = delete;
  Giver& operator=(const Giver&) = delete;

 private:
  void Serve() {
    std::vector<std::unique_ptr<rpc::LocalSocket>> asking;
    while (!stopping_) {
      std::vector<pollfd> polled{{socket_->fd(), POLLIN, 0}};
      for (const auto& one : asking) polled.push_back({one->fd(), POLLIN, 0});
      poll(polled.data(), polled.size(), kPollMilliseconds);
      std::erase_if(asking, [this](const auto& one) { return IsDone(*one); });
      while (auto accepted = socket_->Accept()) asking.push_back(std::move(accepted));
    }
  }
  bool IsDone(rpc::LocalSocket& asking) const {
    std::string packet;
    const auto received = asking.Receive(&packet, kMaxToken);
    if (received == rpc::LocalSocket::Received::PACKET && rpc::EqualInConstantTime(packet, token_))
      asking.Send(kReady, sizeof kReady, segment_);
    return received != rpc::LocalSocket::Received::NOTHING;
  }

  const std::unique_ptr<rpc::LocalSocket> socket_;
  const std::string token_;
  const int segment_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

absl::Status TellStore(const SharedRendezvous& where, const absl::Status& status) {
  return where.store->Set(
      StoreKey(where, "segment"),
      status.ok() ? kReady : absl::StrCat(status.raw_code(), " ", status.message()));
}

// Rank 0's error, from what TellStore said.
absl::Status ErrorOfRank0(const SharedRendezvous& where, const std::string& said) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(said, absl::MaxSplits(' ', 1));
  int code = 0;
  if (!absl::SimpleAtoi(parts.first, &code)) code = static_cast<int>(absl::StatusCode::kInternal);
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::StrCat("rank 0 of group '", where.key, "': ", parts.second));
}

// Rank 0 reports its own failure, so that no rank waits for a segment that never comes.
absl::StatusOr<std::unique_ptr<rpc::SharedMemory>> CreateFor(const SharedRendezvous& where,
                                                             size_t num_bytes,
                                                             rpc::SharedMemory::Pages pages,
                                                             absl::Time deadline) {
  auto memory = rpc::SharedMemory::Create(num_bytes, pages);
  auto socket = rpc::LocalSocket::Listen(SocketName(where));
  const absl::Status made = memory.ok() ? socket.status() : memory.status();
  RETURN_IF_ERROR(TellStore(where, made));
  RETURN_IF_ERROR(made);
  const Giver giver(*std::move(socket), where.token, (*memory)->fd());
  for (int r = 1; r < where.size; ++r) {
    auto attached = where.store->Get(StoreKey(where, absl::StrCat("attached/", r)), deadline);
    if (absl::IsDeadlineExceeded(attached.status())) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", r, " of ", where.size, " did not join group '", where.key, "'"));
    }
    RETURN_IF_ERROR(attached.status());
  }
  return memory;
}

// Returns the segment's descriptor, which the caller owns.
absl::StatusOr<int> AskForSegment(const SharedRendezvous& where, absl::Time deadline) {
  ASSIGN_OR_RETURN(const auto socket, rpc::LocalSocket::Connect(SocketName(where)));
  const std::string silent = absl::StrCat("rank 0 of group '", where.key, "' gave no memory");
  if (!socket->Send(where.token.data(), where.token.size())) return absl::UnavailableError(silent);
  while (absl::Now() < deadline) {
    pollfd polled{socket->fd(), POLLIN, 0};
    poll(&polled, 1, kPollMilliseconds);
    std::string packet;
    int segment = -1;
    const auto received = socket->Receive(&packet, sizeof kReady, &segment);
    if (received == rpc::LocalSocket::Received::CLOSED) return absl::UnavailableError(silent);
    if (received == rpc::LocalSocket::Received::PACKET) return segment;
  }
  return absl::DeadlineExceededError(silent);
}

absl::StatusOr<std::unique_ptr<rpc::SharedMemory>> OpenFrom(const SharedRendezvous& where,
                                                            size_t num_bytes, absl::Time deadline) {
  auto said = where.store->Get(StoreKey(where, "segment"), deadline);
  if (absl::IsDeadlineExceeded(said.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat("rank 0 of ", where.size, " did not open group '", where.key, "'"));
  }
  RETURN_IF_ERROR(said.status());
  if (*said != kReady) return ErrorOfRank0(where, *said);
  ASSIGN_OR_RETURN(const int segment, AskForSegment(where, deadline));
  ASSIGN_OR_RETURN(auto memory, rpc::SharedMemory::Adopt(segment, num_bytes));
  RETURN_IF_ERROR(where.store->Set(StoreKey(where, absl::StrCat("attached/", where.rank)), kReady));
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<rpc::SharedMemory>> MapTogether(const SharedRendezvous& where,
                                                               size_t num_bytes,
                                                               rpc::SharedMemory::Pages pages,
                                                               absl::Time deadline) {
  return where.rank == 0 ? CreateFor(where, num_bytes, pages, deadline)
                         : OpenFrom(where, num_bytes, deadline);
}

}  // namespace tandem::comm
