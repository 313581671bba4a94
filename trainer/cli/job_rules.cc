#include "trainer/cli/job_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"
#include "trainer/cli/text_reader.h"

namespace tandem {
namespace {

constexpr char kItemTable[] = "item", kTokenTable[] = "token";
constexpr int kDefaultTableDim = 64;
constexpr int kDefaultHeads = 2;
constexpr int kDefaultGptDim = 128, kDefaultGptHeads = 4;
constexpr double kDefaultLearningRate = 1e-3;

// A value of 0 asks for the default, so no limit applies to it.
class Limits {
 public:
  explicit Limits(TextReader* reader) : reader_(reader) {}

  template <typename T>
  void Between(const std::string& path, T value, T low, T high) {
    if (value != 0 && (value < low || value > high)) Refuse(path, value, absl::StrCat(low, " .. ", high));
  }
  template <typename T>
  void NotNegative(const std::string& path, T value) {
    if (value < 0) Refuse(path, value, "at least 0");
  }
  void AtLeastOne(const std::string& path, int64_t value) {
    if (value < 0) Refuse(path, value, "at least 1");
  }
  void Positive(const std::string& path, double value) {
    if (value < 0) Refuse(path, value, "greater than 0");
  }
  void BelowOne(const std::string& path, double value) {
    if (value < 0 || value >= 1) Refuse(path, value, "at least 0 and below 1");
  }
  template <typename T>
  void Refuse(const std::string& path, const T& found, const std::string& allowed) {
    Fail(path, absl::StrCat(path, " is ", found, "; allowed: ", allowed));
  }
  void Fail(const std::string& path, const std::string& what) {
    reader_->AddError(absl::StrCat(reader_->Place(path), ": ", what));
  }

 private:
  TextReader* reader_;
};

int DimOf(const Table& table) { return table.dim() == 0 ? kDefaultTableDim : table.dim(); }

// The optimizer that a table without one has: AdamW without decay is Adam.
OptimizerKind DefaultTableOptimizer(const Optimizer& optimizer, const Table& table) {
  if (optimizer.kind() == OPTIMIZER_UNSPECIFIED) return ADAM;
  return optimizer.kind() == ADAMW && table.weight_decay() == 0 ? ADAM : optimizer.kind();
}

void CheckTableMode(const Job& job, const Table& table, OptimizerKind kind, const std::string& path, Limits* limits) {
  if (table.mode() == Table::LAZY) return;
  const std::string mode = Table::Mode_Name(table.mode());
  if (job.placement() == Job::REPLICATED) {
    limits->Refuse(path, mode, "LAZY with placement REPLICATED (a dense parameter is updated whole)");
  } else if (kind == FTRL || kind == GROUP_FTRL || kind == DC_SGD) {
    limits->Refuse(path, mode, absl::StrCat("LAZY with optimizer ", OptimizerKind_Name(kind)));
  } else if (table.mode() == Table::DENSE_EQUIVALENT && job.ps().consistency() != BSP) {
    limits->Refuse(path, mode, absl::StrCat("LAZY, CATCH_UP with ps.consistency ", Consistency_Name(job.ps().consistency()),
                                            " (only in BSP is a step one update)"));
  } else if (table.mode() == Table::DENSE_EQUIVALENT &&
             (table.storage() == ParameterServer::STORAGE_UNSPECIFIED ? job.ps().storage() : table.storage()) ==
                 ParameterServer::INT8) {
    limits->Refuse(path, mode, "LAZY, CATCH_UP with storage INT8");
  }
}

// The numbers of the table's optimizer, its mode and what it does with bad gradients.
void CheckTableUpdates(const Job& job, const Table& table, const std::string& path, Limits* limits) {
  const OptimizerKind kind =
      table.optimizer() == OPTIMIZER_UNSPECIFIED ? DefaultTableOptimizer(job.optimizer(), table) : table.optimizer();
  CheckTableMode(job, table, kind, path + ".mode", limits);
  limits->NotNegative(path + ".max_row_norm", table.max_row_norm());
  limits->NotNegative(path + ".weight_decay", table.weight_decay());
  if (table.weight_decay() > 0 && kind != ADAMW && kind != SGD) {
    limits->Fail(path + ".weight_decay", absl::StrCat(path, ".weight_decay is ", table.weight_decay(), " with optimizer ",
                                                      OptimizerKind_Name(kind), "; allowed: 0, or optimizer ADAMW or SGD"));
  }
  limits->BelowOne(path + ".momentum", table.momentum());
  limits->BelowOne(path + ".rho", table.rho());
  limits->Positive(path + ".beta", table.beta());
  limits->NotNegative(path + ".l1", table.l1());
  limits->NotNegative(path + ".l2", table.l2());
  limits->NotNegative(path + ".group_l1", table.group_l1());
  limits->NotNegative(path + ".delay_compensation", table.delay_compensation());
  limits->NotNegative(path + ".initial_accumulator", table.initial_accumulator());
  limits->Positive(path + ".epsilon", table.epsilon());
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
                   absl::StrCat(path, ".name is \"", table.name(), "\", as an earlier table's; allowed: a name of its own"));
    }
    limits->Between(path + ".dim", table.dim(), 1, 65536);
    CheckTableUpdates(job, table, path, limits);
    if (job.placement() == Job::REPLICATED && table.storage() > ParameterServer::F32) {
      limits->Refuse(path + ".storage", ParameterServer::Storage_Name(table.storage()), "F32 with placement REPLICATED");
    }
    limits->Positive(path + ".init_stddev", table.init_stddev());
    limits->Positive(path + ".learning_rate", table.learning_rate());
  }
}

