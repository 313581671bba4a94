#include "trainer/comm/net/exchange.h"

#include <algorithm>
#include <poll.h>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"

namespace tandem::comm {

namespace {

// At most so much in a row for one peer, so that all peers' pieces flow.
constexpr size_t kTurnBytes = 256 << 10;
// Longer waits sleep. A peer of the same network answers within this time, and waking costs more.
constexpr absl::Duration kSpin = absl::Microseconds(50);

}  // namespace

Exchange::Exchange(const std::vector<Socket>* connections)
    : connections_(*connections), peers_(connections->size()) {}

void Exchange::Send(int peer, const void* data, size_t size, Ready ready) {
  if (size == 0) return;
  peers_[peer].out.push_back(
      {const_cast<char*>(static_cast<const char*>(data)), size, 0, nullptr, std::move(ready)});
}

void Exchange::Receive(int peer, void* data, size_t size, std::function<absl::Status()> then,
                       Ready ready) {
  peers_[peer].in.push_back({static_cast<char*>(data), size, 0, std::move(then), std::move(ready)});
}

absl::Status Exchange::Move(int peer, Direction direction, bool* moved) {
  const Socket& connection = connections_[peer];
  std::deque<Piece>& pieces = direction == Direction::OUT ? peers_[peer].out : peers_[peer].in;
  for (size_t turn = 0; turn < kTurnBytes && MayMove(pieces);) {
    Piece& piece = pieces.front();
    if (const size_t before = piece.done, left = piece.size - before; left > 0) {
      const Socket::Moved outcome =
          direction == Direction::OUT ? connection.Send(piece.data + before, left, &piece.done)
                                      : connection.Receive(piece.data + before, left, &piece.done);
      if (outcome == Socket::Moved::NOTHING) return absl::OkStatus();
      if (outcome == Socket::Moved::CLOSED) {
        unfinished_ = {peer};
        return absl::UnavailableError("the connection ended");
      }
      turn += piece.done - before;
      (direction == Direction::OUT ? traffic_.sent : traffic_.received) += piece.done - before;
    }
    *moved = true;
    if (piece.done < piece.size) continue;
    const std::function<absl::Status()> then = std::move(piece.then);
    pieces.pop_front();
    if (then) RETURN_IF_ERROR(then());
  }
  return absl::OkStatus();
}

absl::Status Exchange::Run(const Watch& watch, absl::Time deadline) {
  absl::Time idle_since = absl::InfiniteFuture();
  while (true) {
    bool moved = false, left = false;
    for (size_t peer = 0; peer < peers_.size(); ++peer) {
      absl::Status status = Move(static_cast<int>(peer), Direction::IN, &moved);
      if (status.ok()) status = Move(static_cast<int>(peer), Direction::OUT, &moved);
      // A peer that gave up has said why, which explains more than the end of its connection.
      if (absl::IsUnavailable(status) && watch.said) {
        if (absl::Status said = watch.said(); !said.ok()) {
          unfinished_.clear();
          return said;
        }
      }
      RETURN_IF_ERROR(status);
      left = left || !peers_[peer].in.empty() || !peers_[peer].out.empty();
    }
    if (!left) return absl::OkStatus();
    if (moved) {
      idle_since = absl::InfiniteFuture();
      continue;
    }
    const absl::Time now = absl::Now();
    idle_since = std::min(idle_since, now);
    if (now - idle_since < kSpin) continue;
    RETURN_IF_ERROR(Sleep(watch, deadline));
  }
}

absl::Status Exchange::Sleep(const Watch& watch, absl::Time deadline) {
  std::vector<pollfd> polled;
  for (const int fd : watch.fds) polled.push_back({fd, POLLIN, 0});
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    const short events = static_cast<short>((MayMove(peers_[peer].in) ? POLLIN : 0) |
                                            (MayMove(peers_[peer].out) ? POLLOUT : 0));
    if (events != 0) polled.push_back({connections_[peer].fd(), events, 0});
  }
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) {
    NoteUnfinished();
    return absl::DeadlineExceededError("late");
  }
  const int64_t milliseconds = std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 1, 60000);
  poll(polled.data(), polled.size(), static_cast<int>(milliseconds));
  for (size_t i = 0; i < watch.fds.size(); ++i) {
    if (polled[i].revents != 0 && watch.said) return watch.said();
  }
  return absl::OkStatus();
}

void Exchange::NoteUnfinished() {
  unfinished_.clear();
  // A piece that waits for others' pieces is no fault of its peer.
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (MayMove(peers_[peer].in) || MayMove(peers_[peer].out))
      unfinished_.push_back(static_cast<int>(peer));
  }
}

}  // namespace tandem::comm
