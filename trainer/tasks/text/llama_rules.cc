#include "trainer/tasks/text/llama_rules.h"

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"
#include "trainer/tasks/text/text_rules.h"

namespace tandem::tasks {

namespace {

constexpr int kDefaultLayers = 4, kDefaultDim = 128, kDefaultHeads = 4;

int DimOf(const Llama& model) { return model.has_dim() ? model.dim() : kDefaultDim; }
int HeadsOf(const Llama& model) { return model.has_heads() ? model.heads() : kDefaultHeads; }
int KvHeadsOf(const Llama& model) {
  return model.has_kv_heads() ? model.kv_heads() : HeadsOf(model);
}
// Two thirds of 4 x dim, so that three matrices have the parameters of two, in steps of 32.
int FfnDimOf(const Llama& model) {
  return model.has_ffn_dim() ? model.ffn_dim() : (8 * DimOf(model) / 3 + 31) / 32 * 32;
}

}  // namespace

void LlamaRules::Check(const Job& job, Limits* limits) {
  const Llama& model = job.model().llama();
  const std::string path = "model.llama.";
  limits->Between(model, path, "max_length", 1, 65536);
  limits->Between(model, path, "layers", 1, 256);
  limits->AtLeast(model, path, "heads", 1);
  limits->AtLeast(model, path, "kv_heads", 1);
  limits->Between(model, path, "dim", 1, 65536);
  limits->AtLeast(model, path, "ffn_dim", 1);
  limits->BelowOne(model, path, "dropout");
  limits->Positive(model, path, "norm_epsilon");
  limits->Positive(model, path, "rope_theta");
  limits->Positive(model, path, "init_stddev");
  limits->Positive(model, path, "embedding_stddev");
  const int dim = DimOf(model), heads = HeadsOf(model), kv_heads = KvHeadsOf(model);
  if (heads > 0 && kv_heads > 0 && heads % kv_heads != 0) {
    limits->Refuse(path + "kv_heads", kv_heads,
                   absl::StrCat("a divisor of ", path, "heads, ", heads));
  }
  if (heads > 0 && dim > 0 && dim % heads == 0 && dim / heads % 2 != 0) {
    limits->Refuse(
        path + (model.has_heads() ? "heads" : "dim"), model.has_heads() ? heads : dim,
        absl::StrCat("values with an even ", path, "dim / heads, whose halves are turned"));
  }
  CheckTextModel(job,
                 {.path = path,
                  .dim = dim,
                  .heads = heads,
                  .kv_heads = kv_heads,
                  .ffn_dim = FfnDimOf(model),
                  .heads_given = model.has_heads()},
                 limits);
}

void LlamaRules::Resolve(Job* job) {
  Llama& model = *job->mutable_model()->mutable_llama();
  if (!model.has_max_length()) model.set_max_length(256);
  if (!model.has_layers()) model.set_layers(kDefaultLayers);
  model.set_heads(HeadsOf(model));
  model.set_kv_heads(KvHeadsOf(model));
  model.set_dim(DimOf(model));
  model.set_ffn_dim(FfnDimOf(model));
  if (!model.has_norm_epsilon()) model.set_norm_epsilon(1e-5);
  if (!model.has_rope_theta()) model.set_rope_theta(10000);
  if (!model.has_init_stddev()) model.set_init_stddev(0.02);
  if (!model.has_embedding_stddev()) model.set_embedding_stddev(model.init_stddev());
  ResolveTextModel(model.dim(), model.embedding_stddev(), job);
}

void LlamaRules::ClearTrainingFields(Model* model) {
  Llama& llama = *model->mutable_llama();
  llama.clear_dropout();
  llama.clear_init_stddev();
  llama.clear_embedding_stddev();
}

int LlamaRules::NumLayers(const Model& model) {
  return model.llama().has_layers() ? model.llama().layers() : kDefaultLayers;
}

models::GptOptions LlamaRules::OptionsOf(const Job& job, int64_t vocabulary_size) {
  const Llama& model = job.model().llama();
  models::GptOptions options;
  options.vocabulary_size = vocabulary_size;
  options.max_length = model.max_length();
  options.layers = model.layers();
  options.heads = model.heads();
  options.kv_heads = model.kv_heads();
  options.dim = model.dim();
  options.ffn_dim = model.ffn_dim();
  options.gated = true;
  options.dropout = model.dropout();
  options.norm = {.kind = nn::NormKind::RMS, .epsilon = model.norm_epsilon()};
  options.rotary_base = model.rope_theta();
  options.tied_embeddings = model.tied_embeddings();
  options.init_stddev = model.init_stddev();
  options.embedding_stddev = model.embedding_stddev();
  options.token_rows_outside = job.placement() == Job::PS;
  return options;
}

}  // namespace tandem::tasks