// `dim_path` is the field that holds `dim`.
void CheckHeads(const std::string& path, int heads, int default_heads, const std::string& dim_path, int dim, Limits* limits) {
  const int resolved = heads == 0 ? default_heads : heads;
  if (dim <= 0 || resolved <= 0 || dim % resolved == 0) return;
  // The default head count cannot be at fault for a dim that the user chose.
  limits->Fail(heads == 0 ? dim_path : path + "heads",
               absl::StrCat(path, "heads is ", resolved, " with ", dim_path, " ", dim, "; allowed: a divisor of the dim"));
}

void CheckSequenceRec(const Job& job, Limits* limits) {
  const SequenceRec& model = job.model().sequence_rec();
  const std::string path = "model.sequence_rec.";
  limits->Between(path + "max_length", model.max_length(), 1, 4096);
  limits->Between(path + "layers", model.layers(), 1, 64);
  limits->AtLeastOne(path + "heads", model.heads());
  limits->AtLeastOne(path + "ffn_dim", model.ffn_dim());
  limits->BelowOne(path + "dropout", model.dropout());
  limits->Positive(path + "norm_epsilon", model.norm_epsilon());
  limits->Positive(path + "init_stddev", model.init_stddev());
  limits->Between(path + "num_negatives", model.num_negatives(), 1, 100000);

  if (job.tables_size() != 1 || job.tables(0).name() != kItemTable) {
    const std::string found = job.tables_size() == 1 ? absl::StrCat("one table, named \"", job.tables(0).name(), "\"")
                                                     : absl::StrCat(job.tables_size(), " tables");
    limits->Fail("tables",
                 absl::StrCat("sequence_rec with ", found, "; allowed: exactly one table, tables { name: \"item\" }"));
    return;
  }
  CheckHeads(path, model.heads(), kDefaultHeads, "tables[0].dim", DimOf(job.tables(0)), limits);
  if (job.train().precision() == Train::BF16) {
    limits->Refuse("train.precision", "BF16", "F32 with sequence_rec (its matrices are too small to gain)");
  }
}

// Token rows on parameter servers if the job says so or describes their table.
bool TokensAreServed(const Job& job) {
  return job.placement() == Job::PS || (job.placement() == Job::PLACEMENT_UNSPECIFIED && job.tables_size() > 0);
}

