#include "trainer/tasks/text/gpt_rules.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"
#include "trainer/tasks/transformer_rules.h"

namespace tandem::tasks {

namespace {

constexpr char kTokenTable[] = "token";
constexpr int kDefaultDim = 128, kDefaultHeads = 4;

// Token rows are on parameter servers if the job says so or describes their table.
bool TokensAreServed(const Job& job) {
  return job.placement() == Job::PS ||
         (job.placement() == Job::PLACEMENT_UNSPECIFIED && job.tables_size() > 0);
}

void CheckTokenTable(const Job& job, int dim, Limits* limits) {
  if (job.tables_size() == 0) return;
  if (!TokensAreServed(job)) {
    limits->Fail("tables",
                 "gpt with placement REPLICATED has no tables; allowed: none, or placement PS");
  } else if (job.tables_size() != 1 || job.tables(0).name() != kTokenTable) {
    limits->Fail("tables",
                 "gpt with other tables than \"token\"; allowed: none, or exactly tables { name: "
                 "\"token\" }");
  } else if (job.tables(0).has_dim() && job.tables(0).dim() != dim) {
    limits->Refuse("tables[0].dim", job.tables(0).dim(),
                   absl::StrCat(dim, ", as model.gpt.dim, or none"));
  }
}

// Each rank has as many heads, and as much of the hidden layer, as every other.
void CheckCut(const Job& job, int dim, Limits* limits) {
  const int tp = job.parallel().tp();
  if (tp <= 1) return;
  const Gpt& model = job.model().gpt();
  const int heads = model.has_heads() ? model.heads() : kDefaultHeads,
            ffn_dim = model.has_ffn_dim() ? model.ffn_dim() : 4 * dim;
  if (heads > 0 && heads % tp != 0) {
    limits->Refuse("parallel.tp", tp, absl::StrCat("a divisor of model.gpt.heads, ", heads));
  } else if (ffn_dim > 0 && ffn_dim % tp != 0) {
    limits->Refuse("parallel.tp", tp, absl::StrCat("a divisor of model.gpt.ffn_dim, ", ffn_dim));
  }
  if (TokensAreServed(job))
    limits->Refuse("parallel.tp", tp, "1 with placement PS, whose rows are not cut yet");
}

}  // namespace

void CheckGpt(const Job& job, Limits* limits) {
  const Gpt& model = job.model().gpt();
  const std::string path = "model.gpt.";
  limits->Between(model, path, "max_length", 1, 65536);
  limits->Between(model, path, "layers", 1, 256);
  limits->AtLeast(model, path, "heads", 1);
  limits->Between(model, path, "dim", 1, 65536);
  limits->AtLeast(model, path, "ffn_dim", 1);
  limits->BelowOne(model, path, "dropout");
  limits->Positive(model, path, "norm_epsilon");
  limits->Positive(model, path, "attention_scale");
  limits->Positive(model, path, "init_stddev");
  limits->Positive(model, path, "embedding_stddev");
  const int dim = model.has_dim() ? model.dim() : kDefaultDim;
  CheckHeads({.path = path,
              .heads = model.heads(),
              .default_heads = kDefaultHeads,
              .dim_path = path + "dim",
              .dim = dim},
             limits);
  CheckTokenTable(job, dim, limits);
  CheckCut(job, dim, limits);
  const SelectionMetric selection = job.train().select_by();
  if (selection != SELECTION_UNSPECIFIED && selection != VALID_LOSS)
    limits->Refuse("train.select_by", SelectionMetric_Name(selection), "VALID_LOSS with gpt");
}

void ResolveGpt(Job* job) {
  Gpt& model = *job->mutable_model()->mutable_gpt();
  if (!model.has_max_length()) model.set_max_length(256);
  if (!model.has_layers()) model.set_layers(4);
  if (!model.has_heads()) model.set_heads(kDefaultHeads);
  if (!model.has_dim()) model.set_dim(kDefaultDim);
  if (!model.has_ffn_dim()) model.set_ffn_dim(4 * model.dim());
  if (model.activation() == ACTIVATION_UNSPECIFIED) model.set_activation(GELU);
  if (!model.has_norm_epsilon()) model.set_norm_epsilon(1e-5);
  if (!model.has_attention_scale()) {
    model.set_attention_scale(1.0 / std::sqrt(static_cast<double>(model.dim() / model.heads())));
  }
  if (model.init() == GPT_INIT_UNSPECIFIED) model.set_init(NORMAL);
  if (!model.has_init_stddev()) model.set_init_stddev(0.02);
  if (!model.has_embedding_stddev()) model.set_embedding_stddev(model.init_stddev());
  Train& train = *job->mutable_train();
  if (train.select_by() == SELECTION_UNSPECIFIED) train.set_select_by(VALID_LOSS);
  const bool served = TokensAreServed(*job);
  job->set_placement(served ? Job::PS : Job::REPLICATED);
  if (!served) return;
  Table& table = job->tables_size() == 0 ? *job->add_tables() : *job->mutable_tables(0);
  table.set_name(kTokenTable);
  table.set_dim(model.dim());
  if (!table.has_init_stddev()) table.set_init_stddev(model.embedding_stddev());
}

models::GptOptions GptOptionsOf(const Job& job, int64_t vocabulary_size) {
  const Gpt& model = job.model().gpt();
  models::GptOptions options;
  options.vocabulary_size = vocabulary_size;
  options.max_length = model.max_length();
  options.layers = model.layers();
  options.heads = model.heads();
  options.dim = model.dim();
  options.ffn_dim = model.ffn_dim();
  options.activation = ActivationOf(model.activation());
  options.dropout = model.dropout();
  options.norm_epsilon = model.norm_epsilon();
  options.norm_bias = model.norm_bias();
  options.qkv_bias = model.qkv_bias();
  options.linear_bias = model.linear_bias();
  options.tied_embeddings = model.tied_embeddings();
  options.attention_scale = model.attention_scale();
  options.init = model.init() == UNIFORM_FAN_IN ? nn::Init::UNIFORM_FAN_IN : nn::Init::NORMAL;
  options.init_stddev = model.init_stddev();
  options.embedding_stddev = model.embedding_stddev();
  options.token_rows_outside = job.placement() == Job::PS;
  return options;
}

}  // namespace tandem::tasks
