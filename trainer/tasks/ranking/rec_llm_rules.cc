#include "trainer/tasks/ranking/rec_llm_rules.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"
#include "trainer/job/job_rules.h"
#include "trainer/tasks/transformer_rules.h"

namespace tandem::tasks {

namespace {

constexpr int kDefaultLayers = 2, kDefaultDim = 64, kDefaultHeads = 2;
const std::string kPath = "model.rec_llm.";

int DimOf(const RecLlm& model) { return model.has_dim() ? model.dim() : kDefaultDim; }

bool ShowsTitles(const RecLlm& model) { return model.titles_per_history() > 0; }

void CheckTables(const Job& job, const RecLlmTables& tables, Limits* limits) {
  const RecLlm& model = job.model().rec_llm();
  if (tables.item < 0)
    limits->Fail("tables", "rec_llm without a table \"item\"; allowed: tables { name: \"item\" }");
  for (int i = 0; i < job.tables_size(); ++i) {
    const Table& table = job.tables(i);
    const std::string path = absl::StrCat("tables[", i, "].");
    if (i != tables.item && i != tables.title && i != tables.token) {
      limits->Refuse(path + "name", table.name(), "item, title, token with rec_llm");
    } else if (i != tables.item && table.has_dim() && table.dim() != DimOf(model)) {
      limits->Refuse(path + "dim", table.dim(),
                     absl::StrCat(DimOf(model), ", as ", kPath, "dim, or none"));
    }
  }
  if (tables.token >= 0 && !ShowsTitles(model)) {
    limits->Fail("tables", absl::StrCat("a table \"token\" without ", kPath,
                                        "titles_per_history; allowed: item, title"));
  }
}

// Refuses a job that lacks the titles that it needs.
void CheckTitles(const Job& job, const RecLlmTables& tables, Limits* limits) {
  const RecLlm& model = job.model().rec_llm();
  if (job.data().items_path().empty() && (ShowsTitles(model) || tables.title >= 0)) {
    limits->Fail(
        "data.items_path",
        absl::StrCat("data.items_path is required with ",
                     tables.title >= 0 ? "a table \"title\"" : kPath + "titles_per_history",
                     ": set it here or with --set data.items_path=FILE"));
  }
  if (!ShowsTitles(model) && model.text_loss() > 0) {
    limits->Refuse(kPath + "text_loss", model.text_loss(),
                   absl::StrCat("0 without ", kPath, "titles_per_history"));
  }
  if (tables.title < 0 && model.row_dropout() > 0) {
    limits->Refuse(
        kPath + "row_dropout", model.row_dropout(),
        "0 without a table \"title\", because nothing is left of an item without its row");
  }
}

}  // namespace

RecLlmTables RecLlmTablesOf(const Job& job) {
  RecLlmTables tables;
  for (int i = 0; i < job.tables_size(); ++i) {
    if (job.tables(i).name() == "item") tables.item = i;
    if (job.tables(i).name() == "title") tables.title = i;
    if (job.tables(i).name() == "token") tables.token = i;
  }
  return tables;
}

void CheckRecLlm(const Job& job, Limits* limits) {
  const RecLlm& model = job.model().rec_llm();
  limits->Between(model, kPath, "max_length", 1, 65536);
  limits->Between(model, kPath, "titles_per_history", 0, 65536);
  limits->Between(model, kPath, "layers", 1, 256);
  limits->AtLeast(model, kPath, "heads", 1);
  limits->Between(model, kPath, "dim", 1, 65536);
  limits->AtLeast(model, kPath, "ffn_dim", 1);
  limits->BelowOne(model, kPath, "dropout");
  limits->Positive(model, kPath, "norm_epsilon");
  limits->Positive(model, kPath, "init_stddev");
  limits->Positive(model, kPath, "item_loss");
  limits->AtLeast(model, kPath, "text_loss", 0);
  limits->Between(model, kPath, "row_dropout", 0, 1);
  limits->Between(model, kPath, "title_buckets", 1, 1 << 30);
  limits->Between(model, kPath, "num_negatives", 1, 100000);
  if (model.loss() == BCE)
    limits->Refuse(kPath + "loss", "BCE", "FULL_SOFTMAX, SAMPLED_SOFTMAX with rec_llm");
  CheckHeads({.path = kPath,
              .heads = model.heads(),
              .default_heads = kDefaultHeads,
              .dim_path = kPath + "dim",
              .dim = DimOf(model)},
             limits);
  CheckCut(job.parallel().tp(),
           {.path = kPath,
            .heads = model.heads() > 0 ? model.heads() : kDefaultHeads,
            .ffn_dim = model.has_ffn_dim() ? model.ffn_dim() : 4 * DimOf(model)},
           limits);
  const RecLlmTables tables = RecLlmTablesOf(job);
  CheckTables(job, tables, limits);
  CheckTitles(job, tables, limits);
}

int RecLlmLayers(const RecLlm& model) {
  return model.has_layers() ? model.layers() : kDefaultLayers;
}

void ResolveRecLlm(Job* job) {
  RecLlm& model = *job->mutable_model()->mutable_rec_llm();
  if (!model.has_max_length()) model.set_max_length(256);
  if (!model.has_layers()) model.set_layers(kDefaultLayers);
  if (!model.has_heads()) model.set_heads(kDefaultHeads);
  model.set_dim(DimOf(model));
  if (!model.has_ffn_dim()) model.set_ffn_dim(4 * model.dim());
  if (model.activation() == ACTIVATION_UNSPECIFIED) model.set_activation(GELU);
  if (!model.has_norm_epsilon()) model.set_norm_epsilon(1e-5);
  if (!model.has_init_stddev()) model.set_init_stddev(0.02);
  if (!model.has_item_loss()) model.set_item_loss(1);
  if (!model.has_text_loss()) model.set_text_loss(ShowsTitles(model) ? 0.1 : 0);
  if (!model.has_title_buckets()) model.set_title_buckets(65536);
  if (model.loss() == SEQUENCE_LOSS_UNSPECIFIED) model.set_loss(FULL_SOFTMAX);
  if (!model.has_num_negatives()) model.set_num_negatives(1024);
  const RecLlmTables tables = RecLlmTablesOf(*job);
  if (tables.title >= 0) {
    Table& title = *job->mutable_tables(tables.title);
    title.set_dim(model.dim());
    // Vectors of length 1: words must count from the first step.
    if (!title.has_init_stddev()) title.set_init_stddev(1 / std::sqrt(1.0 * model.dim()));
  }
  if (tables.token >= 0) {
    Table& token = *job->mutable_tables(tables.token);
    token.set_dim(model.dim());
    if (!token.has_init_stddev()) token.set_init_stddev(model.init_stddev());
  }
}

models::RecLlmOptions RecLlmOptionsOf(const Job& job, int64_t vocabulary_size,
                                      const parallel::TensorGroup* tp) {
  const RecLlm& model = job.model().rec_llm();
  const RecLlmTables tables = RecLlmTablesOf(job);
  models::RecLlmOptions options;
  options.vocabulary_size = ShowsTitles(model) ? vocabulary_size : 0;
  options.max_length = model.max_length();
  options.layers = model.layers();
  options.heads = model.heads();
  options.dim = model.dim();
  options.ffn_dim = model.ffn_dim();
  options.tp = tp;
  options.activation = ActivationOf(model.activation());
  options.dropout = model.dropout();
  options.norm_epsilon = model.norm_epsilon();
  options.init_stddev = model.init_stddev();
  options.item_dim = job.tables(tables.item).dim();
  options.has_tower = tables.title >= 0;
  options.predicts_text = model.text_loss() > 0;
  return options;
}

}  // namespace tandem::tasks