void CheckGpt(const Job& job, Limits* limits) {
  const Gpt& model = job.model().gpt();
  const std::string path = "model.gpt.";
  limits->Between(path + "max_length", model.max_length(), 1, 65536);
  limits->Between(path + "layers", model.layers(), 1, 256);
  limits->AtLeastOne(path + "heads", model.heads());
  limits->Between(path + "dim", model.dim(), 1, 65536);
  limits->AtLeastOne(path + "ffn_dim", model.ffn_dim());
  limits->BelowOne(path + "dropout", model.dropout());
  limits->Positive(path + "norm_epsilon", model.norm_epsilon());
  limits->Positive(path + "attention_scale", model.attention_scale());
  limits->Positive(path + "init_stddev", model.init_stddev());
  limits->Positive(path + "embedding_stddev", model.embedding_stddev());
  const int dim = model.dim() == 0 ? kDefaultGptDim : model.dim();
  CheckHeads(path, model.heads(), kDefaultGptHeads, path + "dim", dim, limits);
  if (job.tables_size() == 0) return;
  if (!TokensAreServed(job)) {
    limits->Fail("tables", "gpt with placement REPLICATED has no tables; allowed: none, or placement PS");
  } else if (job.tables_size() != 1 || job.tables(0).name() != kTokenTable) {
    limits->Fail("tables", "gpt with other tables than \"token\"; allowed: none, or exactly tables { name: \"token\" }");
  } else if (job.tables(0).dim() != 0 && job.tables(0).dim() != dim) {
    limits->Refuse("tables[0].dim", job.tables(0).dim(), absl::StrCat(dim, ", as ", path, "dim, or none"));
  }
}

void CheckModel(const Job& job, Limits* limits) {
  switch (job.model().kind_case()) {
    case Model::kSequenceRec:
      return CheckSequenceRec(job, limits);
    case Model::kGpt:
      return CheckGpt(job, limits);
    case Model::KIND_NOT_SET:
      return limits->Fail("model", "model has no kind; allowed: model { sequence_rec { } }, model { gpt { } }");
  }
}

void CheckData(const Job& job, Limits* limits) {
  const Data& data = job.data();
  if (data.path().empty()) limits->Fail("data.path", "data.path is required: set it here or with --set data.path=FILE");
  if (data.format() != DATA_FORMAT_UNSPECIFIED && (data.format() == TEXT) != job.model().has_gpt()) {
    limits->Refuse("data.format", DataFormat_Name(data.format()),
                   job.model().has_gpt() ? "TEXT with gpt" : "SEQUENCES, PAIRS with sequence_rec");
  }
  limits->BelowOne("data.train_fraction", data.train_fraction());
}

void CheckTrain(const Job& job, Limits* limits) {
  const Train& train = job.train();
  limits->AtLeastOne("train.max_epochs", train.max_epochs());
  limits->NotNegative("train.max_steps", train.max_steps());
  limits->NotNegative("train.min_epochs", train.min_epochs());
  limits->Between("train.batch_size", train.batch_size(), 1, 1048576);
  limits->AtLeastOne("train.eval_every_epochs", train.eval_every_epochs());
  limits->NotNegative("train.eval_every_steps", train.eval_every_steps());
  limits->NotNegative("train.patience", train.patience());
  limits->AtLeastOne("train.log_every_steps", train.log_every_steps());
  limits->AtLeastOne("train.accumulate", train.accumulate());
  if (train.select_by() == VALID_SAMPLED_MRR && job.data().negatives_path().empty()) {
    limits->Fail("train.select_by", "train.select_by is VALID_SAMPLED_MRR without data.negatives_path; allowed: VALID_MRR");
  }
  const bool by_loss = train.select_by() == VALID_LOSS;
  if (train.select_by() != SELECTION_UNSPECIFIED && by_loss != job.model().has_gpt()) {
    limits->Refuse("train.select_by", SelectionMetric_Name(train.select_by()),
                   by_loss ? "VALID_MRR, VALID_SAMPLED_MRR with sequence_rec" : "VALID_LOSS with gpt");
  }
}

