#include "trainer/cli/client_of_job.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "ps/caching/cached_client.h"
#include "ps/caching/geo_client.h"
#include "ps/caching/merged_client.h"
#include "ps/client/remote_client.h"
#include "trainer/sparse/group_exchange.h"

namespace tandem::cli {

absl::StatusOr<std::unique_ptr<ps::Client>> MergePushes(const Job& job, std::unique_ptr<ps::Client> client,
                                                        comm::ProcessGroup& trainers, int num_servers) {
  if (!job.ps().merge_pushes() || trainers.size() == 1) return client;
  ASSIGN_OR_RETURN(auto exchange, sparse::GroupExchange::Create(trainers, absl::Seconds(job.runtime().timeout_seconds())));
  const size_t push_bytes = ps::RemoteClientOptions().message_bytes * static_cast<size_t>(std::max(num_servers, 1));
  return std::make_unique<ps::MergedClient>(std::move(client), std::move(exchange), ps::MergeOptions{.push_bytes = push_bytes});
}

std::unique_ptr<ps::Client> ClientOfJob(const Job& job, std::unique_ptr<ps::Client> client, int trainer, int num_trainers) {
  const ParameterServer& options = job.ps();
  if (options.consistency() == GEO) {
    return std::make_unique<ps::GeoClient>(
        std::move(client), ps::GeoClientOptions{.num_trainers = static_cast<uint32_t>(num_trainers),
                                                .geo_steps = static_cast<uint64_t>(options.geo_steps()),
                                                .trainer = static_cast<uint32_t>(trainer)});
  }
  if (options.cache_rows() == 0) return client;
  return std::make_unique<ps::CachedClient>(std::move(client),
                                            ps::CacheOptions{.rows_per_table = static_cast<size_t>(options.cache_rows()),
                                                                    .read_bound = static_cast<uint32_t>(options.read_bound()),
                                                                    .write_bound = static_cast<uint32_t>(options.write_bound()),
                                                                    .trainer = static_cast<uint32_t>(trainer)});
}

}  // namespace tandem::cli
