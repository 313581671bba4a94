#include "trainer/bench/pull_push_replay.h"

#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "proto/bench.pb.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "trainer/bench/batches.h"
#include "trainer/bench/members/members.h"
#include "trainer/comm/host/thread_group.h"

namespace tandem::bench {

namespace {

absl::StatusOr<std::vector<float>> RowsNow(ps::RowClient& client, const TableSpec& table,
                                           absl::Span<const uint64_t> ids) {
  std::vector<float> rows(ids.size() * table.dim());
  const auto pulled = client.Pull(0, /*create=*/false,
                                  {{.table = table.number(), .ids = ids, .rows = rows.data()}});
  RETURN_IF_ERROR(pulled.Wait(absl::Now() + kBenchTimeout).status());
  return rows;
}

// Returns the hash of the dense parameters after the steps of one replica.
absl::StatusOr<absl::uint128> RunReplica(const PullPushCase& bench, uint32_t table,
                                         uint64_t num_steps, ps::LocalClient& client,
                                         comm::ProcessGroup& group) {
  ASSIGN_OR_RETURN(const auto replica,
                   HybridReplica::Create(bench, table, ps::ClientsOf(client), &group));
  PullPushRepetition ignored;
  for (uint64_t step = 1; step <= num_steps; ++step)
    RETURN_IF_ERROR(replica->Step(step < num_steps, &ignored));
  return replica->DenseHash();
}

struct Replayed {
  absl::uint128 row_hash = 0, dense_hash = 0;
  // Rows of the given ids before and after the steps: [ids.size(), dim].
  std::vector<float> first_rows, last_rows;
};
absl::StatusOr<Replayed> Replay(const PullPushCase& bench, const TableSpec& table,
                                uint64_t num_steps, absl::Span<const uint64_t> ids) {
  ps::TableHost host(bench.threads());
  std::vector<std::unique_ptr<ps::LocalClient>> clients;
  for (uint32_t rank = 0; rank < bench.clients(); ++rank) {
    clients.push_back(std::make_unique<ps::LocalClient>(host, rank, bench.clients()));
    RETURN_IF_ERROR(clients.back()->CreateTables({table}, kBenchTimeout));
  }
  Replayed replayed;
  ASSIGN_OR_RETURN(replayed.first_rows, RowsNow(*clients[0], table, ids));
  const auto groups =
      comm::ThreadGroup::Create(static_cast<int>(bench.clients()), "replay", kBenchTimeout);
  std::vector<absl::StatusOr<absl::uint128>> hashes(bench.clients(), absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < bench.clients(); ++rank) {
    threads.emplace_back([&, rank] {
      hashes[rank] = RunReplica(bench, table.number(), num_steps, *clients[rank], *groups[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& hash : hashes) RETURN_IF_ERROR(hash.status());
  replayed.dense_hash = *hashes[0];
  ASSIGN_OR_RETURN(replayed.last_rows, RowsNow(*clients[0], table, ids));
  ASSIGN_OR_RETURN(const ps::HashResult rows, clients[0]->Hash().Wait(absl::Now() + kBenchTimeout));
  replayed.row_hash = rows.hash;
  return replayed;
}

// The largest allowed distance from the replay's rows, as a share of how far those rows moved. One
// push or step lost of a hundred is 0.01.
double MostMissed(const PullPushCase& bench) {
  switch (bench.wire()) {
    case WIRE_F32:
      return IsPooled(bench) ? 1e-3 : 0;
    case WIRE_INT8:
      return 0.1;
    default:
      return 0.02;
  }
}

// |last - replayed.last_rows| / |replayed.last_rows - replayed.first_rows|, over all rows together.
double ShareMissed(const Replayed& replayed, const std::vector<float>& last) {
  double missed = 0, moved = 0;
  for (size_t i = 0; i < last.size(); ++i) {
    missed += std::pow(static_cast<double>(last[i]) - replayed.last_rows[i], 2);
    moved += std::pow(static_cast<double>(replayed.last_rows[i]) - replayed.first_rows[i], 2);
  }
  return missed == 0 ? 0 : std::sqrt(missed / moved);
}

}  // namespace

absl::StatusOr<std::string> CompareWithReplay(const PullPushCase& bench, const TableSpec& table,
                                              const HybridReplica& replica,
                                              const ps::Clients& clients,
                                              absl::Span<const uint64_t> sampled) {
  ASSIGN_OR_RETURN(const Replayed replayed, Replay(bench, table, replica.num_steps(), sampled));
  ASSIGN_OR_RETURN(const std::vector<float> last, RowsNow(*clients.rows, table, sampled));
  const double most = MostMissed(bench), missed = ShareMissed(replayed, last);
  if (!(missed <= most)) {
    return absl::StrCat("rows miss those of the same steps in one process by ", missed,
                        " of their way, at most ", most);
  }
  if (most > 0) return std::string();
  ASSIGN_OR_RETURN(const ps::HashResult hash,
                   clients.tables->Hash().Wait(absl::Now() + kBenchTimeout));
  if (hash.hash != replayed.row_hash)
    return std::string("the rows' hash is not that of the same steps in one process");
  if (replica.DenseHash() != replayed.dense_hash) {
    return std::string("the dense weights' hash is not that of the same steps in one process");
  }
  return std::string();
}

}  // namespace tandem::bench