void CheckOptimizer(const Optimizer& optimizer, Limits* limits) {
  if (optimizer.kind() >= ROWWISE_ADAGRAD) {
    limits->Refuse("optimizer.kind", OptimizerKind_Name(optimizer.kind()), "SGD, ADAGRAD, ADAM, ADAMW (only rows have one; see tables[].optimizer)");
  }
  limits->Positive("optimizer.learning_rate", optimizer.learning_rate());
  limits->BelowOne("optimizer.beta1", optimizer.beta1());
  limits->BelowOne("optimizer.beta2", optimizer.beta2());
  limits->Positive("optimizer.epsilon", optimizer.epsilon());
  limits->NotNegative("optimizer.weight_decay", optimizer.weight_decay());
  if (optimizer.weight_decay() > 0 && optimizer.kind() != ADAMW && optimizer.kind() != SGD) {
    const OptimizerKind kind = optimizer.kind() == OPTIMIZER_UNSPECIFIED ? ADAM : optimizer.kind();
    limits->Fail("optimizer.weight_decay",
                 absl::StrCat("optimizer.weight_decay is ", optimizer.weight_decay(), " with kind ",
                              OptimizerKind_Name(kind), "; allowed: 0, or kind ADAMW or SGD"));
  }
  limits->NotNegative("optimizer.max_grad_norm", optimizer.max_grad_norm());
  limits->NotNegative("optimizer.warmup_steps", optimizer.warmup_steps());
  const double learning_rate = optimizer.learning_rate() == 0 ? kDefaultLearningRate : optimizer.learning_rate();
  if (optimizer.min_learning_rate() < 0 || (learning_rate > 0 && optimizer.min_learning_rate() > learning_rate)) {
    limits->Refuse("optimizer.min_learning_rate", optimizer.min_learning_rate(),
                   absl::StrCat("0 .. the learning rate, ", learning_rate));
  }
  limits->NotNegative("optimizer.schedule_steps", optimizer.schedule_steps());
  if (optimizer.decay_all() && optimizer.weight_decay() == 0) {
    limits->Fail("optimizer.decay_all", "optimizer.decay_all without optimizer.weight_decay; allowed: both, or neither");
  }
}

void CheckParameters(const Job& job, Limits* limits) {
  // A trainer that keeps copies of rows keeps them of ids that come again now and then, not of a whole model.
  const bool keeps_rows = job.ps().consistency() == GEO || job.ps().consistency() == ROW_BOUND || job.ps().cache_rows() > 0;
  bool served = false;
  for (int i = 0; i < job.parameters_size(); ++i) {
    const std::string path = absl::StrCat("parameters[", i, "]");
    if (job.parameters(i).match().empty()) limits->Fail(path + ".match", absl::StrCat(path, ".match is required"));
    if (job.parameters(i).placement() != Job::PS || served) continue;
    served = true;  // what follows is said once
    if (job.device() == CUDA) limits->Refuse(path + ".placement", "PS", "REPLICATED with device CUDA");
    if (keeps_rows) limits->Refuse(path + ".placement", "PS", "REPLICATED with ps.consistency GEO or ROW_BOUND, or ps.cache_rows");
  }
}

// The longest bound of SSP, and the most steps that PERMIT keeps rows and batches of.
constexpr int kMaxStaleness = 1000, kMaxPermits = 64;
constexpr int kDefaultPermits = 2;

void CheckConsistency(const Job& job, Limits* limits) {
  const ParameterServer& ps = job.ps();
  switch (ps.consistency()) {
    case SSP:
      limits->Between("ps.staleness", ps.staleness(), 0, kMaxStaleness);
      break;
    case PERMIT:
      limits->Between("ps.staleness", ps.staleness(), 1, kMaxPermits);
      break;
    default:
      if (ps.staleness() != 0) {
        limits->Refuse("ps.staleness", ps.staleness(),
                       absl::StrCat("0 with ps.consistency ", Consistency_Name(ps.consistency()), "; SSP and PERMIT have one"));
      }
  }
  if (ps.consistency() != BSP && job.optimizer().max_grad_norm() > 0) {
    limits->Fail("optimizer.max_grad_norm",
                 absl::StrCat("optimizer.max_grad_norm is ", job.optimizer().max_grad_norm(), " with ps.consistency ",
                              Consistency_Name(ps.consistency()), "; allowed: 0, or BSP (else no trainer knows the others' rows)"));
  }
}

void CheckMergedPushes(const Job& job, Limits* limits) {
  if (!job.ps().merge_pushes() || job.ps().consistency() == BSP) return;
  limits->Refuse("ps.merge_pushes", "true",
                 absl::StrCat("false with ps.consistency ", Consistency_Name(job.ps().consistency()),
                              ", where each trainer's pushes are applied by its own commit; BSP adds up those of all"));
}

