#include "trainer/cli/client_of_job.h"

#include <utility>

#include "ps/client_cached.h"
#include "ps/client_geo.h"

namespace tandem::cli {

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
