#include "trainer/tasks/ranking/sequence_rec_rules.h"

#include "proto/job.pb.h"
#include "trainer/job/job_rules.h"
#include "trainer/tasks/transformer_rules.h"

namespace tandem::tasks {

namespace {

constexpr int kDefaultLayers = 2, kDefaultHeads = 2;

}  // namespace

void CheckSequenceRec(const Job& job, Limits* limits) {
  const SequenceRec& model = job.model().sequence_rec();
  const std::string path = "model.sequence_rec.";
  limits->Between(model, path, "max_length", 1, 4096);
  limits->Between(model, path, "layers", 1, 64);
  limits->AtLeast(model, path, "heads", 1);
  limits->AtLeast(model, path, "ffn_dim", 1);
  limits->BelowOne(model, path, "dropout");
  limits->Positive(model, path, "norm_epsilon");
  limits->Positive(model, path, "init_stddev");
  limits->Between(model, path, "num_negatives", 1, 100000);
  if (job.tables_size() != 1) return;
  CheckHeads({.path = path,
              .heads = model.heads(),
              .default_heads = kDefaultHeads,
              .dim_path = "tables[0].dim",
              .dim = TableDimOf(job.tables(0))},
             limits);
  CheckCut(job.parallel().tp(),
           {.path = path,
            .heads = model.heads() > 0 ? model.heads() : kDefaultHeads,
            .ffn_dim = model.has_ffn_dim() ? model.ffn_dim() : 4 * TableDimOf(job.tables(0))},
           limits);
}

int SequenceRecLayers(const SequenceRec& model) {
  return model.has_layers() ? model.layers() : kDefaultLayers;
}

void ResolveSequenceRec(Job* job) {
  SequenceRec& model = *job->mutable_model()->mutable_sequence_rec();
  if (!model.has_max_length()) model.set_max_length(50);
  if (!model.has_layers()) model.set_layers(kDefaultLayers);
  if (!model.has_heads()) model.set_heads(kDefaultHeads);
  if (!model.has_ffn_dim()) model.set_ffn_dim(4 * TableDimOf(job->tables(0)));
  if (model.activation() == ACTIVATION_UNSPECIFIED) model.set_activation(GELU);
  if (!model.has_norm_epsilon()) model.set_norm_epsilon(1e-12);
  if (!model.has_init_stddev()) model.set_init_stddev(0.02);
  if (model.loss() == SEQUENCE_LOSS_UNSPECIFIED) model.set_loss(BCE);
  if (!model.has_num_negatives()) model.set_num_negatives(256);
}

models::SequenceRecOptions SequenceRecOptionsOf(const Job& job, const parallel::TensorGroup* tp) {
  const SequenceRec& model = job.model().sequence_rec();
  models::SequenceRecOptions options;
  options.dim = job.tables(0).dim();
  options.max_length = model.max_length();
  options.layers = model.layers();
  options.heads = model.heads();
  options.ffn_dim = model.ffn_dim();
  options.activation = ActivationOf(model.activation());
  options.dropout = model.dropout();
  options.norm_epsilon = model.norm_epsilon();
  options.init_stddev = model.init_stddev();
  options.tp = tp;
  options.loss = model.loss() == FULL_SOFTMAX      ? models::SequenceLossKind::FULL_SOFTMAX
                 : model.loss() == SAMPLED_SOFTMAX ? models::SequenceLossKind::SAMPLED_SOFTMAX
                                                   : models::SequenceLossKind::BCE;
  return options;
}

}  // namespace tandem::tasks
