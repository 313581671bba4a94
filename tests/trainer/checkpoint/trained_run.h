// Runs of a small model in this process, whose checkpoints other commands then read.
#pragma once

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/checkpoint/file_damage.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/cli/commands.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/job/job_config.h"
#include "trainer/loop/train_loop.h"

namespace tandem {

class TrainedRunTest : public testing::Test {
 protected:
  static constexpr int kReplicas = 2;

  TrainedRunTest() {
    data::SyntheticOptions options;
    options.users = 300;
    options.items = 80;
    options.min_length = 4;
    options.max_length = 9;
    EXPECT_TRUE(data::WriteSequences(data::Generate(options).log, folder_ / "log.txt").ok());
    WriteBytes(folder_ / "job.textproto",
               "model { sequence_rec { max_length: 8 layers: 1 heads: 2 ffn_dim: 16 loss: BCE "
               "dropout: 0.2 } }\n"
               "tables { name: \"item\" dim: 8 }\n"
               "optimizer { learning_rate: 0.01 }\n"
               "train { batch_size: 64 max_epochs: 3 }\n");
    sets_ = {"data.path=" + (folder_ / "log.txt"), "seed=11"};
  }

  report::RunSummary Train(const std::string& out, std::vector<std::string> sets) {
    sets.insert(sets.end(), sets_.begin(), sets_.end());
    const auto job =
        LoadJob(folder_ / job_, sets, {.models = OurKinds().models(), .num_trainers = kReplicas});
    EXPECT_TRUE(job.ok()) << job.status();
    const auto data = OurKinds().ReadData(*job);
    EXPECT_TRUE(data.ok()) << data.status();
    auto output = report::RunOutput::Create(out, report::LogFormat::JSON);
    EXPECT_TRUE(output.ok()) << output.status();
    ps::TableHost host(2);
    auto groups = comm::ThreadGroup::Create(kReplicas, "dp");
    std::vector<absl::StatusOr<report::RunSummary>> results(kReplicas,
                                                            absl::UnknownError("not run"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kReplicas; ++rank) {
      threads.emplace_back([&, rank] {
        ps::LocalClient client(host, static_cast<uint32_t>(rank), kReplicas);
        results[rank] = loop::RunReplica(*job, **data,
                                         {.group = groups[rank].get(),
                                          .clients = ps::ClientsOf(client),
                                          .output = rank == 0 ? output->get() : nullptr,
                                          .num_servers = 0});
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(results[0].ok()) << results[0].status();
    return *results[0];
  }

  int Eval(const std::string& checkpoint, std::vector<std::string> sets = {}) {
    sets.insert(sets.begin(), sets_[0]);  // another seed than the run's
    return cli::Eval({folder_ / job_, sets, checkpoint, folder_ / "dump.tsv"}, OurKinds());
  }

  std::vector<double> DumpedRanks() {
    std::vector<double> ranks;
    std::istringstream lines(ReadBytes(folder_ / "dump.tsv"));
    uint64_t user, target;
    double rank;
    std::string top;
    while (lines >> user >> target >> rank >> top) ranks.push_back(rank);
    return ranks;
  }

  // The dumped lines by user.
  std::map<uint64_t, std::string> DumpedUsers() {
    std::map<uint64_t, std::string> lines;
    std::istringstream dump(ReadBytes(folder_ / "dump.tsv"));
    for (std::string line; std::getline(dump, line);) lines[std::stoull(line)] = line;
    return lines;
  }

  // Rewrites the log with ids that are text: "user-7 item-3 ...".
  void UseMappedIds() {
    std::istringstream log(ReadBytes(folder_ / "log.txt"));
    std::string mapped;
    for (std::string line; std::getline(log, line);) {
      std::istringstream fields(line);
      std::string user, item;
      fields >> user;
      mapped += "user-" + user;
      while (fields >> item) mapped += " item-" + item;
      mapped += "\n";
    }
    folder_.Write("log.txt", mapped);
    WriteBytes(folder_ / "job.textproto",
               ReadBytes(folder_ / "job.textproto") + "data { ids: MAP }\n");
  }

  // Replaces the job by a language model of this text.
  void UseText(const std::string& text) {
    folder_.Write("text.textproto",
                  "model { gpt { max_length: 8 layers: 1 heads: 2 dim: 8 dropout: 0.2 } }\n"
                  "train { batch_size: 4 max_steps: 2 }\n");
    job_ = "text.textproto";
    sets_ = {"data.path=" + folder_.Write("text.txt", text), "seed=11"};
  }

  const support::TempFolder folder_;
  std::string job_ = "job.textproto";
  std::vector<std::string> sets_;
};

}  // namespace tandem
