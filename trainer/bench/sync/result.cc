#include "trainer/bench/sync/result.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/sync/points.h"

namespace tandem::bench {

SyncResult ResultOf(const SyncPoint& point, const std::vector<MemberReport>& trainers) {
  SyncResult result{.point = point};
  std::vector<double> microseconds;
  for (int i = 0; i < trainers[0].sync().end_size(); ++i) {
    double begin = 0, end = 0;  // the last one's, of both
    for (const MemberReport& trainer : trainers) {
      begin = std::max(begin, trainer.sync().begin(i));
      end = std::max(end, trainer.sync().end(i));
    }
    microseconds.push_back((end - begin) * 1e6);
  }
  result.microseconds = Median(microseconds);
  result.low = Quantile(microseconds, 0.1);
  result.high = Quantile(microseconds, 0.9);
  const auto num_trainers = static_cast<double>(trainers.size());
  for (const MemberReport& report : trainers) {
    const SyncFigures& trainer = report.sync();
    result.first_microseconds = std::max(result.first_microseconds, trainer.first_seconds() * 1e6);
    result.share += trainer.share() / num_trainers;
    result.bytes_per_trainer += (trainer.sent() + trainer.received()) / num_trainers;
    for (const double bytes : trainer.to_server())
      result.bytes_per_server += bytes / point.servers();
    result.cpu_us_trainers += trainer.cpu_seconds() * 1e6;
    for (const double seconds : trainer.server_cpu_seconds())
      result.cpu_us_servers += seconds * 1e6;
    if (result.wrong.empty()) result.wrong = trainer.wrong();
  }
  return result;
}

std::string JsonOf(const SyncResult& result) {
  const SyncPoint& point = result.point;
  const bool ring = point.way() == SyncPoint::RING, table = point.what() == SyncPoint::TABLE;
  // A point that was not measured has null for what only a measurement tells.
  const auto figure = [&](double value, int places) {
    return result.measured ? absl::StrFormat("%.*f", places, value) : std::string("null");
  };
  return absl::StrFormat(
      R"({"way":"%s","what":"%s","bytes":%d,"dim":%d,"share":%.9g,"ids":"%s","trainers":%d,)"
      R"("servers":%d,"link":"%s","microseconds":%s,"low":%s,"high":%s,)"
      R"("first_microseconds":%s,"bytes_per_trainer":%s,"bytes_per_server":%s,)"
      R"("bytes_per_trainer_by_formula":%.0f,"bytes_per_server_by_formula":%.0f,)"
      R"("cpu_us_trainers":%s,"cpu_us_servers":%s,"predicted_microseconds":%.2f,"limit":"%s",)"
      R"("fitted":%s,"measured":%s,"correct":%s})",
      ring ? "ring" : "ps", table ? "table" : "dense", point.bytes(), point.dim(), result.share,
      point.ids() == PullPushCase::ZIPF ? "zipf" : "uniform", point.trainers(),
      ring ? 0 : point.servers(), LinkText(point), figure(result.microseconds, 2),
      figure(result.low, 2), figure(result.high, 2), figure(result.first_microseconds, 2),
      figure(result.bytes_per_trainer, 0), figure(result.bytes_per_server, 0),
      result.modelled.trainer_bytes, result.modelled.server_bytes,
      figure(result.cpu_us_trainers, 2), figure(result.cpu_us_servers, 2),
      result.modelled.seconds * 1e6, NameOf(result.modelled.limit),
      result.fitted ? "true" : "false", result.measured ? "true" : "false",
      !result.measured       ? "null"
      : result.wrong.empty() ? "true"
                             : "false");
}

}  // namespace tandem::bench
