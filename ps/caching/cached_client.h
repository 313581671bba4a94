// A client that keeps rows (RowCache), so that a pull brings only rows that changed. A pull sends the version of each row that the cache
// has. The server sends a row if it was committed more than `read_bound` times after that version. The per-row bounds are those of HET
// (Miao et al., 2022). With both bounds 0 every call gives the bits that it gives without a cache, in every mode of the servers.
//
// With bounds, a pull for step k promises for each row:
//   - The row is the server's, but may lack its latest `read_bound` commits, counted when the server answers.
//   - The row shows all of this trainer's own gradients up to step k - 1. The table's optimizer runs here for those that the row lacks and
//     those kept back. The result is exact for SGD, and an estimate where a row has state.
//   - Other trainers' gradients reach the servers at most `write_bound` of their steps late, merged into one commit of the row.
// A step with `flush` keeps nothing back. Pulls for step 0 bypass the cache and show the servers' rows.
// Only rows in the cache have gradients kept back, and those rows stay until their gradients are pushed. A trainer sums its own gradients
// of a row and step in the order of its pushes. Memory: rows_per_table rows with slots, and with a write bound twice that.
// Thread rule: as RowClient. The inner client outlives this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/caching/cached_table.h"
#include "ps/caching/forwarding_admin.h"
#include "ps/client/clients.h"

namespace tandem::ps {

class CachedClient : public RowClient, public ForwardingAdmin, public PooledClient {
 public:
  // Numbers of rows pulled.
  struct Counts {
    uint64_t hits = 0;       // not sent
    uint64_t refreshes = 0;  // sent, because the row here was too old
    uint64_t misses = 0;     // sent, because there was none here
    uint64_t hit_bytes = 0;
  };

  CachedClient(const Clients& inner, CacheOptions options);
  ~CachedClient() override;

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  // With a bound: FailedPrecondition unless `step` follows the last commit.
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) override;
  // With a write bound, gradients are checked here and sent by the commit.
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) override;
  // With a bound, whole rows are pulled and pushed, and pooled here.
  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim, float* pooled) override;
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim, const float* gradients) override;
  // With a write bound, the norm is that of this trainer's gradients.
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  void Abort(absl::Status reason) override { inner_.rows->Abort(std::move(reason)); }
  // FailedPrecondition while gradients are kept back.
  rpc::Future<HashResult> Hash() override;
  // With a write bound, adds what was refused, dropped or mended here: servers see sums of the rest.
  rpc::Future<StatisticsReply> Statistics() override { return StatisticsWith(OwnStatistics()); }
  StatisticsReply OwnStatistics() const override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder, absl::Time deadline) override;
  std::vector<std::string> Report() const override;

  Counts counts() const;

 private:
  struct Cache;  // shared with what is in flight
  struct Pulled;
  rpc::Future<rpc::Done> CommitMerged(const CommitArgs& args);

  const Clients inner_;
  const CacheOptions options_;
  const std::shared_ptr<Cache> cache_;
};

}  // namespace tandem::ps
