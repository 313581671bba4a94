#include "trainer/bench/plan/inventory.h"

#include <algorithm>
#include <cctype>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/stream.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_config.h"
#include "trainer/job/job_options.h"
#include "trainer/job/parameter_placement.h"
#include "trainer/tasks/embedding_table.h"

namespace tandem::bench {

namespace {

constexpr int64_t kBatches = 8;

// The task of one trainer, without values of its parameters.
struct Trainer {
  Trainer(const Job& job, const tasks::JobData& data, ps::TableHost& host,
          comm::ProcessGroup* group)
      : rows(host, static_cast<uint32_t>(group->rank()), static_cast<uint32_t>(group->size())),
        tables(tasks::MakeEmbeddingTables(job, &rows, &stream)),
        task(data.MakeTask(job,
                           {.parameters = &parameters, .tables = tables.get(), .group = group})) {}

  ThreadPool pool{1};
  Stream stream{&pool};
  ParameterSet parameters{/*seed=*/1, DType::F32, &stream, /*has_values=*/false};
  ps::LocalClient rows;
  const std::unique_ptr<sparse::RemoteEmbedding> tables;
  const std::unique_ptr<tasks::Task> task;
};

absl::Status CheckLayout(const Job& job) {
  std::vector<std::string> errors;
  for (const auto& [field, value] :
       {std::pair("tp", job.parallel().tp()), {"pp", job.parallel().pp()}}) {
    if (value > 1)
      errors.push_back(
          absl::StrCat("parallel.", field, " is ", value,
                       "; allowed here: 1, because plan compares replicas of a model"));
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
}

std::vector<DenseUse> DenseOf(const ParameterSet& parameters) {
  std::vector<DenseUse> uses;
  for (const auto& parameter : parameters.all()) {
    const std::string name = FoldedName(parameter->name);
    auto same = std::find_if(uses.begin(), uses.end(),
                             [&](const DenseUse& use) { return use.name == name; });
    if (same == uses.end()) same = uses.insert(uses.end(), {.name = name});
    ++same->count;
    same->elements += static_cast<uint64_t>(parameter->num_elements());
  }
  return uses;
}

// Adds the rows of the first batches to the tables.
void CountRows(const std::vector<std::unique_ptr<Trainer>>& trainers, Inventory* inventory) {
  inventory->batches =
      std::min(kBatches, std::max<int64_t>(1, trainers[0]->task->steps_per_epoch()));
  for (int64_t step = 1; step <= inventory->batches; ++step) {
    std::vector<std::vector<uint64_t>> all(inventory->tables.size());
    for (const auto& trainer : trainers) {
      const auto input = trainer->task->Prepare(step);
      for (size_t t = 0; t < all.size(); ++t) {
        const std::vector<uint64_t>& ids = input->ids[t];
        inventory->tables[t].rows_of_trainer +=
            static_cast<double>(ids.size()) /
            static_cast<double>(inventory->batches * static_cast<int64_t>(trainers.size()));
        all[t].insert(all[t].end(), ids.begin(), ids.end());
      }
    }
    for (size_t t = 0; t < all.size(); ++t) {
      std::sort(all[t].begin(), all[t].end());
      const auto distinct = std::unique(all[t].begin(), all[t].end()) - all[t].begin();
      inventory->tables[t].distinct_rows +=
          static_cast<double>(distinct) / static_cast<double>(inventory->batches);
    }
  }
}

// The parameters that a replica has only if it also holds the tables are the tables.
absl::StatusOr<std::vector<Shape>> ShapesOfTables(const Job& replicated, const tasks::JobData& data,
                                                  ps::TableHost& host,
                                                  const ParameterSet& without) {
  const auto group = comm::ThreadGroup::Create(1, "plan");
  const Trainer whole(replicated, data, host, group[0].get());
  std::vector<Shape> shapes;
  for (const auto& parameter : whole.parameters.all()) {
    const auto& others = without.all();
    if (std::none_of(others.begin(), others.end(),
                     [&](const auto& other) { return other->name == parameter->name; }))
      shapes.push_back(parameter->shape());
  }
  return shapes;
}

}  // namespace

std::string FoldedName(const std::string& name) {
  const auto is_number = [](const std::string& word) {
    return !word.empty() && std::all_of(word.begin(), word.end(),
                                        [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  std::vector<std::string> words = absl::StrSplit(name, '.');
  const auto number = std::find_if(words.begin(), words.end(), is_number);
  if (number == words.end()) {
    if (words.size() > 1) words.pop_back();
  } else {
    *number = "*";
    const auto module_end = std::min(words.end(), number + 2);
    words.erase(module_end, words.end());
  }
  return absl::StrJoin(words, ".");
}

absl::StatusOr<Inventory> TakeInventory(const std::string& job_path,
                                        const std::vector<std::string>& sets, int trainers,
                                        const tasks::Kinds& kinds) {
  const LoadOptions options{.models = kinds.models(), .num_trainers = trainers};
  ASSIGN_OR_RETURN(Job job, LoadJob(job_path, sets, options));
  RETURN_IF_ERROR(CheckLayout(job));
  ASSIGN_OR_RETURN(const std::unique_ptr<tasks::JobData> data, kinds.ReadData(job));
  const bool on_servers = job.placement() == Job::PS && job.tables_size() > 0;
  const bool served = job::ServesParameters(job);
  // Ids are what servers would be asked for, wherever the job has its tables.
  const bool has_tables = job.tables_size() > 0;
  if (has_tables) job.set_placement(Job::PS);
  ps::TableHost host(1);
  const auto groups = comm::ThreadGroup::Create(trainers, "plan");
  std::vector<std::unique_ptr<Trainer>> replicas;
  for (const auto& group : groups)
    replicas.push_back(std::make_unique<Trainer>(job, *data, host, group.get()));
  Inventory inventory;
  if (job.ps().wire() > ParameterServer::Wire::F32)
    inventory.notes.emplace_back("rows travel as f32, whatever ps.wire says");
  if (job.device() == CUDA) inventory.notes.emplace_back("trainers compute on CPUs");
  if (on_servers || served)
    inventory.needs_servers = on_servers ? "placement is PS" : "parameters.placement is PS";
  inventory.dense = DenseOf(replicas[0]->parameters);
  if (!has_tables) return inventory;
  Job replicated = job;
  replicated.set_placement(Job::REPLICATED);
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes,
                   ShapesOfTables(replicated, *data, host, replicas[0]->parameters));
  for (const Table& table : job.tables()) {
    const size_t place = inventory.tables.size();
    if (place >= shapes.size() || shapes[place].num_dims() != 2 ||
        shapes[place][1] != table.dim()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tables[", table.name(), "]: no replica of this kind of model can hold the table whole"));
    }
    inventory.tables.push_back({.name = table.name(),
                                .rows = static_cast<uint64_t>(shapes[place][0]),
                                .dim = static_cast<uint64_t>(table.dim())});
  }
  CountRows(replicas, &inventory);
  return inventory;
}

}  // namespace tandem::bench
