#include "trainer/bench/sync/winners.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/sync/points.h"

namespace tandem::bench {

namespace {

// Neighbours with the same winner.
std::string RunText(const std::vector<WayPair>& series, size_t begin, size_t end,
                    const std::function<std::string(const WayPair&)>& place) {
  std::vector<double> ratios;
  for (size_t i = begin; i < end; ++i) ratios.push_back(series[i].ratio());
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  const std::string from = place(series[begin]), to = place(series[end - 1]),
                    least = RatioText(*low), most = RatioText(*high);
  return absl::StrCat(
      series[begin].ring_wins() ? "by the ring " : "by servers ",
      end - begin == 1 ? absl::StrCat("at ", from) : absl::StrCat("from ", from, " to ", to), " (",
      least, least == most ? "" : absl::StrCat(" to ", most), " times as fast)");
}

std::string SeriesText(const std::vector<WayPair>& series,
                       const std::function<std::string(const WayPair&)>& place) {
  std::vector<std::string> runs;
  for (size_t begin = 0; begin < series.size();) {
    size_t end = begin + 1;
    while (end < series.size() && series[end].ring_wins() == series[begin].ring_wins()) ++end;
    runs.push_back(RunText(series, begin, end, place));
    begin = end;
  }
  return absl::StrJoin(runs, ", ");
}

std::string LinkWords(const std::string& link) {
  return link == "shm"   ? "Over shared memory"
         : link == "tcp" ? "Over TCP on one machine"
                         : absl::StrCat("Over links of ", link);
}

}  // namespace

std::vector<WayPair> PairsOf(const std::vector<SyncResult>& results) {
  std::vector<WayPair> pairs;
  for (const SyncResult& result : results) {
    if (result.fitted) continue;
    if (result.point.way() == SyncPoint::RING) {
      pairs.push_back({.ring = &result});
    } else {
      pairs.back().servers = &result;
    }
  }
  return pairs;
}

std::vector<WayPair> SeriesOf(const std::vector<WayPair>& pairs, SyncPoint::What what,
                              const std::string& link) {
  std::map<uint64_t, std::vector<WayPair>> by_bytes;  // tables
  std::vector<WayPair> dense;
  for (const WayPair& pair : pairs) {
    const SyncPoint& point = pair.ring->point;
    if (!pair.measured() || point.what() != what || point.trainers() != 2 || point.servers() != 1 ||
        point.ids() != PullPushCase::UNIFORM || LinkText(point) != link)
      continue;
    (what == SyncPoint::DENSE ? dense : by_bytes[point.bytes()]).push_back(pair);
  }
  for (auto series = by_bytes.rbegin(); dense.empty() && series != by_bytes.rend(); ++series) {
    if (series->second.size() > 2) dense = series->second;
  }
  std::sort(dense.begin(), dense.end(), [](const WayPair& a, const WayPair& b) {
    const SyncPoint &left = a.ring->point, &right = b.ring->point;
    return std::pair(left.bytes(), left.share()) < std::pair(right.bytes(), right.share());
  });
  return dense;
}

std::vector<std::string> LinksOf(const std::vector<SyncResult>& results) {
  std::vector<std::string> links;
  for (const SyncResult& result : results) {
    const std::string link = LinkText(result.point);
    if (!result.fitted && std::find(links.begin(), links.end(), link) == links.end())
      links.push_back(link);
  }
  return links;
}

std::string WinnersText(const std::vector<WayPair>& pairs, const std::string& link) {
  const std::vector<WayPair> dense = SeriesOf(pairs, SyncPoint::DENSE, link),
                             table = SeriesOf(pairs, SyncPoint::TABLE, link);
  std::vector<std::string> parts;
  if (!dense.empty())
    parts.push_back(absl::StrCat(
        "dense weights are synchronised faster ",
        SeriesText(dense, [](const WayPair& pair) { return SizeText(pair.ring->point.bytes()); })));
  if (!table.empty())
    parts.push_back(absl::StrCat(
        parts.empty() ? "a" : "A", " table of ", SizeText(table[0].ring->point.bytes()),
        ", by the share of its rows that a step uses, is synchronised faster ",
        SeriesText(table, [](const WayPair& pair) { return PercentText(pair.ring->share); })));
  if (parts.empty()) return "";
  return absl::StrCat(LinkWords(link), ", with 2 trainers and 1 server, ",
                      absl::StrJoin(parts, ". "), ".");
}

}  // namespace tandem::bench
