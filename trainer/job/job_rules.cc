#include "trainer/job/job_rules.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "proto/job.pb.h"
#include "trainer/job/layout.h"
#include "trainer/job/limits.h"
#include "trainer/job/model_rules.h"

namespace tandem {
namespace {

constexpr int kDefaultTableDim = 64, kDefaultBatchSize = 256;
constexpr double kDefaultLearningRate = 1e-3;

// The optimizer of a table that names none. AdamW without decay is Adam.
OptimizerKind DefaultTableOptimizer(const Optimizer& optimizer, const Table& table) {
  if (optimizer.kind() == OPTIMIZER_UNSPECIFIED) return ADAM;
  return optimizer.kind() == ADAMW && table.weight_decay() == 0 ? ADAM : optimizer.kind();
}

void CheckTableMode(const Job& job, const Table& table, OptimizerKind kind, const std::string& path,
                    Limits* limits) {
  if (table.mode() == Table::LAZY) return;
  const std::string mode = Table::Mode_Name(table.mode());
  if (job.placement() == Job::REPLICATED) {
    limits->Refuse(path, mode,
                   "LAZY with placement REPLICATED (a dense parameter is updated whole)");
  } else if (kind == FTRL || kind == GROUP_FTRL || kind == DC_SGD) {
    limits->Refuse(path, mode, absl::StrCat("LAZY with optimizer ", OptimizerKind_Name(kind)));
  } else if (table.mode() == Table::DENSE_EQUIVALENT && job.ps().consistency() != BSP) {
    limits->Refuse(path, mode,
                   absl::StrCat("LAZY, CATCH_UP with ps.consistency ",
                                Consistency_Name(job.ps().consistency()),
                                " (only in BSP is a step one update)"));
  } else if (table.mode() == Table::DENSE_EQUIVALENT &&
             (table.storage() == ParameterServer::STORAGE_UNSPECIFIED
                  ? job.ps().storage()
                  : table.storage()) == ParameterServer::INT8) {
    limits->Refuse(path, mode, "LAZY, CATCH_UP with storage INT8");
  }
}

// Checks the numbers of the table's optimizer, its mode and its policy for bad gradients.
void CheckTableUpdates(const Job& job, const Table& table, const std::string& path,
                       Limits* limits) {
  const OptimizerKind kind = table.optimizer() == OPTIMIZER_UNSPECIFIED
                                 ? DefaultTableOptimizer(job.optimizer(), table)
                                 : table.optimizer();
  CheckTableMode(job, table, kind, path + ".mode", limits);
  limits->AtLeast(table, path + ".", "max_row_norm", 0);
  limits->AtLeast(table, path + ".", "weight_decay", 0);
  if (table.weight_decay() > 0 && kind != ADAMW && kind != SGD) {
    limits->Fail(path + ".weight_decay",
                 absl::StrCat(path, ".weight_decay is ", table.weight_decay(), " with optimizer ",
                              OptimizerKind_Name(kind), "; allowed: 0, or optimizer ADAMW or SGD"));
  }
  limits->BelowOne(table, path + ".", "momentum");
  limits->BelowOne(table, path + ".", "rho");
  limits->Positive(table, path + ".", "beta");
  limits->AtLeast(table, path + ".", "l1", 0);
  limits->AtLeast(table, path + ".", "l2", 0);
  limits->AtLeast(table, path + ".", "group_l1", 0);
  limits->AtLeast(table, path + ".", "delay_compensation", 0);
  limits->AtLeast(table, path + ".", "initial_accumulator", 0);
  limits->Positive(table, path + ".", "epsilon");
}

void CheckTables(const Job& job, Limits* limits) {
  std::set<std::string> names;
  for (int i = 0; i < job.tables_size(); ++i) {
    const Table& table = job.tables(i);
    const std::string path = absl::StrCat("tables[", i, "]");
    if (table.name().empty()) {
      limits->Fail(path + ".name", absl::StrCat(path, ".name is required"));
    } else if (!names.insert(table.name()).second) {
      limits->Fail(path + ".name",
                   absl::StrCat(path, ".name is \"", table.name(),
                                "\", as an earlier table's; allowed: a name of its own"));
    }
    limits->Between(table, path + ".", "dim", 1, 65536);
    CheckTableUpdates(job, table, path, limits);
    if (job.placement() == Job::REPLICATED && table.storage() > ParameterServer::F32) {
      limits->Refuse(path + ".storage", ParameterServer::Storage_Name(table.storage()),
                     "F32 with placement REPLICATED");
    }
    limits->Positive(table, path + ".", "init_stddev");
    limits->Positive(table, path + ".", "learning_rate");
  }
}

void CheckModel(const Job& job, const job::Models& models, Limits* limits) {
  const auto rules = models.Find(job.model());
  if (!rules.ok()) {
    const char* field = job.model().has_custom() ? "model.custom.name" : "model";
    return limits->Fail(field, std::string(rules.status().message()));
  }
  (*rules)->check(job, limits);
  if (job.parallel().tp() > 1 && !(*rules)->is_cut) {
    limits->Refuse("parallel.tp", job.parallel().tp(),
                   absl::StrCat("1 with ", (*rules)->name, ", whose layers are not cut"));
  }
  job::CheckStages(job, (*rules)->name, (*rules)->num_layers(job.model()), limits);
  if (job.train().precision() == Train::BF16 && !(*rules)->has_bf16) {
    limits->Refuse("train.precision", "BF16",
                   absl::StrCat("F32 with ", (*rules)->name, ", which has no bf16"));
  }
}

void CheckData(const Job& job, Limits* limits) {
  const Data& data = job.data();
  if (data.path().empty())
    limits->Fail("data.path", "data.path is required: set it here or with --set data.path=FILE");
  limits->AtLeast(data, "data.", "num_items", 2);
  if (data.ids() == Data::MAP && data.has_num_items()) {
    limits->Refuse("data.num_items", data.num_items(),
                   "none with data.ids MAP, where the catalogue is what occurs");
  }
  limits->InsideOne(data, "data.", "train_fraction");
}

void CheckEval(const Job& job, Limits* limits) {
  limits->AtLeast(job.eval(), "eval.", "cold_below", 0);
}

void CheckTrain(const Job& job, Limits* limits) {
  const Train& train = job.train();
  limits->AtLeast(train, "train.", "max_epochs", 1);
  limits->AtLeast(train, "train.", "max_steps", 0);
  limits->AtLeast(train, "train.", "min_epochs", 0);
  limits->Between(train, "train.", "batch_size", 1, 1048576);
  limits->AtLeast(train, "train.", "eval_every_epochs", 1);
  limits->AtLeast(train, "train.", "eval_every_steps", 0);
  limits->AtLeast(train, "train.", "patience", 0);
  limits->AtLeast(train, "train.", "log_every_steps", 1);
  limits->AtLeast(train, "train.", "accumulate", 1);
}

void CheckOptimizer(const Optimizer& optimizer, Limits* limits) {
  if (optimizer.kind() >= ROWWISE_ADAGRAD) {
    limits->Refuse("optimizer.kind", OptimizerKind_Name(optimizer.kind()),
                   "SGD, ADAGRAD, ADAM, ADAMW (only rows have one; see tables[].optimizer)");
  }
  limits->Positive(optimizer, "optimizer.", "learning_rate");
  limits->BelowOne(optimizer, "optimizer.", "beta1");
  limits->BelowOne(optimizer, "optimizer.", "beta2");
  limits->Positive(optimizer, "optimizer.", "epsilon");
  limits->AtLeast(optimizer, "optimizer.", "weight_decay", 0);
  if (optimizer.weight_decay() > 0 && optimizer.kind() != ADAMW && optimizer.kind() != SGD) {
    const OptimizerKind kind = optimizer.kind() == OPTIMIZER_UNSPECIFIED ? ADAM : optimizer.kind();
    limits->Fail("optimizer.weight_decay",
                 absl::StrCat("optimizer.weight_decay is ", optimizer.weight_decay(), " with kind ",
                              OptimizerKind_Name(kind), "; allowed: 0, or kind ADAMW or SGD"));
  }
  limits->AtLeast(optimizer, "optimizer.", "max_grad_norm", 0);
  limits->AtLeast(optimizer, "optimizer.", "warmup_steps", 0);
  const double learning_rate =
      optimizer.has_learning_rate() ? optimizer.learning_rate() : kDefaultLearningRate;
  if (optimizer.min_learning_rate() < 0 ||
      (learning_rate > 0 && optimizer.min_learning_rate() > learning_rate)) {
    limits->Refuse("optimizer.min_learning_rate", optimizer.min_learning_rate(),
                   absl::StrCat("0 .. the learning rate, ", learning_rate));
  }
  limits->AtLeast(optimizer, "optimizer.", "schedule_steps", 1);
  if (optimizer.decay_all() && optimizer.weight_decay() == 0) {
    limits->Fail("optimizer.decay_all",
                 "optimizer.decay_all without optimizer.weight_decay; allowed: both, or neither");
  }
}

void CheckParameters(const Job& job, Limits* limits) {
  // A trainer that keeps copies of rows keeps them for ids that recur, not for a whole model.
  const bool keeps_rows = job.ps().consistency() == GEO || job.ps().consistency() == ROW_BOUND ||
                          job.ps().cache_rows() > 0;
  bool served = false;
  for (int i = 0; i < job.parameters_size(); ++i) {
    const std::string path = absl::StrCat("parameters[", i, "]");
    if (job.parameters(i).match().empty())
      limits->Fail(path + ".match", absl::StrCat(path, ".match is required"));
    if (job.parameters(i).placement() != Job::PS || served) continue;
    served = true;  // the errors below appear once
    if (job.device() == CUDA)
      limits->Refuse(path + ".placement", "PS", "REPLICATED with device CUDA");
    if (keeps_rows)
      limits->Refuse(path + ".placement", "PS",
                     "REPLICATED with ps.consistency GEO or ROW_BOUND, or ps.cache_rows");
  }
}

// The longest bound of SSP, and the most steps for which PERMIT keeps rows and batches.
constexpr int kMaxStaleness = 1000, kMaxPermits = 64;
constexpr int kDefaultPermits = 2;

void CheckConsistency(const Job& job, Limits* limits) {
  const ParameterServer& ps = job.ps();
  switch (ps.consistency()) {
    case SSP:
      limits->Between(ps, "ps.", "staleness", 0, kMaxStaleness);
      break;
    case PERMIT:
      limits->Between(ps, "ps.", "staleness", 1, kMaxPermits);
      break;
    default:
      if (ps.staleness() != 0) {
        limits->Refuse("ps.staleness", ps.staleness(),
                       absl::StrCat("0 with ps.consistency ", Consistency_Name(ps.consistency()),
                                    "; SSP and PERMIT have one"));
      }
  }
  if (ps.consistency() != BSP && job.optimizer().max_grad_norm() > 0) {
    limits->Fail("optimizer.max_grad_norm",
                 absl::StrCat("optimizer.max_grad_norm is ", job.optimizer().max_grad_norm(),
                              " with ps.consistency ", Consistency_Name(ps.consistency()),
                              "; allowed: 0, or BSP (else no trainer knows the others' rows)"));
  }
}

void CheckMergedPushes(const Job& job, Limits* limits) {
  if (!job.ps().merge_pushes() || job.ps().consistency() == BSP) return;
  limits->Refuse(
      "ps.merge_pushes", "true",
      absl::StrCat(
          "false with ps.consistency ", Consistency_Name(job.ps().consistency()),
          ", where each trainer's pushes are applied by its own commit; BSP adds up those of all"));
}

constexpr int kMaxGeoSteps = 10000, kMaxReadBound = 1000000, kMaxWriteBound = 1000,
              kMaxCacheRows = 1 << 30;
constexpr int kDefaultGeoSteps = 10, kDefaultCacheRows = 65536;

// Checks the rows that a trainer may keep of the tables.
void CheckKeptRows(const Job& job, Limits* limits) {
  const ParameterServer& ps = job.ps();
  const std::string with =
      absl::StrCat(" with ps.consistency ", Consistency_Name(ps.consistency()));
  const auto only_with = [&](Consistency consistency, const std::string& path, int value) {
    if (value != 0 && ps.consistency() != consistency) {
      limits->Refuse(path, value,
                     absl::StrCat("0", with, "; ", Consistency_Name(consistency), " has one"));
    }
  };
  only_with(GEO, "ps.geo_steps", ps.geo_steps());
  only_with(ROW_BOUND, "ps.read_bound", ps.read_bound());
  only_with(ROW_BOUND, "ps.write_bound", ps.write_bound());
  if (ps.consistency() == GEO || ps.geo_steps() != 0)
    limits->Between(ps, "ps.", "geo_steps", 1, kMaxGeoSteps);
  limits->Between(ps, "ps.", "read_bound", 0, kMaxReadBound);
  limits->Between(ps, "ps.", "write_bound", 0, kMaxWriteBound);
  limits->Between(ps, "ps.", "cache_rows", ps.consistency() == ROW_BOUND ? 1 : 0, kMaxCacheRows);
  const bool keeps_own_rows =
      ps.consistency() == GEO || ps.read_bound() > 0 || ps.write_bound() > 0;
  for (int i = 0; keeps_own_rows && i < job.tables_size(); ++i) {
    // Servers cannot clip updates that a trainer uses, or merges, before servers see them.
    if (job.tables(i).max_row_norm() <= 0) continue;
    limits->Refuse(absl::StrCat("tables[", i, "].max_row_norm"), job.tables(i).max_row_norm(),
                   absl::StrCat("0", with, " and a bound"));
  }
  if (ps.consistency() != GEO) return;
  if (ps.cache_rows() != 0)
    limits->Refuse("ps.cache_rows", ps.cache_rows(), absl::StrCat("0", with));
  for (int i = 0; i < job.tables_size(); ++i) {
    if (job.tables(i).mode() == Table::LAZY) continue;
    limits->Refuse(absl::StrCat("tables[", i, "].mode"), Table::Mode_Name(job.tables(i).mode()),
                   absl::StrCat("LAZY", with));
  }
}

// Refuses so many parts that one would be empty: an empty part costs a pass and computes nothing.
void CheckParts(const Job& job, int num_trainers, Limits* limits) {
  const Train& train = job.train();
  const int batch_size = train.has_batch_size() ? train.batch_size() : kDefaultBatchSize;
  const int replicas = num_trainers == 0 ? 0 : job::ReplicasOf(job, num_trainers);
  if (replicas <= 0 || batch_size <= 0) return;
  const int smallest = std::max(1, batch_size / replicas),
            parts = job::MicrobatchesOf(job, batch_size, replicas);
  if (parts <= smallest) return;
  const char* const field = job.parallel().has_microbatches() ? "parallel.microbatches"
                            : train.has_accumulate()          ? "train.accumulate"
                                                              : "parallel.pp";
  limits->Refuse(
      field, parts,
      absl::StrCat("1 .. ", smallest, ", the samples that a replica has of a batch of ", batch_size,
                   " over ", replicas, replicas == 1 ? " replica" : " replicas"));
}

void CheckProcesses(const Job& job, int num_trainers, Limits* limits) {
  job::CheckLayout(job, num_trainers, limits);
  limits->Between(job.ps(), "ps.", "threads", 1, 64);
  CheckParts(job, num_trainers, limits);
  CheckConsistency(job, limits);
  CheckKeptRows(job, limits);
  CheckMergedPushes(job, limits);
  limits->Between(job.checkpoint(), "checkpoint.", "keep", 1, 1000);
  limits->AtLeast(job.checkpoint(), "checkpoint.", "every_steps", 0);
  limits->Between(job.checkpoint(), "checkpoint.", "timeout_seconds", 1.0, 86400.0);
  limits->AtLeast(job.trace(), "trace.", "first_step", 1);
  limits->Between(job.trace(), "trace.", "steps", -1, 100000);
  limits->Between(job.runtime(), "runtime.", "threads", 1, 256);
  limits->Between(job.runtime(), "runtime.", "timeout_seconds", 1.0, 86400.0);
}

void ResolveTrain(Train* train) {
  if (!train->has_max_epochs() && train->max_steps() == 0) train->set_max_epochs(1);
  if (!train->has_batch_size()) train->set_batch_size(kDefaultBatchSize);
  if (!train->has_eval_every_epochs()) train->set_eval_every_epochs(1);
  if (!train->has_log_every_steps()) train->set_log_every_steps(1);
}

void ResolveOptimizer(Optimizer* optimizer) {
  if (optimizer->kind() == OPTIMIZER_UNSPECIFIED) optimizer->set_kind(ADAM);
  if (!optimizer->has_learning_rate()) optimizer->set_learning_rate(kDefaultLearningRate);
  if (!optimizer->has_beta1()) optimizer->set_beta1(0.9);
  if (!optimizer->has_beta2()) optimizer->set_beta2(0.999);
  if (!optimizer->has_epsilon()) optimizer->set_epsilon(1e-8);
}

void ResolveParameters(Job* job) {
  for (Parameters& entry : *job->mutable_parameters()) {
    if (entry.placement() == Job::PLACEMENT_UNSPECIFIED) entry.set_placement(Job::REPLICATED);
    if (entry.placement() == Job::PS) job->set_device(CPU);
  }
}

// Sets only numbers that the table's optimizer has. Other numbers stay as written.
void ResolveOptimizerNumbers(Table* table) {
  const OptimizerKind kind = table->optimizer();
  if ((kind == MOMENTUM || kind == NESTEROV) && !table->has_momentum()) table->set_momentum(0.9);
  if ((kind == ADADELTA || kind == RMSPROP) && !table->has_rho()) table->set_rho(0.9);
  if ((kind == FTRL || kind == GROUP_FTRL) && !table->has_beta()) table->set_beta(1);
  if (kind == DC_SGD && !table->has_delay_compensation()) table->set_delay_compensation(0.04);
  if (kind == ADADELTA && !table->has_epsilon()) table->set_epsilon(1e-6);
}

void ResolveTable(const Optimizer& optimizer, ParameterServer::Storage storage, Table* table) {
  table->set_dim(TableDimOf(*table));
  if (table->optimizer() == OPTIMIZER_UNSPECIFIED)
    table->set_optimizer(DefaultTableOptimizer(optimizer, *table));
  if (!table->has_init_stddev()) table->set_init_stddev(0.02);
  if (!table->has_learning_rate()) table->set_learning_rate(optimizer.learning_rate());
  if (table->storage() == ParameterServer::STORAGE_UNSPECIFIED) table->set_storage(storage);
  ResolveOptimizerNumbers(table);
}

// A table without a policy follows the run's.
void ResolveNonFinite(Train::NonFinite policy, Table* table) {
  if (!table->has_non_finite())
    table->set_non_finite(policy == Train::SKIP ? Table::SKIP : Table::REJECT);
}

}  // namespace

int TableDimOf(const Table& table) { return table.has_dim() ? table.dim() : kDefaultTableDim; }

void CheckJob(const Job& job, int num_trainers, const job::Models& models, TextReader* reader) {
  Limits limits(reader);
  CheckData(job, &limits);
  CheckEval(job, &limits);
  CheckModel(job, models, &limits);
  CheckTables(job, &limits);
  CheckTrain(job, &limits);
  CheckOptimizer(job.optimizer(), &limits);
  CheckParameters(job, &limits);
  CheckProcesses(job, num_trainers, &limits);
}

namespace {

// An absent field and a written 0 mean the same, so they must give the same job.
void ClearZeros(ParameterServer* ps) {
  if (ps->staleness() == 0) ps->clear_staleness();
  if (ps->geo_steps() == 0) ps->clear_geo_steps();
  if (ps->cache_rows() == 0) ps->clear_cache_rows();
}

}  // namespace

void ResolveJob(const std::string& default_name, int num_trainers, const job::Models& models,
                Job* job) {
  if (job->name().empty()) job->set_name(default_name);
  ResolveOptimizer(job->mutable_optimizer());
  const auto rules = models.Find(job->model());
  TANDEM_CHECK(rules.ok()) << rules.status().ToString();
  (*rules)->resolve(job);
  if (job->ps().storage() == ParameterServer::STORAGE_UNSPECIFIED)
    job->mutable_ps()->set_storage(ParameterServer::F32);
  if (job->ps().wire() == ParameterServer::Wire::UNSPECIFIED)
    job->mutable_ps()->set_wire(ParameterServer::Wire::F32);
  ResolveParameters(job);
  for (Table& table : *job->mutable_tables())
    ResolveTable(job->optimizer(), job->ps().storage(), &table);
  for (Table& table : *job->mutable_tables()) ResolveNonFinite(job->train().non_finite(), &table);
  ResolveTrain(job->mutable_train());
  if (!job->trace().has_first_step()) job->mutable_trace()->set_first_step(5);
  if (!job->trace().has_steps()) job->mutable_trace()->set_steps(2);
  job::ResolveLayout(num_trainers, job);
  if (!job->ps().has_threads()) job->mutable_ps()->set_threads(1);
  ClearZeros(job->mutable_ps());
  if (job->ps().consistency() == PERMIT && !job->ps().has_staleness())
    job->mutable_ps()->set_staleness(kDefaultPermits);
  if (job->ps().consistency() == GEO && !job->ps().has_geo_steps())
    job->mutable_ps()->set_geo_steps(kDefaultGeoSteps);
  if (job->ps().consistency() == ROW_BOUND && !job->ps().has_cache_rows())
    job->mutable_ps()->set_cache_rows(kDefaultCacheRows);
  if (!job->checkpoint().has_keep()) job->mutable_checkpoint()->set_keep(1);
  if (!job->checkpoint().has_timeout_seconds()) job->mutable_checkpoint()->set_timeout_seconds(600);
  if (!job->runtime().has_threads()) job->mutable_runtime()->set_threads(1);
  if (!job->runtime().has_timeout_seconds()) job->mutable_runtime()->set_timeout_seconds(60);
  if (!job->runtime().has_cuda_graphs()) job->mutable_runtime()->set_cuda_graphs(true);
}

}  // namespace tandem
