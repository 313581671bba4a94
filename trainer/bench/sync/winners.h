// Which way was faster, in words: "dense weights are synchronised faster by the ring from 4 KB to
// 64 MB (1.2 to 5.4 times as fast)". Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "trainer/bench/sync/result.h"

namespace tandem::bench {

// Both ways of one point.
struct WayPair {
  const SyncResult* ring = nullptr;
  const SyncResult* servers = nullptr;

  bool measured() const { return ring->measured && servers->measured; }
  bool ring_wins() const { return ring->microseconds <= servers->microseconds; }
  // The slower way's time over the faster one's; at least 1.
  double ratio() const {
    return ring_wins() ? servers->microseconds / ring->microseconds
                       : ring->microseconds / servers->microseconds;
  }
};

// Probes are left out. `results` outlives the pairs.
// REQUIRES: both ways of a point lie side by side, the ring first (SyncPoints).
std::vector<WayPair> PairsOf(const std::vector<SyncResult>& results);

// The measured pairs of two trainers and one server that differ only in their bytes (DENSE), or
// only in their share of rows (TABLE; uniform ids, the largest table of which several shares were
// measured), in the order of these. `link`: LinkText.
std::vector<WayPair> SeriesOf(const std::vector<WayPair>& pairs, SyncPoint::What what,
                              const std::string& link);

// The links, in the order of the results.
std::vector<std::string> LinksOf(const std::vector<SyncResult>& results);

// Says which way is faster over a link at which bytes and share, and by how much. Empty if nothing
// was measured both ways.
std::string WinnersText(const std::vector<WayPair>& pairs, const std::string& link);

}  // namespace tandem::bench
