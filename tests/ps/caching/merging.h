// Trainers of one host, each on a thread, whose clients merge pushes over a thread group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ps/caching/merged_client.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/sparse/group_exchange.h"

namespace tandem::ps {

// A client, and the receiver of its merged pushes.
struct Mergeable {
  template <class Client>
  Mergeable(std::unique_ptr<Client> client)
      : pushes(client.get()), clients(std::move(client)) {}  // NOLINT: takes its own
  Mergeable(ClientStack stack, MergedPushes& merged) : pushes(&merged), clients(std::move(stack)) {}

  MergedPushes* pushes;
  ClientStack clients;
};

class MergingHost {
 public:
  explicit MergingHost(uint32_t num_trainers, absl::Duration timeout = absl::Seconds(20))
      : timeout_(timeout),
        groups_(comm::ThreadGroup::Create(static_cast<int>(num_trainers), "dp", timeout)) {}

  uint32_t size() const { return static_cast<uint32_t>(groups_.size()); }
  // Runs `train` for all trainers, each on a thread.
  void Run(const std::function<void(uint32_t trainer)>& train) {
    std::vector<std::thread> threads;
    for (uint32_t trainer = 0; trainer < size(); ++trainer)
      threads.emplace_back([&, trainer] { train(trainer); });
    for (std::thread& thread : threads) thread.join();
  }
  // Makes one merging client per trainer, around the client from `make`.
  std::vector<ClientStack> MakeClients(const std::function<Mergeable(uint32_t trainer)>& make,
                                       MergeOptions options = {}) {
    std::vector<ClientStack> clients(size());
    Run([&](uint32_t trainer) {
      auto exchange = sparse::GroupExchange::Create(*groups_[trainer], timeout_);
      ASSERT_TRUE(exchange.ok()) << exchange.status();
      Mergeable mergeable = make(trainer);
      mergeable.clients.Wrap<MergedClient>(*mergeable.pushes, *std::move(exchange), options);
      clients[trainer] = std::move(mergeable.clients);
    });
    return clients;
  }

 private:
  const absl::Duration timeout_;
  const std::vector<std::unique_ptr<comm::ProcessGroup>> groups_;
};

}  // namespace tandem::ps
