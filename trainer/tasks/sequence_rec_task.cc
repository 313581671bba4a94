#include "trainer/tasks/sequence_rec_task.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "trainer/data/ranking.h"
#include "trainer/job/model_rules.h"
#include "trainer/models/model_flops.h"
#include "trainer/tasks/embedding_table.h"
#include "trainer/tasks/evaluation_blocks.h"
#include "trainer/tasks/sequence_rec_rules.h"

namespace tandem::tasks {

namespace {

constexpr char kItemTable[] = "item";
constexpr int kTopItems = 20;  // best items in the dump of an example
// The size of a block of users never changes their ranks. A huge catalogue gets smaller blocks, so
// that the scores fit 1 GB.
constexpr int64_t kEvaluationUsers = 256, kEvaluationScores = int64_t{1} << 28;

int64_t UsersOfBlock(int64_t num_items) {
  return std::clamp<int64_t>(kEvaluationScores / std::max<int64_t>(1, num_items), 1,
                             kEvaluationUsers);
}

struct SequenceStep : StepInput {
  std::vector<models::SequenceInput> parts;

  std::vector<Tensor*> Tensors() override {
    std::vector<Tensor*> all;
    for (models::SequenceInput& part : parts) {
      all.insert(all.end(), {&part.rows.offsets, &part.rows.positions, &part.rows.row_index,
                             &part.inputs, &part.targets});
      all.push_back(&part.negatives);
    }
    return all;
  }
};

nn::PackedRows PackedRowsOf(const data::SequenceBatch& batch, int64_t max_length) {
  return {.offsets = Tensor::FromVector(batch.offsets),
          .positions = Tensor::FromVector(batch.positions),
          .row_index = Tensor::FromVector(batch.row_index),
          .max_length = max_length};
}

// i64 [ids.size()]: places in the whole table. An item's number is the id of its row.
Tensor PlacesOf(absl::Span<const uint64_t> ids) {
  Tensor places = Tensor::Empty(Shape{static_cast<int64_t>(ids.size())}, DType::I64);
  std::transform(ids.begin(), ids.end(), places.data<int64_t>(), PlaceOf);
  return places;
}

// The ranking of an evaluated user; ids as in the file.
struct RankedExample {
  std::string user, target;
  double rank = 0;
  std::vector<std::string> top;  // the best unseen candidates, best first
};

std::string DumpLine(const RankedExample& example) {
  std::string rank = absl::StrFormat("%.1f", example.rank);  // ties count half
  if (rank.back() == '0') rank.resize(rank.size() - 2);
  return absl::StrCat(example.user, "\t", example.target, "\t", rank, "\t",
                      absl::StrJoin(example.top, ","));
}

// `candidates` is the number of rows in the head's product with all hidden states. 0: the loss
// works on pairs, which costs next to nothing.
double FlopsOf(const data::SequenceBatch& batch, const models::SequenceRecOptions& options,
               int64_t candidates) {
  double pairs = 0;
  for (size_t s = 0; s + 1 < batch.offsets.size(); ++s)
    pairs += models::CausalPairs(batch.offsets[s + 1] - batch.offsets[s]);
  const auto tokens = static_cast<double>(batch.num_tokens());
  return models::BlocksFlops({options.layers, options.dim, options.ffn_dim, tokens, pairs}) +
         models::ProductFlops(tokens, options.dim, candidates);
}

// Has no branch, so that the compiler vectorises the loop.
bool AreFinite(absl::Span<const float> scores) {
  bool finite = true;
  for (const float score : scores) finite &= std::isfinite(score);
  return finite;
}

bool UsesBce(const Job& job) { return job.model().sequence_rec().loss() == BCE; }

}  // namespace

void SequenceRecTask::Check(const Job& job, Limits* limits) {
  const std::string kind = job::KindOf(job.model());
  if (job.train().select_by() == VALID_LOSS) {
    limits->Refuse("train.select_by", "VALID_LOSS",
                   absl::StrCat("VALID_MRR, VALID_SAMPLED_MRR with ", kind));
  }
  if (job.tables_size() != 1 || job.tables(0).name() != kItemTable) {
    const std::string found = job.tables_size() == 1
                                  ? absl::StrCat("one table, named \"", job.tables(0).name(), "\"")
                                  : absl::StrCat(job.tables_size(), " tables");
    limits->Fail("tables", absl::StrCat(kind, " with ", found,
                                        "; allowed: exactly one table, tables { name: \"item\" }"));
  }
  CheckSequenceRec(job, limits);
}

void SequenceRecTask::Resolve(Job* job) {
  if (job->placement() == Job::PLACEMENT_UNSPECIFIED) job->set_placement(Job::PS);
  Train& train = *job->mutable_train();
  if (train.select_by() == SELECTION_UNSPECIFIED)
    train.set_select_by(job->data().negatives_path().empty() ? VALID_MRR : VALID_SAMPLED_MRR);
  ResolveSequenceRec(job);
}

void SequenceRecTask::ClearTrainingFields(Model* model) {
  SequenceRec& sequence_rec = *model->mutable_sequence_rec();
  sequence_rec.clear_dropout();
  sequence_rec.clear_init_stddev();
  sequence_rec.clear_loss();
  sequence_rec.clear_num_negatives();
}

SequenceRecTask::SequenceRecTask(const Job& job, const SequenceData* data,
                                 const TaskEnvironment& environment)
    : job_(job),
      data_(data),
      sampler_(&data->interactions(), {.seed = job.seed(),
                                       .batch_size = job.train().batch_size(),
                                       .max_length = job.model().sequence_rec().max_length(),
                                       .sample_negatives = UsesBce(job)}),
      model_(SequenceRecOptionsOf(job), *environment.parameters),
      table_(environment.table),
      group_(environment.group) {
  if (table_ == nullptr) {
    items_ = environment.parameters->Normal(
        "items", Shape{data->num_embeddings(), job.tables(0).dim()}, job.tables(0).init_stddev());
  }
}

std::unique_ptr<StepInput> SequenceRecTask::Prepare(int64_t step) const {
  const models::SequenceRecOptions options = SequenceRecOptionsOf(job_);
  const int64_t epoch = (step - 1) / steps_per_epoch(),
                batch_in_epoch = (step - 1) % steps_per_epoch();
  const int num_parts = job_.train().accumulate();
  std::vector<data::SequenceBatch> batches;
  std::vector<uint64_t> shared;
  if (options.loss == models::SequenceLossKind::SAMPLED_SOFTMAX) {
    shared = sampler_.SharedNegatives(step, job_.model().sequence_rec().num_negatives());
  }
  std::vector<absl::Span<const uint64_t>> lists{shared};  // followed by three lists per part
  for (int part = 0; part < num_parts; ++part) {
    batches.push_back(sampler_.TrainBatch(epoch, batch_in_epoch, group_->rank(), group_->size(),
                                          part, num_parts));
  }
  for (const data::SequenceBatch& batch : batches) {
    lists.insert(lists.end(), {batch.inputs, batch.targets, batch.negatives});
  }

  auto input = std::make_unique<SequenceStep>();
  const bool reads_all =
      table_ == nullptr || options.loss == models::SequenceLossKind::FULL_SOFTMAX;
  sparse::MergedIds merged;
  if (!reads_all) merged = sparse::MergeIds(lists);
  if (table_ != nullptr)
    input->ids = reads_all ? AllRowIds(data_->num_embeddings()) : std::move(merged.ids);
  const auto index = [&](size_t list) {
    return reads_all ? PlacesOf(lists[list]) : merged.places[list];
  };
  input->global_samples = batches[0].global_samples;
  input->global_targets = input->global_tokens = batches[0].global_targets;
  const int64_t candidates = options.loss == models::SequenceLossKind::FULL_SOFTMAX
                                 ? data_->num_embeddings()
                                 : static_cast<int64_t>(shared.size());
  size_t list = 1;
  for (const data::SequenceBatch& batch : batches) {
    input->flops += FlopsOf(batch, options, candidates);
    models::SequenceInput& part = input->parts.emplace_back();
    part.rows = PackedRowsOf(batch, options.max_length);
    part.inputs = index(list);
    part.targets = index(list + 1);
    part.negatives = index(shared.empty() ? list + 2 : 0);
    list += 3;
  }
  return input;
}

Variable SequenceRecTask::LossSum(Context& context, const StepInput& input, int part,
                                  const Variable& rows) const {
  return model_.LossSum(context, table_ != nullptr ? rows : items_,
                        static_cast<const SequenceStep&>(input).parts[part]);
}

absl::StatusOr<Tensor> SequenceRecTask::AllItems(absl::Duration timeout) const {
  if (table_ == nullptr) return items_.value();
  auto pulled = table_->Pull(/*step=*/0, /*create=*/false, AllRowIds(data_->num_embeddings()));
  return pulled->Await(absl::Now() + timeout);
}

void SequenceRecTask::RankUsers(data::Split split, const data::BatchShare& block,
                                const Tensor& items, const EvaluationArgs& args,
                                std::vector<double>& full, std::vector<double>& sampled) const {
  const int64_t begin = block.begin, num_scores = items.dim(0);
  const data::SequenceBatch batch = sampler_.EvalBatch(split, begin, block.end);
  models::SequenceInput input;
  input.rows = PackedRowsOf(batch, job_.model().sequence_rec().max_length());
  input.inputs = Tensor::Empty(Shape{batch.num_tokens()}, DType::I64);
  std::copy(batch.inputs.begin(), batch.inputs.end(), input.inputs.data<int64_t>());
  Context context({.stream = args.stream, .seed = job_.seed(), .training = false});
  const Tensor states = model_.LastStates(context, Variable::Constant(items),
                                          input.To(args.stream->device(), *args.stream));
  const Tensor products = context.Empty(Shape{batch.num_samples(), num_scores}, DType::F32);
  kernels::Gemm({.a = states.view(), .b = items.view(), .c = products.view(), .transpose_b = true},
                *args.stream);
  const Tensor scores = products.ToHost(*args.stream);
  std::vector<std::string> lines(args.dump ? batch.num_samples() : 0);
  args.stream->pool().ParallelFor(batch.num_samples(), [&](int64_t s) {
    const int64_t user = batch.users[s];
    const uint64_t target = sampler_.EvalTarget(split, user);
    const absl::Span<const float> row(scores.data<float>() + s * num_scores, num_scores);
    const absl::Span<const uint64_t> seen = sampler_.History(split, user);
    const bool finite = AreFinite(row);
    full[begin + s] = finite ? data::RankOf(row, target, seen) : std::nan("");
    if (args.dump) {
      RankedExample example{data_->UserId(data_->interactions().users[user]),
                            data_->ItemId(target),
                            full[begin + s],
                            {}};
      for (const uint64_t id : data::TopIds(row, target, seen, kTopItems))
        example.top.push_back(data_->ItemId(id));
      lines[s] = DumpLine(example);
    }
    if (sampled.empty()) return;
    std::vector<float> others;
    for (uint64_t id : data_->negatives()->row(user)) others.push_back(row[id]);
    sampled[begin + s] = finite ? data::RankAmong(row[target], others) : std::nan("");
  });
  for (const std::string& line : lines) args.dump(line);
}

absl::StatusOr<Evaluation> SequenceRecTask::Evaluate(EvaluationSplit split,
                                                     const EvaluationArgs& args) {
  ASSIGN_OR_RETURN(const Tensor rows, AllItems(args.timeout));
  // Row i of the scoring table is item i. Row 0, padding, is zero and never ranked.
  const Tensor items =
      Tensor::Empty(Shape{rows.dim(0) + 1, rows.dim(1)}, DType::F32, args.stream->device());
  kernels::Fill(items.Rows(0, 1).view(), 0, *args.stream);
  kernels::Copy(items.Rows(1, items.dim(0)).view(), rows.view(), *args.stream);

  const data::Split data_split =
      split == EvaluationSplit::VALID ? data::Split::VALID : data::Split::TEST;
  std::vector<double> full(sampler_.num_eval_users(), 0),
      sampled(data_->negatives() != nullptr ? full.size() : 0, 0);
  ASSIGN_OR_RETURN(const bool whole,
                   ForEachBlock(sampler_.num_eval_users(), UsersOfBlock(rows.dim(0)), *group_, args,
                                [&](const data::BatchShare& block) {
                                  RankUsers(data_split, block, items, args, full, sampled);
                                }));
  if (!whole) return Evaluation();
  RETURN_IF_ERROR(args.stream->status());  // do not sum what a failed device left
  // Every place has one non-zero addend, so the sum is exact.
  for (std::vector<double>* ranks : {&full, &sampled}) {
    const ArrayView view = DenseView(ranks->data(), Shape{static_cast<int64_t>(ranks->size())});
    RETURN_IF_ERROR(
        group_->Await(group_->AllReduce(view, {.stream = args.stream, .tag = StableHash("ranks")}),
                      absl::Now() + args.timeout));
  }

  Evaluation evaluation;
  auto report = [&evaluation](const std::string& prefix, const std::vector<double>& ranks) {
    const data::RankingMetrics m = data::Summarise(ranks);
    const std::map<std::string, double> named{
        {"hr@1", m.hr1},     {"hr@5", m.hr5},       {"hr@10", m.hr10},     {"hr@20", m.hr20},
        {"ndcg@5", m.ndcg5}, {"ndcg@10", m.ndcg10}, {"ndcg@20", m.ndcg20}, {"mrr", m.mrr}};
    for (const auto& [name, value] : named) evaluation.metrics[prefix + name] = value;
    return m.mrr;
  };
  evaluation.selection = report("", full);
  evaluation.decides = "mrr";
  if (!sampled.empty()) {
    const double mrr = report("sampled_", sampled);
    if (job_.train().select_by() == VALID_SAMPLED_MRR) {
      evaluation.selection = mrr;
      evaluation.decides = "sampled_mrr";
    }
  }
  return evaluation;
}

}  // namespace tandem::tasks
