#include "trainer/tasks/ranking/ranking_evaluation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "kernels/gemm.h"
#include "trainer/data/ranking.h"
#include "trainer/job/model_rules.h"
#include "trainer/tasks/ranking/ranking_metrics.h"

namespace tandem::tasks {

namespace {

constexpr int kTopItems = 20;  // best items in the dump of an example
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

Tensor ScoresOf(Context& context, const Tensor& users, const Tensor& items) {
  const Tensor scores = context.Empty(Shape{users.dim(0), items.dim(0)}, DType::F32);
  kernels::Gemm({.a = users.view(), .b = items.view(), .c = scores.view(), .transpose_b = true},
                context.stream());
  return scores.ToHost(context.stream());
}

int64_t UsersOfBlock(uint64_t num_items) {
  constexpr int64_t kUsers = 256, kScores = int64_t{1} << 28;
  return std::clamp<int64_t>(kScores / std::max<int64_t>(1, static_cast<int64_t>(num_items)), 1,
                             kUsers);
}

void RankingEvaluation::Check(const Job& job, Limits* limits) {
  if (job.train().select_by() == VALID_LOSS) {
    limits->Refuse("train.select_by", "VALID_LOSS",
                   absl::StrCat("VALID_MRR, VALID_SAMPLED_MRR with ", job::KindOf(job.model())));
  }
  if (job.train().select_by() == VALID_SAMPLED_MRR && job.data().negatives_path().empty()) {
    limits->Fail(
        "train.select_by",
        "train.select_by is VALID_SAMPLED_MRR without data.negatives_path; allowed: VALID_MRR");
  }
}

void RankingEvaluation::Resolve(Job* job) {
  if (job->placement() == Job::PLACEMENT_UNSPECIFIED) job->set_placement(Job::PS);
  Train& train = *job->mutable_train();
  if (train.select_by() == SELECTION_UNSPECIFIED)
    train.set_select_by(job->data().negatives_path().empty() ? VALID_MRR : VALID_SAMPLED_MRR);
}

std::string RankingEvaluation::LineOf(data::Split split, int64_t user, double rank,
                                      absl::Span<const float> scores) const {
  const uint64_t target = sampler_.EvalTarget(split, user);
  RankedExample example{
      data_.UserId(data_.interactions().users[user]), data_.ItemId(target), rank, {}};
  for (const uint64_t id : data::TopIds(scores, target, sampler_.History(split, user), kTopItems))
    example.top.push_back(data_.ItemId(id));
  return DumpLine(example);
}

Histories RankingEvaluation::HistoriesOf(const data::BatchShare& block, data::Split split) const {
  Histories histories;
  for (int64_t number = block.begin; number < block.end; ++number)
    histories.push_back(sampler_.History(split, sampler_.EvalUser(number)));
  return histories;
}

void RankingEvaluation::RankUsers(const data::BatchShare& block, const Histories& histories,
                                  const Tensor& scores, const EvaluationArgs& args,
                                  Ranks& ranks) const {
  const int64_t num_scores = scores.dim(1);
  std::vector<std::string> lines(args.dump ? histories.size() : 0);
  args.stream->pool().ParallelFor(scores.dim(0), [&](int64_t s) {
    const int64_t user = sampler_.EvalUser(block.begin + s);
    const uint64_t target = sampler_.EvalTarget(ranks.split, user);
    const absl::Span<const float> row(scores.data<float>() + s * num_scores, num_scores);
    const bool finite = AreFinite(row);
    const double rank = finite ? data::RankOf(row, target, histories[s]) : std::nan("");
    ranks.full[block.begin + s] = rank;
    if (args.dump) lines[s] = LineOf(ranks.split, user, rank, row);
    if (ranks.sampled.empty()) return;
    std::vector<float> others;
    for (const uint64_t id : data_.negatives()->row(user)) others.push_back(row[id]);
    ranks.sampled[block.begin + s] = finite ? data::RankAmong(row[target], others) : std::nan("");
  });
  for (const std::string& line : lines) args.dump(line);
}

absl::StatusOr<Evaluation> RankingEvaluation::Evaluate(EvaluationSplit split,
                                                       const EvaluationArgs& args,
                                                       ItemScorer& scorer) const {
  Ranks ranks;
  ranks.split = split == EvaluationSplit::VALID ? data::Split::VALID : data::Split::TEST;
  RETURN_IF_ERROR(scorer.Begin(args));
  ranks.full.assign(static_cast<size_t>(sampler_.num_eval_users()), 0);
  ranks.sampled.assign(data_.negatives() != nullptr ? ranks.full.size() : 0, 0);
  ASSIGN_OR_RETURN(const bool whole,
                   ForEachBlock(sampler_.num_eval_users(), UsersOfBlock(data_.num_items()), ranks_,
                                args, [&](absl::Span<const data::BatchShare> blocks) {
                                  std::vector<Histories> histories;
                                  for (const data::BatchShare& block : blocks)
                                    histories.push_back(HistoriesOf(block, ranks.split));
                                  return scorer.Score(
                                      histories, args, [&](size_t b, const Tensor& scores) {
                                        RankUsers(blocks[b], histories[b], scores, args, ranks);
                                      });
                                }));
  if (!whole) return Evaluation();
  for (std::vector<double>* figures : {&ranks.full, &ranks.sampled})
    RETURN_IF_ERROR(SumShares(ranks_, args, "ranks", figures));
  return Summary(ranks);
}

Evaluation RankingEvaluation::Summary(const Ranks& ranks) const {
  Evaluation evaluation;
  AddRankingMetrics("", data::Summarise(ranks.full), &evaluation.metrics);
  AddColdAndWarm(
      ranks.full,
      ColdTargets(data_.interactions(), ranks.split, data_.training_counts(), data_.cold_below()),
      &evaluation.metrics);
  if (!ranks.sampled.empty())
    AddRankingMetrics("sampled_", data::Summarise(ranks.sampled), &evaluation.metrics);
  const bool by_sampled = !ranks.sampled.empty() && job_.train().select_by() == VALID_SAMPLED_MRR;
  evaluation.decides = by_sampled ? "sampled_mrr" : "mrr";
  evaluation.selection = evaluation.metrics[evaluation.decides];
  return evaluation;
}

}  // namespace tandem::tasks
