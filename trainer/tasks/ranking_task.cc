#include "trainer/tasks/ranking_task.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "trainer/data/ranking.h"
#include "trainer/job/model_rules.h"
#include "trainer/tasks/embedding_table.h"
#include "trainer/tasks/evaluation_blocks.h"

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

struct RankingStep : StepInput {
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

// Has no branch, so that the compiler vectorises the loop.
bool AreFinite(absl::Span<const float> scores) {
  bool finite = true;
  for (const float score : scores) finite &= std::isfinite(score);
  return finite;
}

}  // namespace

void RankingTask::Check(const Job& job, Limits* limits) {
  const std::string kind = job::KindOf(job.model());
  if (job.train().select_by() == VALID_LOSS) {
    limits->Refuse("train.select_by", "VALID_LOSS",
                   absl::StrCat("VALID_MRR, VALID_SAMPLED_MRR with ", kind));
  }
  if (job.train().select_by() == VALID_SAMPLED_MRR && job.data().negatives_path().empty()) {
    limits->Fail(
        "train.select_by",
        "train.select_by is VALID_SAMPLED_MRR without data.negatives_path; allowed: VALID_MRR");
  }
  if (job.tables_size() != 1 || job.tables(0).name() != kItemTable) {
    const std::string found = job.tables_size() == 1
                                  ? absl::StrCat("one table, named \"", job.tables(0).name(), "\"")
                                  : absl::StrCat(job.tables_size(), " tables");
    limits->Fail("tables", absl::StrCat(kind, " with ", found,
                                        "; allowed: exactly one table, tables { name: \"item\" }"));
  }
}

void RankingTask::Resolve(Job* job) {
  if (job->placement() == Job::PLACEMENT_UNSPECIFIED) job->set_placement(Job::PS);
  Train& train = *job->mutable_train();
  if (train.select_by() == SELECTION_UNSPECIFIED)
    train.set_select_by(job->data().negatives_path().empty() ? VALID_MRR : VALID_SAMPLED_MRR);
}

RankingTask::RankingTask(const Job& job, const SequenceData* data,
                         const TaskEnvironment& environment, const Sampling& sampling)
    : job_(job),
      data_(data),
      sampling_(sampling),
      sampler_(&data->interactions(), {.seed = job.seed(),
                                       .batch_size = job.train().batch_size(),
                                       .max_length = sampling.max_length,
                                       .sample_negatives = sampling.own_negatives}),
      parameters_(environment.parameters),
      table_(environment.table),
      group_(environment.group) {}

void RankingTask::MakeItems() {
  if (table_ != nullptr) return;
  items_ = parameters_->Normal("items", Shape{num_items(), job_.tables(0).dim()},
                               job_.tables(0).init_stddev());
}

std::unique_ptr<StepInput> RankingTask::Prepare(int64_t step) const {
  const int64_t epoch = (step - 1) / steps_per_epoch(),
                batch_in_epoch = (step - 1) % steps_per_epoch();
  const int num_parts = job_.train().accumulate();
  std::vector<data::SequenceBatch> batches;
  std::vector<uint64_t> shared;
  if (sampling_.shared_negatives > 0)
    shared = sampler_.SharedNegatives(step, sampling_.shared_negatives);
  std::vector<absl::Span<const uint64_t>> lists{shared};  // followed by three lists per part
  for (int part = 0; part < num_parts; ++part) {
    batches.push_back(sampler_.TrainBatch(epoch, batch_in_epoch, group_->rank(), group_->size(),
                                          part, num_parts));
  }
  for (const data::SequenceBatch& batch : batches) {
    lists.insert(lists.end(), {batch.inputs, batch.targets, batch.negatives});
  }

  auto input = std::make_unique<RankingStep>();
  const bool reads_all = table_ == nullptr || sampling_.all_items;
  sparse::MergedIds merged;
  if (!reads_all) merged = sparse::MergeIds(lists);
  if (table_ != nullptr) input->ids = reads_all ? AllRowIds(num_items()) : std::move(merged.ids);
  const auto index = [&](size_t list) {
    return reads_all ? PlacesOf(lists[list]) : merged.places[list];
  };
  input->global_samples = batches[0].global_samples;
  input->global_targets = input->global_tokens = batches[0].global_targets;
  size_t list = 1;
  for (const data::SequenceBatch& batch : batches) {
    input->flops += Flops(batch);
    models::SequenceInput& part = input->parts.emplace_back();
    part.rows = PackedRowsOf(batch, sampling_.max_length);
    part.inputs = index(list);
    part.targets = index(list + 1);
    part.negatives = index(shared.empty() ? list + 2 : 0);
    list += 3;
  }
  return input;
}

Variable RankingTask::LossSum(Context& context, const StepInput& input, int part,
                              const Variable& rows) const {
  TANDEM_CHECK(table_ != nullptr || items_.defined())
      << "the constructor of a RankingTask ends with MakeItems()";
  return BatchLoss(context, table_ != nullptr ? rows : items_,
                   static_cast<const RankingStep&>(input).parts[part]);
}

absl::StatusOr<Tensor> RankingTask::AllItems(absl::Duration timeout) const {
  if (table_ == nullptr) return items_.value();
  return PullAllRows(*table_, num_items(), absl::Now() + timeout);
}

