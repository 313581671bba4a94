// A small job, its data, and a run of it with any number of replicas in this process.
#pragma once

#include <algorithm>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/job/job_options.h"
#include "trainer/loop/train_loop.h"
#include "trainer/tasks/ranking/sequence_data.h"

namespace tandem::loop {

// A resolved job of `replicas` trainers, with the fields that LoadJob would fill in.
inline Job SmallJob(int replicas = 2) {
  Job job;
  job.mutable_parallel()->set_dp(replicas);
  job.mutable_parallel()->set_tp(1);
  job.mutable_parallel()->set_pp(1);
  job.mutable_parallel()->set_microbatches(1);
  job.mutable_parallel()->set_virtual_stages(1);
  job.set_name("small");
  job.set_seed(3);
  job.set_placement(Job::PS);
  auto* model = job.mutable_model()->mutable_sequence_rec();
  model->set_max_length(8);
  model->set_layers(1);
  model->set_heads(2);
  model->set_ffn_dim(16);
  model->set_dropout(0.2f);
  model->set_norm_epsilon(1e-12);
  model->set_init_stddev(0.1);
  model->set_loss(BCE);
  model->set_num_negatives(8);
  auto* table = job.add_tables();
  table->set_name("item");
  table->set_dim(8);
  table->set_optimizer(ADAM);
  table->set_init_stddev(0.1);
  table->set_learning_rate(1e-2);
  auto* optimizer = job.mutable_optimizer();
  optimizer->set_kind(ADAM);
  optimizer->set_learning_rate(1e-2);
  optimizer->set_beta1(0.9);
  optimizer->set_beta2(0.999);
  optimizer->set_epsilon(1e-8);
  auto* train = job.mutable_train();
  train->set_max_epochs(2);
  train->set_batch_size(16);
  train->set_eval_every_epochs(1);
  train->set_log_every_steps(1);
  train->set_select_by(VALID_MRR);
  job.mutable_ps()->set_threads(1);
  job.mutable_runtime()->set_threads(1);
  job.mutable_runtime()->set_timeout_seconds(30);
  job.mutable_checkpoint()->set_keep(1);
  job.mutable_checkpoint()->set_timeout_seconds(30);
  return job;
}

inline SequenceRecData SmallData() {
  return SequenceRecData(
      {.interactions =
           data::Generate({.seed = 5, .users = 70, .items = 30, .min_length = 3, .max_length = 12})
               .log,
       .path = "log"});
}

struct RunResult {
  report::RunSummary summary;
  std::vector<double> losses;
  double most_stale = 0;
};

inline double FieldOf(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\":");
  EXPECT_NE(at, std::string::npos) << name << " in " << json;
  return std::atof(json.c_str() + at + name.size() + 3);
}

using MakeClient = std::function<ps::ClientStack(ps::TableHost& host, uint32_t rank)>;

inline RunResult Train(Job job, int num_replicas,
                       report::LogFormat format = report::LogFormat::JSON,
                       MakeClient make_client = nullptr) {
  job.mutable_parallel()->set_dp(num_replicas);
  if (make_client == nullptr) {
    make_client = [&](ps::TableHost& host, uint32_t rank) {
      return std::make_unique<ps::LocalClient>(host, rank, static_cast<uint32_t>(num_replicas),
                                               job::ConsistencyOf(job));
    };
  }
  const SequenceRecData data = SmallData();
  const support::TempFolder folder;
  RunResult result;
  {
    auto output = report::RunOutput::Create(folder.path() + "/out", format);
    EXPECT_TRUE(output.ok()) << output.status();
    ps::TableHost host(job.ps().threads());
    auto groups = comm::ThreadGroup::Create(num_replicas, "dp");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < num_replicas; ++rank) {
      threads.emplace_back([&, rank] {
        const auto client = make_client(host, static_cast<uint32_t>(rank));
        const auto summary = RunReplica(job, data,
                                        {.group = groups[rank].get(),
                                         .clients = client,
                                         .output = rank == 0 ? output->get() : nullptr});
        ASSERT_TRUE(summary.ok()) << summary.status();
        if (rank == 0) result.summary = *summary;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::ifstream metrics(folder.path() + "/out/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    result.losses.push_back(FieldOf(line, "loss"));
    result.most_stale = std::max(result.most_stale, FieldOf(line, "staleness"));
  }
  return result;
}

inline Job WithConsistency(Job job, Consistency consistency, int staleness = 0) {
  job.mutable_ps()->set_consistency(consistency);
  job.mutable_ps()->set_staleness(staleness);
  return job;
}

}  // namespace tandem::loop
