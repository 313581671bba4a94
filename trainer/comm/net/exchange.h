// Moves arrays between this rank and its peers, all at once: a list of pieces to send and to
// receive for each peer, in the order of the connection. One loop moves whatever can move and
// sleeps when nothing can.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rpc/traffic.h"
#include "trainer/comm/net/socket.h"

namespace tandem::comm {

class Exchange {
 public:
  // `connections` by rank; the own one is closed. They outlive the exchange.
  explicit Exchange(const std::vector<Socket>* connections);

  // True once a piece may move. Null: at once.
  using Ready = std::function<bool()>;
  // Adds a piece to send to `peer`. The memory stays alive until Run ends.
  void Send(int peer, const void* data, size_t size, Ready ready = nullptr);
  // Adds a piece to receive. `then` runs once the piece is here and may add pieces; an error
  // ends the exchange.
  void Receive(int peer, void* data, size_t size, std::function<absl::Status()> then = nullptr,
               Ready ready = nullptr);

  // Ends a wait from outside.
  struct Watch {
    // A descriptor that becomes readable when somebody else has something to say.
    std::vector<int> fds;
    // Asked when a descriptor is readable, and when a peer's connection has ended. Not Ok ends the
    // exchange.
    std::function<absl::Status()> said;
  };
  // Moves all pieces. Returns Unavailable if a connection ended, DeadlineExceeded at the deadline;
  // `unfinished` then says whose pieces are missing.
  absl::Status Run(const Watch& watch, absl::Time deadline);
  const std::vector<int>& unfinished() const { return unfinished_; }
  const rpc::Traffic& traffic() const { return traffic_; }  // of Run

 private:
  struct Piece {
    char* data = nullptr;
    size_t size = 0, done = 0;
    std::function<absl::Status()> then;
    Ready ready;
  };
  struct Peer {
    std::deque<Piece> out, in;
  };

  static bool MayMove(const std::deque<Piece>& pieces) {
    return !pieces.empty() && (!pieces.front().ready || pieces.front().ready());
  }
  enum class Direction { OUT, IN };
  // Moves what can move. Sets *moved if anything did.
  absl::Status Move(int peer, Direction direction, bool* moved);
  absl::Status Sleep(const Watch& watch, absl::Time deadline);
  void NoteUnfinished();

  const std::vector<Socket>& connections_;
  std::vector<Peer> peers_;
  std::vector<int> unfinished_;
  rpc::Traffic traffic_;
};

}  // namespace tandem::comm
