#include "tests/trainer/lattice/lattice_run.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/loop/small_text.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_config.h"
#include "trainer/loop/train_loop.h"
#include "trainer/tasks/text/text_data.h"

namespace tandem::lattice {

namespace {

std::unique_ptr<tasks::JobData> DataOf(const Job& job) {
  if (job.model().has_llama())
    return std::make_unique<LlamaData>(tasks::TextFile{loop::SmallText()});
  return std::make_unique<GptData>(tasks::TextFile{loop::SmallText()});
}

}  // namespace

std::string Layout::ToString() const {
  std::string text =
      absl::StrCat("dp ", dp, " tp ", tp, " zero ", zero, tp > 1 && !cut_rows ? " whole rows" : "");
  if (microbatches > 0) absl::StrAppend(&text, " microbatches ", microbatches);
  if (pp > 1) absl::StrAppend(&text, " pp ", pp, " ", schedule);
  if (recompute) absl::StrAppend(&text, " recompute");
  return text;
}

Trained Train(const std::string& text, const std::vector<std::string>& sets, const Layout& layout,
              const RunOptions& options) {
  const support::TempFolder folder;
  return TrainIn(folder.path() + "/out", text, sets, layout, options);
}

Trained TrainIn(const std::string& out, const std::string& text,
                const std::vector<std::string>& sets, const Layout& layout,
                const RunOptions& options) {
  std::vector<std::string> all = sets;
  all.push_back(absl::StrCat("parallel.tp=", layout.tp));
  all.push_back(absl::StrCat("parallel.zero=", layout.zero));
  if (layout.tp > 1 && !layout.cut_rows) all.push_back("parallel.sequence_parallel=false");
  all.push_back(absl::StrCat("parallel.pp=", layout.pp));
  all.push_back(absl::StrCat("parallel.schedule=", layout.schedule));
  if (layout.recompute) all.push_back("parallel.recompute=FULL");
  if (layout.microbatches > 0)
    all.push_back(absl::StrCat("parallel.microbatches=", layout.microbatches));
  if (!layout.layers_per_stage.empty()) {
    all.push_back(
        absl::StrCat("parallel.layers_per_stage=", absl::StrJoin(layout.layers_per_stage, ",")));
  }
  const auto job = ParseJob(text, "job", all,
                            {.models = OurKinds().models(), .num_trainers = layout.num_ranks()});
  EXPECT_TRUE(job.ok()) << job.status();
  const std::unique_ptr<tasks::JobData> data =
      options.make_data ? options.make_data(*job) : DataOf(*job);
  const std::string checkpoints = out + "/checkpoints";
  std::optional<checkpoint::Checkpoint> saved;
  if (!checkpoint::ListCheckpoints(checkpoints).empty()) {
    auto newest = checkpoint::OpenCheckpoint(checkpoints, checkpoint::Choice::NEWEST);
    EXPECT_TRUE(newest.ok()) << newest.status();
    saved = *std::move(newest);
  }
  Trained run;
  {
    auto output = report::RunOutput::Create(out, report::LogFormat::JSON);
    EXPECT_TRUE(output.ok()) << output.status();
    ps::TableHost host(1);
    const auto groups = comm::ThreadGroup::Create(layout.num_ranks(), "trainers", absl::Seconds(60),
                                                  comm::ThreadGroup::Sending::WAITS_FOR_RECV);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < layout.num_ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        ps::LocalClient client(host, static_cast<uint32_t>(rank),
                               static_cast<uint32_t>(layout.num_ranks()));
        report::OnStep on_step([&](const report::StepRecord& record) {
          run.losses.push_back(record.loss);
          run.norms.push_back(record.grad_norm);
        });
        const auto summary = loop::RunReplica(
            *job, *data,
            {.resume = saved ? &*saved : nullptr,
             .group = groups[rank].get(),
             .clients = ps::ClientsOf(client),
             .output = rank == 0 ? output->get() : nullptr,
             .parameters = options.bf16 ? DType::F32 : DType::F64,
             .compute = options.bf16 ? std::optional<DType>(DType::BF16) : std::nullopt,
             .observer = rank == 0 ? &on_step : nullptr});
        if (rank != 0) return;
        run.status = summary.status();
        if (summary.ok()) run.valid_loss = summary->metrics.at("valid/loss");
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const auto path = checkpoint::NewestCheckpoint(checkpoints);
  if (!run.status.ok() || !path.ok()) return run;
  const auto dense = checkpoint::ReadSafetensors(*path + "/dense.safetensors");
  EXPECT_TRUE(dense.ok()) << dense.status();
  for (const checkpoint::NamedTensor& named : dense->tensors) {
    std::vector<double>& values = run.tensors[named.name];
    for (int64_t i = 0; i < named.tensor.num_elements(); ++i) values.push_back(named.tensor.At(i));
  }
  return run;
}

double LargestDifference(const Trained& run, const Trained& serial) {
  if (!run.status.ok() || !serial.status.ok()) return INFINITY;
  double largest = 0;
  const auto compare = [&](double found, double wanted) {
    const double difference = std::abs(found - wanted) / std::max(1.0, std::abs(wanted));
    largest = std::isfinite(difference) ? std::max(largest, difference) : INFINITY;
  };
  const auto compare_all = [&](const std::vector<double>& found,
                               const std::vector<double>& wanted) {
    if (found.size() != wanted.size()) {
      largest = INFINITY;
      return;
    }
    for (size_t i = 0; i < found.size(); ++i) compare(found[i], wanted[i]);
  };
  compare_all(run.losses, serial.losses);
  compare_all(run.norms, serial.norms);
  compare(run.valid_loss, serial.valid_loss);
  if (run.tensors.size() != serial.tensors.size()) return INFINITY;
  for (const auto& [name, values] : serial.tensors) {
    const auto found = run.tensors.find(name);
    if (found == run.tensors.end()) return INFINITY;
    compare_all(found->second, values);
  }
  return largest;
}

}  // namespace tandem::lattice
