#include "trainer/cli/client_of_job.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "proto/job.pb.h"
#include "ps/caching/cached_client.h"
#include "ps/caching/geo_client.h"
#include "ps/caching/merged_client.h"
#include "ps/client/remote_client.h"
#include "trainer/job/layout.h"
#include "trainer/sparse/group_exchange.h"

namespace tandem::cli {

absl::StatusOr<comm::ProcessGroup*> ClientsAmong(const Job& job, comm::ProcessGroup& trainers,
                                                 std::unique_ptr<comm::ProcessGroup>* owned) {
  if (job::NumClients(job) == trainers.size()) return &trainers;
  const bool is_client = job::IsClient(job, trainers.rank());
  if (!job.ps().merge_pushes()) return is_client ? &trainers : nullptr;
  ASSIGN_OR_RETURN(*owned,
                   trainers.Split(is_client ? 0 : 1, trainers.rank(), "clients",
                                  absl::Now() + absl::Seconds(job.runtime().timeout_seconds())));
  return is_client ? owned->get() : nullptr;
}

absl::StatusOr<ps::ClientStack> MergePushes(const Job& job, ps::ClientStack clients,
                                            ps::MergedPushes& pushes, comm::ProcessGroup& trainers,
                                            int num_servers) {
  if (!job.ps().merge_pushes() || trainers.size() == 1) return clients;
  ASSIGN_OR_RETURN(auto exchange, sparse::GroupExchange::Create(
                                      trainers, absl::Seconds(job.runtime().timeout_seconds())));
  const size_t push_bytes =
      ps::RemoteClientOptions().message_bytes * static_cast<size_t>(std::max(num_servers, 1));
  clients.Wrap<ps::MergedClient>(pushes, std::move(exchange),
                                 ps::MergeOptions{.push_bytes = push_bytes});
  return clients;
}

ps::ClientStack ClientOfJob(const Job& job, ps::ClientStack clients, int client) {
  const ParameterServer& options = job.ps();
  if (options.consistency() == GEO) {
    clients.Wrap<ps::GeoClient>(
        ps::GeoClientOptions{.num_trainers = static_cast<uint32_t>(job::NumClients(job)),
                             .geo_steps = static_cast<uint64_t>(options.geo_steps()),
                             .trainer = static_cast<uint32_t>(client)});
  } else if (options.cache_rows() > 0) {
    clients.Wrap<ps::CachedClient>(
        ps::CacheOptions{.rows_per_table = static_cast<size_t>(options.cache_rows()),
                         .read_bound = static_cast<uint32_t>(options.read_bound()),
                         .write_bound = static_cast<uint32_t>(options.write_bound()),
                         .trainer = static_cast<uint32_t>(client)});
  }
  return clients;
}

}  // namespace tandem::cli
