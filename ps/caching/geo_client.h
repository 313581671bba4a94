// A client that trains on copies of rows for `geo_steps` steps at a time and then pushes how far each has come (Paddle's geo mode: local
// steps, then deltas), so that servers hear little and no step waits for another trainer. Steps s * geo_steps + 1 to (s + 1) * geo_steps
// are window s (a step with `flush` ends one early). In a window a row is pulled once, before its first use; after that the trainer's own
// optimizer updates the copy. The commit of the window's last step pushes (copy - first value) / num_trainers of every row that was
// updated. Servers add what they get: their tables are plain SGD at rate 1, a delta is a gradient with the other sign; so no trainer
// overwrites what another one wrote meanwhile. The next window begins with the sum.
//
// A step's gradient is this trainer's share of the global mean; times num_trainers it is the mean of its own samples, with which the copy
// is trained, and deltas are averaged: with plain SGD and windows of one step the result is that of BSP, to rounding.
// A row is at most as old as its window: it lacks at most geo_steps - 1 of the steps of a trainer that is as fast as this one.
// Optimizer state belongs to this trainer's copy and is never saved: a resumed run begins it anew. Memory: a record, with slots, of every
// row that this trainer ever used; in a window their first values too.
// Gradients are guarded (value_guard.h) here, not by the servers, and counted in this client's Statistics.
// Thread rule: as Client.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ps/caching/forwarding_client.h"

namespace tandem::ps {

struct GeoClientOptions {
  uint32_t num_trainers = 1;
  uint64_t geo_steps = 1;
  uint32_t trainer = 0;  // this one
};

class GeoClient : public ForwardingClient {
 public:
  GeoClient(std::unique_ptr<Client> client, GeoClientOptions options);
  ~GeoClient() override;

  // Of the copies; the servers' are others.
  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  // For the step after the last commit: FailedPrecondition else. Rows of step 0 are the servers'.
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) override;
  // InvalidArgument, too, for a row that was not pulled in this window.
  rpc::Future<rpc::Done> Accumulate(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) override;
  // Of this trainer's gradients.
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  // FailedPrecondition in the middle of a window.
  rpc::Future<HashResult> Hash() override;
  // With what this trainer's tables refused, dropped, mended and clipped: the servers' see deltas alone.
  rpc::Future<StatisticsReply> Statistics() override { return StatisticsWith(OwnStatistics()); }
  StatisticsReply OwnStatistics() const override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder, absl::Time deadline) override;
  // Plain SGD, which adds up deltas; rows start as those of `table` do.
  TableSpec StoredSpec(const TableSpec& table) const override;
  std::vector<std::string> Report() const override;

 private:
  struct Copies;  // shared with what is in flight

  const GeoClientOptions options_;
  const std::shared_ptr<Copies> copies_;
};

}  // namespace tandem::ps