constexpr int kMaxGeoSteps = 10000, kMaxReadBound = 1000000, kMaxWriteBound = 1000, kMaxCacheRows = 1 << 30;
constexpr int kDefaultGeoSteps = 10, kDefaultCacheRows = 65536;

// What a trainer may keep of the tables.
void CheckKeptRows(const Job& job, Limits* limits) {
  const ParameterServer& ps = job.ps();
  const std::string with = absl::StrCat(" with ps.consistency ", Consistency_Name(ps.consistency()));
  const auto only_with = [&](Consistency consistency, const std::string& path, int value) {
    if (value != 0 && ps.consistency() != consistency) {
      limits->Refuse(path, value, absl::StrCat("0", with, "; ", Consistency_Name(consistency), " has one"));
    }
  };
  only_with(GEO, "ps.geo_steps", ps.geo_steps());
  only_with(ROW_BOUND, "ps.read_bound", ps.read_bound());
  only_with(ROW_BOUND, "ps.write_bound", ps.write_bound());
  limits->Between("ps.geo_steps", ps.geo_steps(), 1, kMaxGeoSteps);
  limits->Between("ps.read_bound", ps.read_bound(), 0, kMaxReadBound);
  limits->Between("ps.write_bound", ps.write_bound(), 0, kMaxWriteBound);
  limits->Between("ps.cache_rows", ps.cache_rows(), 0, kMaxCacheRows);
  const bool keeps_own_rows = ps.consistency() == GEO || ps.read_bound() > 0 || ps.write_bound() > 0;
  for (int i = 0; keeps_own_rows && i < job.tables_size(); ++i) {
    // Updates that a trainer shows, or merges, before servers see them are not clipped as servers clip.
    if (job.tables(i).max_row_norm() <= 0) continue;
    limits->Refuse(absl::StrCat("tables[", i, "].max_row_norm"), job.tables(i).max_row_norm(), absl::StrCat("0", with, " and a bound"));
  }
  if (ps.consistency() != GEO) return;
  if (ps.cache_rows() != 0) limits->Refuse("ps.cache_rows", ps.cache_rows(), absl::StrCat("0", with));
  for (int i = 0; i < job.tables_size(); ++i) {
    if (job.tables(i).mode() == Table::LAZY) continue;
    limits->Refuse(absl::StrCat("tables[", i, "].mode"), Table::Mode_Name(job.tables(i).mode()), absl::StrCat("LAZY", with));
  }
}

void CheckProcesses(const Job& job, int num_trainers, Limits* limits) {
  const int dp = job.parallel().dp();
  if (num_trainers > 0 && dp != 0 && dp != num_trainers) {
    limits->Fail("parallel.dp", absl::StrCat("impossible layout: parallel.dp is ", dp, " with ", num_trainers,
                                             num_trainers == 1 ? " trainer" : " trainers", "; allowed: ", num_trainers,
                                             ", the number of trainers"));
  } else {
    limits->AtLeastOne("parallel.dp", dp);
  }
  limits->Between("ps.threads", job.ps().threads(), 1, 64);
  CheckConsistency(job, limits);
  CheckKeptRows(job, limits);
  CheckMergedPushes(job, limits);
  limits->Between("checkpoint.keep", job.checkpoint().keep(), 1, 1000);
  limits->NotNegative("checkpoint.every_steps", job.checkpoint().every_steps());
  limits->Between("checkpoint.timeout_seconds", job.checkpoint().timeout_seconds(), 1.0, 86400.0);
  limits->NotNegative("trace.first_step", job.trace().first_step());
  limits->Between("trace.steps", job.trace().steps(), -1, 100000);
  limits->Between("runtime.threads", job.runtime().threads(), 1, 256);
  limits->Between("runtime.timeout_seconds", job.runtime().timeout_seconds(), 1.0, 86400.0);
}

