#include "trainer/comm/net/tcp_pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainer/comm/combine.h"
#include "trainer/comm/ring_order.h"
#include "trainer/comm/split_plan.h"

namespace tandem::comm {

namespace {

// Up to this many bytes read per rank, one round of whole arrays beats two rounds of parts.
constexpr int64_t kOneRoundBytes = 256 << 10;
// Pieces under way at a time: enough to keep connections busy while sums are computed.
constexpr int64_t kWindow = 4;

void Copy(char* target, const char* source, int64_t num_bytes) {
  if (num_bytes > 0 && target != source)
    std::memmove(target, source, static_cast<size_t>(num_bytes));
}

}  // namespace

struct TcpPieces::Sums {
  RankReduction how;
  int64_t slot_bytes = 0;     // of one peer's piece
  std::vector<char> arrived;  // [kWindow, size] slots
  std::vector<int> missing;   // by piece: peers whose elements are not here
  std::vector<char> done;     // by piece

  char* slot(int64_t number, int peer) {
    return arrived.data() + (number % kWindow * how.size + peer) * slot_bytes;
  }
};

TcpPieces::TcpPieces(const Collective& collective, int rank, int size, Exchange* exchange)
    : mine_(collective),
      what_(collective.description),
      rank_(rank),
      size_(size),
      exchange_(*exchange),
      theirs_(static_cast<size_t>(size)),
      sent_here_(static_cast<size_t>(size)) {}

void TcpPieces::Send(int peer, const ArrayView& view, int64_t begin, int64_t count,
                     Exchange::Ready ready) {
  exchange_.Send(peer, At(view, begin), static_cast<size_t>(count * element()), std::move(ready));
}

void TcpPieces::Receive(int peer, const ArrayView& view, int64_t begin, int64_t count) {
  exchange_.Receive(peer, At(view, begin), static_cast<size_t>(count * element()));
}

void TcpPieces::AddOperation() {
  switch (what_.kind) {
    case CollectiveKind::ALL_REDUCE:
      return what_.count * element() * size_ <= kOneRoundBytes ? AddSmallAllReduce()
                                                               : AddAllReduce();
    case CollectiveKind::ALL_GATHER:
      return AddAllGather();
    case CollectiveKind::REDUCE_SCATTER:
      return AddReduceScatter();
    case CollectiveKind::BROADCAST:
      return AddBroadcast();
    case CollectiveKind::ALL_TO_ALL_V:
      return AddAllToAllV();
    case CollectiveKind::SEND:
    case CollectiveKind::RECV:
    case CollectiveKind::SEND_RECV:
      break;
  }
}

void TcpPieces::AddDescriptions() {
  ForEachPeer([this](int peer) {
    exchange_.Send(peer, &what_, sizeof what_);
    exchange_.Receive(peer, &theirs_[peer], sizeof what_,
                      [this, peer] { return CheckSame(rank_, what_, peer, theirs_[peer]); });
  });
}

TcpPieces::Sums* TcpPieces::NewSums(int64_t largest_piece, int64_t num_pieces) {
  sums_ = std::make_shared<Sums>();
  Sums* const sums = sums_.get();
  sums->how = {what_.dtype, what_.op, what_.order, size_, rank_};
  sums->slot_bytes = largest_piece * element();
  sums->arrived.resize(static_cast<size_t>(kWindow * size_ * sums->slot_bytes));
  sums->missing.assign(static_cast<size_t>(num_pieces), size_ - 1);
  sums->done.assign(static_cast<size_t>(num_pieces), 0);
  return sums;
}

void TcpPieces::AddSum(Sums& sums, int64_t number, const char* own, char* output, int64_t count) {
  const auto arrived = [this, &sums, number, own, output, count]() -> absl::Status {
    if (--sums.missing[number] > 0) return absl::OkStatus();
    char* to = output;
    ReduceOverRanks(
        sums.how, [&](int r) -> const char* { return r == rank_ ? own : sums.slot(number, r); },
        {&to, 1}, count);
    sums.done[number] = 1;
    return absl::OkStatus();
  };
  const auto has_room = [&sums, number] { return number < kWindow || sums.done[number - kWindow]; };
  ForEachPeer([&](int peer) {
    exchange_.Receive(peer, sums.slot(number, peer), static_cast<size_t>(count * element()),
                      arrived, has_room);
  });
}

// Piece b is this rank's chunk of block b. Sums are sent some blocks behind the chunks, in an order
// that both ends know.
void TcpPieces::AddAllReduce() {
  const int64_t num_blocks = NumBlocks(what_.count, size_);
  const auto chunk_of = [this](int64_t block, int rank) {
    return ChunkRange(BlockRange(what_.count, size_, block), size_, rank);
  };
  Sums* const sums = NewSums(kChunkElements, num_blocks);
  const ArrayView& array = mine_.output;
  for (int64_t b = 0; b < num_blocks + kWindow - 1; ++b) {
    if (b < num_blocks) {
      ForEachPeer([&](int peer) {
        const Range theirs = chunk_of(b, peer);
        Send(peer, array, theirs.begin, theirs.size());
      });
      const Range own = chunk_of(b, rank_);
      AddSum(*sums, b, At(array, own.begin), At(array, own.begin), own.size());
    }
    const int64_t summed = b - kWindow + 1;
    if (summed < 0) continue;
    ForEachPeer([&](int peer) {
      const Range own = chunk_of(summed, rank_), theirs = chunk_of(summed, peer);
      Send(peer, array, own.begin, own.size(), [sums, summed] { return sums->done[summed] != 0; });
      Receive(peer, array, theirs.begin, theirs.size());
    });
  }
}

void TcpPieces::AddSmallAllReduce() {
  const int64_t num_bytes = what_.count * element();
  if (num_bytes == 0) return;
  Sums* const sums = NewSums(what_.count, 1);
  Copy(sums->slot(0, rank_), At(mine_.input, 0), num_bytes);
  const auto arrived = [this, sums]() -> absl::Status {
    if (--sums->missing[0] > 0) return absl::OkStatus();
    for (int64_t block = 0; block < NumBlocks(what_.count, size_); ++block) {
      for (int c = 0; c < size_; ++c) {
        const Range chunk = ChunkRange(BlockRange(what_.count, size_, block), size_, c);
        RankReduction how = sums->how;
        how.chunk = c;
        char* output = At(mine_.output, chunk.begin);
        ReduceOverRanks(
            how, [&](int r) -> const char* { return sums->slot(0, r) + chunk.begin * element(); },
            {&output, 1}, chunk.size());
      }
    }
    return absl::OkStatus();
  };
  ForEachPeer([&](int peer) {
    exchange_.Send(peer, sums->slot(0, rank_), static_cast<size_t>(num_bytes));
    exchange_.Receive(peer, sums->slot(0, peer), static_cast<size_t>(num_bytes), arrived);
  });
}

void TcpPieces::AddAllGather() {
  Copy(At(mine_.output, rank_ * what_.count), At(mine_.input, 0), what_.count * element());
  ForEachPeer([this](int peer) {
    Send(peer, mine_.output, rank_ * what_.count, what_.count);
    Receive(peer, mine_.output, peer * what_.count, what_.count);
  });
}

void TcpPieces::AddReduceScatter() {
  const int64_t num_pieces = (what_.count + kChunkElements - 1) / kChunkElements;
  Sums* const sums = NewSums(std::min(what_.count, kChunkElements), num_pieces);
  for (int64_t p = 0; p < num_pieces; ++p) {
    const int64_t begin = p * kChunkElements, count = std::min(kChunkElements, what_.count - begin);
    ForEachPeer([&](int peer) { Send(peer, mine_.input, peer * what_.count + begin, count); });
    AddSum(*sums, p, At(mine_.input, rank_ * what_.count + begin), At(mine_.output, begin), count);
  }
}

void TcpPieces::AddBroadcast() {
  if (rank_ != what_.root) return Receive(what_.root, mine_.output, 0, what_.count);
  ForEachPeer([this](int peer) { Send(peer, mine_.input, 0, what_.count); });
}

void TcpPieces::AddAllToAllV() {
  std::vector<int64_t> to(static_cast<size_t>(size_)), from(to);
  for (int r = 1; r < size_; ++r) {
    to[r] = to[r - 1] + mine_.send_counts[r - 1];
    from[r] = from[r - 1] + mine_.recv_counts[r - 1];
  }
  Copy(At(mine_.output, from[rank_]), At(mine_.input, to[rank_]),
       mine_.send_counts[rank_] * element());
  ForEachPeer([&](int peer) {
    exchange_.Send(peer, &mine_.send_counts[peer], sizeof(int64_t));
    exchange_.Receive(peer, &sent_here_[peer], sizeof(int64_t), [this, peer] {
      return CheckPairCount(peer, sent_here_[peer], rank_, mine_.recv_counts[peer]);
    });
    Send(peer, mine_.input, to[peer], mine_.send_counts[peer]);
    Receive(peer, mine_.output, from[peer], mine_.recv_counts[peer]);
  });
}

}  // namespace tandem::comm
