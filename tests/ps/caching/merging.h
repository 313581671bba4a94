// Trainers of one host, each on a thread, whose clients merge pushes over a thread group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "ps/caching/merged_client.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/sparse/group_exchange.h"

namespace tandem::ps {

class MergingHost {
 public:
  explicit MergingHost(uint32_t num_trainers, absl::Duration timeout = absl::Seconds(20))
      : timeout_(timeout), groups_(comm::ThreadGroup::Create(static_cast<int>(num_trainers), "dp", timeout)) {}

  uint32_t size() const { return static_cast<uint32_t>(groups_.size()); }
  // Runs the trainers together.
  void Run(const std::function<void(uint32_t trainer)>& train) {
    std::vector<std::thread> threads;
    for (uint32_t trainer = 0; trainer < size(); ++trainer) threads.emplace_back([&, trainer] { train(trainer); });
    for (std::thread& thread : threads) thread.join();
  }
  // One for each trainer, around what `make` makes.
  std::vector<std::unique_ptr<Client>> MakeClients(const std::function<std::unique_ptr<Client>(uint32_t trainer)>& make,
                                                   MergeOptions options = {}) {
    std::vector<std::unique_ptr<Client>> clients(size());
    Run([&](uint32_t trainer) {
      auto exchange = sparse::GroupExchange::Create(*groups_[trainer], timeout_);
      ASSERT_TRUE(exchange.ok()) << exchange.status();
      clients[trainer] = std::make_unique<MergedClient>(make(trainer), *std::move(exchange), options);
    });
    return clients;
  }

 private:
  const absl::Duration timeout_;
  const std::vector<std::unique_ptr<comm::ProcessGroup>> groups_;
};

}  // namespace tandem::ps
