#include "trainer/tasks/text/gpt_rules.h"

#include <cmath>

#include "proto/job.pb.h"
#include "trainer/tasks/text/text_rules.h"
#include "trainer/tasks/transformer_rules.h"

namespace tandem::tasks {

namespace {

constexpr int kDefaultLayers = 4, kDefaultDim = 128, kDefaultHeads = 4;

}  // namespace

void GptRules::Check(const Job& job, Limits* limits) {
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
  CheckTextModel(job,
                 {.path = path,
                  .dim = dim,
                  .heads = model.has_heads() ? model.heads() : kDefaultHeads,
                  .ffn_dim = model.has_ffn_dim() ? model.ffn_dim() : 4 * dim,
                  .heads_given = model.has_heads()},
                 limits);
}

void GptRules::Resolve(Job* job) {
  Gpt& model = *job->mutable_model()->mutable_gpt();
  if (!model.has_max_length()) model.set_max_length(256);
  if (!model.has_layers()) model.set_layers(kDefaultLayers);
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
  ResolveTextModel(model.dim(), model.embedding_stddev(), job);
}

void GptRules::ClearTrainingFields(Model* model) {
  Gpt& gpt = *model->mutable_gpt();
  gpt.clear_dropout();
  gpt.clear_init();
  gpt.clear_init_stddev();
  gpt.clear_embedding_stddev();
}

int GptRules::NumLayers(const Model& model) {
  return model.gpt().has_layers() ? model.gpt().layers() : kDefaultLayers;
}

models::GptOptions GptRules::OptionsOf(const Job& job, int64_t vocabulary_size) {
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
  options.norm = {.epsilon = model.norm_epsilon(), .bias = model.norm_bias()};
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
