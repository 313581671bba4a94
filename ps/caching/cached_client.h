// A client that keeps rows (RowCache), so that a pull brings only changed rows. A pull sends the
// version of each cached row. The server sends a row if it was committed more than `read_bound`
// times after that version. The per-row bounds follow HET (Miao et al., 2022). With both bounds 0
// every call gives the same bits as without a cache, in every mode of the servers.
// Thread rule: same as RowClient.
// REQUIRES: the inner client outlives this one.
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

// With bounds, a pull for step k promises for each row:
//   - The row may lack the server's latest `read_bound` commits, counted when the server answers.
//   - The row shows all of this trainer's own gradients up to step k - 1. The table's optimizer
//     runs here for gradients that the row lacks or that are kept back. The result is exact for SGD
//     and an estimate for optimizers with row state.
//   - Other trainers' gradients reach the servers at most `write_bound` of those trainers' steps
//     late. They arrive merged into one commit of the row.
// A step with `flush` keeps no gradients back. Pulls for step 0 bypass the cache and show the
// servers' rows.
// Only cached rows have gradients kept back, and such rows stay cached until their gradients are
// pushed. A trainer sums its own gradients of a row and step in the order of its pushes.
// Memory: rows_per_table rows with slots; twice as much with a write bound.
class CachedClient : public RowClient, public ForwardingAdmin, public PooledClient {
 public:
  // Counts of pulled rows.
  struct Counts {
    uint64_t hits = 0;       // rows not sent
    uint64_t refreshes = 0;  // rows sent because the cached row was too old
    uint64_t misses = 0;     // rows sent because no row was cached
    uint64_t hit_bytes = 0;
  };

  CachedClient(const Clients& inner, CacheOptions options);
  ~CachedClient() override;

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  // With a bound: FailedPrecondition unless `step` follows the last commit.
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<PullSegment> segments) override;
  // With a write bound, checks gradients here; the commit sends them.
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice,
                              std::vector<PushSegment> segments) override;
  // With a bound, pulls and pushes whole rows, and pools here.
  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                    float* pooled) override;
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                    const float* gradients) override;
  // With a write bound, the norm covers only this trainer's gradients.
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  void Abort(absl::Status reason) override { inner_.rows->Abort(std::move(reason)); }
  // FailedPrecondition while gradients are kept back.
  rpc::Future<HashResult> Hash() override;
  // With a write bound, adds gradients that were refused, dropped or mended here. Servers see only
  // sums of the rest.
  rpc::Future<StatisticsReply> Statistics() override { return StatisticsWith(OwnStatistics()); }
  StatisticsReply OwnStatistics() const override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder,
                                           absl::Time deadline) override;
  std::vector<std::string> Report() const override;

  Counts counts() const;

 private:
  struct Cache;  // shared with operations in flight
  struct Pulled;
  rpc::Future<rpc::Done> CommitMerged(const CommitArgs& args);

  const Clients inner_;
  const CacheOptions options_;
  const std::shared_ptr<Cache> cache_;
};

}  // namespace tandem::ps
