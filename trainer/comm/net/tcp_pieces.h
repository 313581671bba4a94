// The pieces of each collective over TCP: what a rank sends to and receives from its peers, and the
// sums in between.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/comm/collective.h"
#include "trainer/comm/net/exchange.h"

namespace tandem::comm {

class TcpPieces {
 public:
  // REQUIRES: all arguments outlive the pieces, and the pieces the exchange's run.
  TcpPieces(const Collective& collective, int rank, int size, Exchange* exchange);

  // Adds the comparison of the ranks' descriptions, which comes first.
  void AddDescriptions();
  void AddOperation();

 private:
  void AddAllReduce();
  void AddSmallAllReduce();
  void AddAllGather();
  void AddReduceScatter();
  void AddBroadcast();
  void AddAllToAllV();

  // Sums of arrays that arrive piece by piece. Few pieces are under way at a time.
  struct Sums;
  // Adds the receipt of piece `number`, `count` elements of each peer, whose sum with the own
  // elements goes to `output`. `own` may be `output`.
  void AddSum(Sums& sums, int64_t number, const char* own, char* output, int64_t count);

  // Calls visit(peer), the next rank first.
  template <class Visit>
  void ForEachPeer(const Visit& visit) const {
    for (int i = 1; i < size_; ++i) visit((rank_ + i) % size_);
  }
  void Send(int peer, const ArrayView& view, int64_t begin, int64_t count,
            Exchange::Ready ready = nullptr);
  void Receive(int peer, const ArrayView& view, int64_t begin, int64_t count);
  int64_t element() const { return static_cast<int64_t>(SizeOf(what_.dtype)); }
  char* At(const ArrayView& view, int64_t begin) const {
    return static_cast<char*>(view.data) + begin * element();
  }
  Sums* NewSums(int64_t largest_piece, int64_t num_pieces);

  const Collective& mine_;
  const Description& what_;
  const int rank_, size_;
  Exchange& exchange_;
  std::vector<Description> theirs_;
  std::vector<int64_t> sent_here_;  // AllToAllV: by peer
  std::shared_ptr<Sums> sums_;      // of a reduction
};

}  // namespace tandem::comm