void ResolveGpt(Job* job) {
  Gpt& model = *job->mutable_model()->mutable_gpt();
  if (model.max_length() == 0) model.set_max_length(256);
  if (model.layers() == 0) model.set_layers(4);
  if (model.heads() == 0) model.set_heads(kDefaultGptHeads);
  if (model.dim() == 0) model.set_dim(kDefaultGptDim);
  if (model.ffn_dim() == 0) model.set_ffn_dim(4 * model.dim());
  if (model.activation() == ACTIVATION_UNSPECIFIED) model.set_activation(GELU);
  if (model.norm_epsilon() == 0) model.set_norm_epsilon(1e-5);
  if (model.attention_scale() == 0) {
    model.set_attention_scale(1.0 / std::sqrt(static_cast<double>(model.dim() / model.heads())));
  }
  if (model.init() == GPT_INIT_UNSPECIFIED) model.set_init(NORMAL);
  if (model.init_stddev() == 0) model.set_init_stddev(0.02);
  if (model.embedding_stddev() == 0) model.set_embedding_stddev(model.init_stddev());
  const bool served = TokensAreServed(*job);
  job->set_placement(served ? Job::PS : Job::REPLICATED);
  if (!served) return;
  Table& table = job->tables_size() == 0 ? *job->add_tables() : *job->mutable_tables(0);
  table.set_name(kTokenTable);
  table.set_dim(model.dim());
  if (table.init_stddev() == 0) table.set_init_stddev(model.embedding_stddev());
}

void ResolveSequenceRec(Job* job) {
  if (job->placement() == Job::PLACEMENT_UNSPECIFIED) job->set_placement(Job::PS);
  SequenceRec& model = *job->mutable_model()->mutable_sequence_rec();
  if (model.max_length() == 0) model.set_max_length(50);
  if (model.layers() == 0) model.set_layers(2);
  if (model.heads() == 0) model.set_heads(kDefaultHeads);
  if (model.ffn_dim() == 0) model.set_ffn_dim(4 * DimOf(job->tables(0)));
  if (model.activation() == ACTIVATION_UNSPECIFIED) model.set_activation(GELU);
  if (model.norm_epsilon() == 0) model.set_norm_epsilon(1e-12);
  if (model.init_stddev() == 0) model.set_init_stddev(0.02);
  if (model.loss() == SEQUENCE_LOSS_UNSPECIFIED) model.set_loss(BCE);
  if (model.num_negatives() == 0) model.set_num_negatives(256);
}

void ResolveData(bool is_text, Data* data) {
  if (data->format() == DATA_FORMAT_UNSPECIFIED) data->set_format(is_text ? TEXT : SEQUENCES);
  if (is_text && data->train_fraction() == 0) data->set_train_fraction(0.9);
}

SelectionMetric DefaultSelection(const Job& job) {
  if (job.model().has_gpt()) return VALID_LOSS;
  return job.data().negatives_path().empty() ? VALID_MRR : VALID_SAMPLED_MRR;
}

void ResolveTrain(SelectionMetric selection, Train* train) {
  if (train->max_epochs() == 0 && train->max_steps() == 0) train->set_max_epochs(1);
  if (train->batch_size() == 0) train->set_batch_size(256);
  if (train->eval_every_epochs() == 0) train->set_eval_every_epochs(1);
  if (train->log_every_steps() == 0) train->set_log_every_steps(1);
  if (train->select_by() == SELECTION_UNSPECIFIED) train->set_select_by(selection);
  if (train->accumulate() == 0) train->set_accumulate(1);
}

void ResolveOptimizer(Optimizer* optimizer) {
  if (optimizer->kind() == OPTIMIZER_UNSPECIFIED) optimizer->set_kind(ADAM);
  if (optimizer->learning_rate() == 0) optimizer->set_learning_rate(kDefaultLearningRate);
  if (optimizer->beta1() == 0) optimizer->set_beta1(0.9);
  if (optimizer->beta2() == 0) optimizer->set_beta2(0.999);
  if (optimizer->epsilon() == 0) optimizer->set_epsilon(1e-8);
}

void ResolveParameters(Job* job) {
  for (Parameters& entry : *job->mutable_parameters()) {
    if (entry.placement() == Job::PLACEMENT_UNSPECIFIED) entry.set_placement(Job::REPLICATED);
    if (entry.placement() == Job::PS) job->set_device(CPU);
  }
}