absl::Status RankingTask::FillScoring(const EvaluationArgs& args, Scoring& scoring) const {
  ASSIGN_OR_RETURN(const Tensor rows, AllItems(args.timeout));
  // Row i of the scoring table is item i. Row 0, padding, is zero and never ranked.
  scoring.rows =
      Tensor::Empty(Shape{rows.dim(0) + 1, rows.dim(1)}, DType::F32, args.stream->device());
  kernels::Fill(scoring.rows.Rows(0, 1).view(), 0, *args.stream);
  kernels::Copy(scoring.rows.Rows(1, scoring.rows.dim(0)).view(), rows.view(), *args.stream);
  Context context({.stream = args.stream, .seed = job_.seed(), .training = false});
  scoring.vectors = ItemVectors(context, Variable::Constant(scoring.rows));
  scoring.full.assign(static_cast<size_t>(sampler_.num_eval_users()), 0);
  scoring.sampled.assign(data_->negatives() != nullptr ? scoring.full.size() : 0, 0);
  return absl::OkStatus();
}

Tensor RankingTask::Scores(const data::SequenceBatch& batch, const Scoring& scoring,
                           Stream& stream) const {
  models::SequenceInput input;
  input.rows = PackedRowsOf(batch, sampling_.max_length);
  input.inputs = Tensor::Empty(Shape{batch.num_tokens()}, DType::I64);
  std::copy(batch.inputs.begin(), batch.inputs.end(), input.inputs.data<int64_t>());
  Context context({.stream = &stream, .seed = job_.seed(), .training = false});
  const Tensor users =
      UserVectors(context, Variable::Constant(scoring.rows), input.To(stream.device(), stream));
  const Tensor products =
      context.Empty(Shape{batch.num_samples(), scoring.vectors.dim(0)}, DType::F32);
  kernels::Gemm(
      {.a = users.view(), .b = scoring.vectors.view(), .c = products.view(), .transpose_b = true},
      stream);
  return products.ToHost(stream);
}

std::string RankingTask::LineOf(const Scoring& scoring, int64_t user, double rank,
                                absl::Span<const float> scores) const {
  const uint64_t target = sampler_.EvalTarget(scoring.split, user);
  RankedExample example{
      data_->UserId(data_->interactions().users[user]), data_->ItemId(target), rank, {}};
  for (const uint64_t id :
       data::TopIds(scores, target, sampler_.History(scoring.split, user), kTopItems))
    example.top.push_back(data_->ItemId(id));
  return DumpLine(example);
}

void RankingTask::RankUsers(const data::BatchShare& block, const EvaluationArgs& args,
                            Scoring& scoring) const {
  const int64_t begin = block.begin, num_scores = scoring.vectors.dim(0);
  const data::SequenceBatch batch = sampler_.EvalBatch(scoring.split, begin, block.end);
  const Tensor scores = Scores(batch, scoring, *args.stream);
  std::vector<std::string> lines(args.dump ? batch.num_samples() : 0);
  args.stream->pool().ParallelFor(batch.num_samples(), [&](int64_t s) {
    const int64_t user = batch.users[s];
    const uint64_t target = sampler_.EvalTarget(scoring.split, user);
    const absl::Span<const float> row(scores.data<float>() + s * num_scores, num_scores);
    const absl::Span<const uint64_t> seen = sampler_.History(scoring.split, user);
    const bool finite = AreFinite(row);
    const double rank = finite ? data::RankOf(row, target, seen) : std::nan("");
    scoring.full[begin + s] = rank;
    if (args.dump) lines[s] = LineOf(scoring, user, rank, row);
    if (scoring.sampled.empty()) return;
    std::vector<float> others;
    for (uint64_t id : data_->negatives()->row(user)) others.push_back(row[id]);
    scoring.sampled[begin + s] = finite ? data::RankAmong(row[target], others) : std::nan("");
  });
  for (const std::string& line : lines) args.dump(line);
}

absl::StatusOr<Evaluation> RankingTask::Evaluate(EvaluationSplit split,
                                                 const EvaluationArgs& args) {
  Scoring scoring;
  scoring.split = split == EvaluationSplit::VALID ? data::Split::VALID : data::Split::TEST;
  RETURN_IF_ERROR(FillScoring(args, scoring));
  ASSIGN_OR_RETURN(
      const bool whole,
      ForEachBlock(sampler_.num_eval_users(), UsersOfBlock(num_items()), *group_, args,
                   [&](const data::BatchShare& block) { RankUsers(block, args, scoring); }));
  if (!whole) return Evaluation();
  for (std::vector<double>* ranks : {&scoring.full, &scoring.sampled})
    RETURN_IF_ERROR(SumShares(*group_, args, "ranks", ranks));
  return Summary(scoring);
}

Evaluation RankingTask::Summary(const Scoring& scoring) const {
  Evaluation evaluation;
  auto report = [&evaluation](const std::string& prefix, const std::vector<double>& ranks) {
    const data::RankingMetrics m = data::Summarise(ranks);
    const std::map<std::string, double> named{
        {"hr@1", m.hr1},     {"hr@5", m.hr5},       {"hr@10", m.hr10},     {"hr@20", m.hr20},
        {"ndcg@5", m.ndcg5}, {"ndcg@10", m.ndcg10}, {"ndcg@20", m.ndcg20}, {"mrr", m.mrr}};
    for (const auto& [name, value] : named) evaluation.metrics[prefix + name] = value;
    return m.mrr;
  };
  evaluation.selection = report("", scoring.full);
  evaluation.decides = "mrr";
  if (!scoring.sampled.empty()) {
    const double mrr = report("sampled_", scoring.sampled);
    if (job_.train().select_by() == VALID_SAMPLED_MRR) {
      evaluation.selection = mrr;
      evaluation.decides = "sampled_mrr";
    }
  }
  return evaluation;
}

}  // namespace tandem::tasks
