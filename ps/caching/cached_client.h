// A client that keeps rows (RowCache), so that a pull brings only those that have changed since: it sends the version of each row that it
// has, and the server sends a row if it was committed more than `read_bound` times after that one (per-row bounds as in HET: Miao et al.,
// 2022). With both bounds 0 every call gives the bits that it gives without a cache, in every mode of the servers.
//
// The guarantee otherwise, row by row, for a pull for step k:
//   - it is the server's row, lacking at most its latest `read_bound` commits, of whatever trainers, counted when the server answers;
//   - plus this trainer's own gradients up to step k - 1, all of them: those that the row lacks, and those kept back, show by the table's
//     optimizer run here (exactly what the server did, for SGD; an estimate where a row has state, which is this trainer's alone here);
//   - other trainers' gradients reach the servers at most `write_bound` of their steps late, merged into one commit of the row.
// A step with `flush` keeps nothing back. Pulls for step 0 pass by: they show the servers' rows.
// Only rows in the cache have gradients kept back, and stay there meanwhile. A trainer sums its own gradients of a row and step in the
// order in which they were accumulated. Memory: rows_per_table rows with slots, and with a write bound twice that.
// Thread rule: as Client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ps/caching/cached_table.h"
#include "ps/caching/forwarding_client.h"

namespace tandem::ps {

class CachedClient : public ForwardingClient {
 public:
  // Rows pulled, by what became of them.
  struct Counts {
    uint64_t hits = 0;       // not sent
    uint64_t refreshes = 0;  // sent, the one here was too old
    uint64_t misses = 0;     // sent, there was none here
    uint64_t hit_bytes = 0;
  };

  CachedClient(std::unique_ptr<Client> client, CacheOptions options);
  ~CachedClient() override;

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  // With a bound: for the step after the last commit, FailedPrecondition else.
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) override;
  // With a write bound they are checked here and sent by the commit.
  rpc::Future<rpc::Done> Accumulate(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) override;
  // With a bound rows are pulled, or pushed to, one by one and pooled here.
  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim, float* pooled) override;
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim, const float* gradients) override;
  // With a write bound: of this trainer's gradients.
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  // FailedPrecondition while gradients are kept back.
  rpc::Future<HashResult> Hash() override;
  // With what was refused, dropped or mended here, with a write bound: servers see sums of what was left.
  rpc::Future<StatisticsReply> Statistics() override { return StatisticsWith(OwnStatistics()); }
  StatisticsReply OwnStatistics() const override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder, absl::Time deadline) override;
  std::vector<std::string> Report() const override;

  Counts counts() const;

 private:
  struct Cache;  // shared with what is in flight
  struct Pulled;
  rpc::Future<rpc::Done> CommitMerged(const CommitArgs& args);

  const CacheOptions options_;
  const std::shared_ptr<Cache> cache_;
};

}  // namespace tandem::ps