// Only those that the table's optimizer has: the others stay as they were written.
void ResolveOptimizerNumbers(Table* table) {
  const OptimizerKind kind = table->optimizer();
  if ((kind == MOMENTUM || kind == NESTEROV) && !table->has_momentum()) table->set_momentum(0.9);
  if ((kind == ADADELTA || kind == RMSPROP) && !table->has_rho()) table->set_rho(0.9);
  if ((kind == FTRL || kind == GROUP_FTRL) && table->beta() == 0) table->set_beta(1);
  if (kind == DC_SGD && !table->has_delay_compensation()) table->set_delay_compensation(0.04);
  if (kind == ADADELTA && table->epsilon() == 0) table->set_epsilon(1e-6);
}

void ResolveTable(const Optimizer& optimizer, ParameterServer::Storage storage, Table* table) {
  table->set_dim(DimOf(*table));
  if (table->optimizer() == OPTIMIZER_UNSPECIFIED) table->set_optimizer(DefaultTableOptimizer(optimizer, *table));
  if (table->init_stddev() == 0) table->set_init_stddev(0.02);
  if (table->learning_rate() == 0) table->set_learning_rate(optimizer.learning_rate());
  if (table->storage() == ParameterServer::STORAGE_UNSPECIFIED) table->set_storage(storage);
  ResolveOptimizerNumbers(table);
}

// A table's policy follows the run's unless it has one.
void ResolveNonFinite(Train::NonFinite policy, Table* table) {
  if (!table->has_non_finite()) table->set_non_finite(policy == Train::SKIP ? Table::SKIP : Table::REJECT);
}

}  // namespace

void CheckJob(const Job& job, int num_trainers, TextReader* reader) {
  Limits limits(reader);
  CheckData(job, &limits);
  CheckModel(job, &limits);
  CheckTables(job, &limits);
  CheckTrain(job, &limits);
  CheckOptimizer(job.optimizer(), &limits);
  CheckParameters(job, &limits);
  CheckProcesses(job, num_trainers, &limits);
}

void ResolveJob(const std::string& default_name, int num_trainers, Job* job) {
  if (job->name().empty()) job->set_name(default_name);
  ResolveData(job->model().has_gpt(), job->mutable_data());
  ResolveOptimizer(job->mutable_optimizer());
  job->model().has_gpt() ? ResolveGpt(job) : ResolveSequenceRec(job);
  if (job->ps().storage() == ParameterServer::STORAGE_UNSPECIFIED) job->mutable_ps()->set_storage(ParameterServer::F32);
  if (job->ps().wire() == ParameterServer::Wire::UNSPECIFIED) job->mutable_ps()->set_wire(ParameterServer::Wire::F32);
  ResolveParameters(job);
  for (Table& table : *job->mutable_tables()) ResolveTable(job->optimizer(), job->ps().storage(), &table);
  for (Table& table : *job->mutable_tables()) ResolveNonFinite(job->train().non_finite(), &table);
  ResolveTrain(DefaultSelection(*job), job->mutable_train());
  if (job->trace().first_step() == 0) job->mutable_trace()->set_first_step(5);
  if (job->trace().steps() == 0) job->mutable_trace()->set_steps(2);
  if (job->parallel().dp() == 0) job->mutable_parallel()->set_dp(std::max(1, num_trainers));
  if (job->ps().threads() == 0) job->mutable_ps()->set_threads(1);
  if (job->ps().consistency() == PERMIT && job->ps().staleness() == 0) job->mutable_ps()->set_staleness(kDefaultPermits);
  if (job->ps().consistency() == GEO && job->ps().geo_steps() == 0) job->mutable_ps()->set_geo_steps(kDefaultGeoSteps);
  if (job->ps().consistency() == ROW_BOUND && job->ps().cache_rows() == 0) job->mutable_ps()->set_cache_rows(kDefaultCacheRows);
  if (job->checkpoint().keep() == 0) job->mutable_checkpoint()->set_keep(1);
  if (job->checkpoint().timeout_seconds() == 0) job->mutable_checkpoint()->set_timeout_seconds(600);
  if (job->runtime().threads() == 0) job->mutable_runtime()->set_threads(1);
  if (job->runtime().timeout_seconds() == 0) job->mutable_runtime()->set_timeout_seconds(60);
  if (!job->runtime().has_cuda_graphs()) job->mutable_runtime()->set_cuda_graphs(true);
}

}  // namespace tandem
