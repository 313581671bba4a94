#include "trainer/tasks/ranking/sequence_data.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "kernels/base/count_text.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "trainer/data/catalogue.h"
#include "trainer/data/floors.h"
#include "trainer/data/neighbour_floors.h"
#include "trainer/data/ranking.h"
#include "trainer/data/training_counts.h"
#include "trainer/job/model_rules.h"
#include "trainer/tasks/ranking/ranking_metrics.h"

namespace tandem::tasks {

namespace {

// Counting transitions of a larger log would take over ten seconds.
constexpr size_t kMaxFloorInteractions = 20'000'000;
// These baselines score every item for every user.
constexpr size_t kMaxNeighbourInteractions = 1'000'000;
constexpr uint64_t kMaxNeighbourItems = 20'000;

std::string ReachablePath(const std::string& log_path) { return log_path + ".reachable"; }

// The figures of a baseline on the test split.
ReferenceColumn FloorColumn(std::string name, const data::FloorRanks& ranks,
                            const std::vector<bool>& cold) {
  ReferenceColumn column{std::move(name), {}};
  std::vector<double> full;
  for (const data::TiedRank& rank : ranks.full) full.push_back(rank.Half());
  AddRankingMetrics("", data::Summarise(full), &column.metrics);
  AddColdAndWarm(full, cold, &column.metrics);
  // Sampled floors tie often; the published figures order ties randomly.
  if (!ranks.sampled.empty())
    AddRankingMetrics("sampled_", data::SummariseExpected(ranks.sampled), &column.metrics);
  return column;
}

// The bytes that an evaluation holds per id: its row as pulled, its row in the scoring table, and
// its number.
double BytesOfItem(const Job& job) { return 8.0 * job.tables(0).dim() + 8; }

// Checks that the catalogue is worth its memory and can be ranked.
absl::Status CheckCatalogue(const Job& job, const data::Interactions& interactions) {
  const double item_bytes = BytesOfItem(job);
  if (job.data().num_items() == 0)
    RETURN_IF_ERROR(data::CheckDenseIds(job.data().path(), interactions, item_bytes));
  if (interactions.num_items < 2) {
    return absl::DataLossError(absl::StrCat(
        Printable(job.data().path()), ": the catalogue has one item only; ranking needs two"));
  }
  return data::CheckCatalogueFits(interactions.num_items, item_bytes);
}

// Checks that there is a user to train on, or to evaluate.
absl::Status CheckUsers(const std::string& path, const data::UserCounts& counts, DataUse use) {
  const bool train = use == DataUse::TRAIN;
  if ((train ? counts.trained : counts.evaluated) > 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      Printable(path), ": nobody to ", train ? "train on: training" : "evaluate: an evaluation",
      " takes users with at least ", train ? data::kMinTrainItems : data::kMinEvaluationItems,
      " items, and the longest of ", counts.all, " users has ", counts.most_items,
      "; give a log with longer histories"));
}

// The job rules only know the batch size that the job asks for. A log of few users makes all
// batches smaller.
absl::Status CheckParts(const Job& job, const data::UserCounts& counts) {
  const int64_t batch = std::min<int64_t>(job.train().batch_size(), counts.trained);
  const int64_t smallest = std::max<int64_t>(1, batch / std::max(1, job.parallel().dp()));
  if (job.parallel().microbatches() <= smallest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(job.parallel().pp() > 1 ? "parallel.microbatches" : "train.accumulate", " is ",
                   job.parallel().microbatches(), "; allowed: 1 .. ", smallest,
                   ", the samples that a replica has of the largest batch: the log has ",
                   counts.trained, " users to train on"));
}

// Null if the files hold numbers.
absl::StatusOr<std::unique_ptr<data::MappedIds>> IdsOf(const Data& source,
                                                       const std::string& item_ids) {
  std::unique_ptr<data::MappedIds> ids;
  if (source.ids() != Data::MAP) return ids;
  ids = std::make_unique<data::MappedIds>();
  ASSIGN_OR_RETURN(ids->items, data::IdMap::FromLines(item_ids));
  ids->closed = !item_ids.empty();
  return ids;
}

// The data of a checkpoint alone, without a log.
absl::StatusOr<SequenceFiles> ReadSaved(const Job& job, const SavedItems& saved) {
  SequenceFiles files;
  ASSIGN_OR_RETURN(files.ids, IdsOf(job.data(), saved.ids));
  files.interactions.num_items =
      files.ids != nullptr ? files.ids->items.size() : job.data().num_items();
  files.training_counts.resize(files.interactions.num_items + 1, 0);
  if (saved.catalogue.empty()) return files;
  ASSIGN_OR_RETURN(data::SavedCatalogue catalogue,
                   data::ParseCatalogue(saved.catalogue, files.interactions.num_items));
  files.training_counts = std::move(catalogue.training_counts);
  files.titles = std::make_unique<data::Titles>();
  files.titles->of_item = std::move(catalogue.titles);
  return files;
}

}  // namespace

void SequenceData::Check(const Job& job, Limits* limits) {
  if (job.data().format() != TEXT) return;
  limits->Refuse("data.format", "TEXT",
                 absl::StrCat("SEQUENCES, PAIRS with ", job::KindOf(job.model())));
}

void SequenceData::Resolve(Job* job) {
  Data& data = *job->mutable_data();
  if (data.format() == DATA_FORMAT_UNSPECIFIED) data.set_format(SEQUENCES);
}

absl::StatusOr<SequenceFiles> SequenceData::Read(const Job& job, DataUse use,
                                                 const SavedItems& saved) {
  if (use == DataUse::RECOMMEND) return ReadSaved(job, saved);
  const Data& source = job.data();
  ASSIGN_OR_RETURN(std::unique_ptr<data::MappedIds> ids, IdsOf(source, saved.ids));
  const auto read = source.format() == PAIRS ? data::ReadPairs : data::ReadSequences;
  ASSIGN_OR_RETURN(data::Interactions interactions,
                   read(source.path(), source.num_items(), ids.get()));
  const data::UserCounts counts = data::CountUsers(interactions);
  RETURN_IF_ERROR(CheckUsers(source.path(), counts, use));
  if (use == DataUse::TRAIN) RETURN_IF_ERROR(CheckParts(job, counts));
  std::unique_ptr<data::Negatives> negatives;
  if (!source.negatives_path().empty()) {
    ASSIGN_OR_RETURN(data::Negatives lists,
                     data::ReadNegatives(source.negatives_path(), interactions, ids.get()));
    negatives = std::make_unique<data::Negatives>(std::move(lists));
    if (ids != nullptr) interactions.num_items = ids->items.size();
  }
  RETURN_IF_ERROR(CheckCatalogue(job, interactions));
  std::unique_ptr<data::Titles> titles;
  if (!source.items_path().empty()) {
    ASSIGN_OR_RETURN(data::Titles read_titles,
                     data::ReadTitles(source.items_path(), interactions, ids.get()));
    titles = std::make_unique<data::Titles>(std::move(read_titles));
  }
  std::vector<int64_t> training_counts = data::TrainingCounts(interactions);
  if (!saved.catalogue.empty()) {
    ASSIGN_OR_RETURN(data::SavedCatalogue catalogue,
                     data::ParseCatalogue(saved.catalogue, interactions.num_items));
    training_counts = std::move(catalogue.training_counts);
  }
  return SequenceFiles{.interactions = std::move(interactions),
                       .negatives = std::move(negatives),
                       .path = source.path(),
                       .negatives_path = source.negatives_path(),
                       .ids = std::move(ids),
                       .titles = std::move(titles),
                       .items_path = source.items_path(),
                       .training_counts = std::move(training_counts),
                       .cold_below = job.eval().cold_below()};
}

uint64_t SequenceData::FindItem(const std::string& id) const {
  if (files_.ids != nullptr) return files_.ids->items.Find(id);
  uint64_t item = 0;
  const auto [stop, error] = std::from_chars(id.data(), id.data() + id.size(), item);
  const bool whole = error == std::errc() && stop == id.data() + id.size();
  return whole && item <= num_items() ? item : 0;
}

std::string SequenceData::Description() const {
  const data::UserCounts counts = data::CountUsers(files_.interactions);
  const auto text = [](auto count) { return CountText(static_cast<double>(count)); };
  std::string description =
      absl::StrCat(text(counts.all), " users, ", text(files_.interactions.num_items), " items, ",
                   text(files_.interactions.items.values.size()), " interactions");
  if (files_.titles != nullptr && files_.titles->num_missing > 0) {
    absl::StrAppend(&description, ", ", text(files_.titles->num_missing),
                    " items that have no title");
  }
  if (files_.titles != nullptr && files_.titles->num_unknown > 0)
    absl::StrAppend(&description, ", ", text(files_.titles->num_unknown), " titles of other items");
  if (counts.trained == counts.all) return description;
  absl::StrAppend(&description, " (left out: ", text(counts.all - counts.trained),
                  " users of training, with fewer than ", data::kMinTrainItems, " items");
  if (counts.evaluated < counts.all) {
    absl::StrAppend(&description, ", ", text(counts.all - counts.evaluated),
                    " of evaluation, with fewer than ", data::kMinEvaluationItems);
  }
  return description + ")";
}

std::vector<SavedFile> SequenceData::Files() const {
  std::vector<SavedFile> files{FileOf(files_.path, files_.interactions.source)};
  if (files_.negatives != nullptr)
    files.push_back(FileOf(files_.negatives_path, files_.negatives->source));
  if (files_.titles != nullptr) files.push_back(FileOf(files_.items_path, files_.titles->source));
  return files;
}

std::vector<ReferenceColumn> SequenceData::References() const {
  std::vector<ReferenceColumn> columns;
  const data::Interactions& log = files_.interactions;
  const std::vector<bool> cold =
      ColdTargets(log, data::Split::TEST, files_.training_counts, files_.cold_below);
  const size_t size = log.items.values.size();
  const auto add = [&](const char* name, const data::FloorRanks& ranks) {
    columns.push_back(FloorColumn(name, ranks, cold));
  };
  if (size <= kMaxFloorInteractions) {
    add("popularity", data::PopularityRanks(log, negatives()));
    add("transitions", data::TransitionRanks(log, negatives()));
  }
  if (size <= kMaxNeighbourInteractions && log.num_items <= kMaxNeighbourItems) {
    add("co-occurrence", data::CooccurrenceRanks(log, negatives()));
    if (files_.titles != nullptr) add("titles", data::TitleRanks(log, *files_.titles, negatives()));
  }
  ReferenceColumn reachable{"best reachable", {}};
  std::ifstream file(ReachablePath(files_.path));
  std::string name;
  double value;
  while (file >> name >> value) reachable.metrics[name] = value;
  if (!reachable.metrics.empty()) columns.push_back(std::move(reachable));
  return columns;
}

absl::Status WriteReachable(const std::string& path, const data::RankingMetrics& reachable) {
  std::ofstream file(ReachablePath(path));
  file << "hr@10 " << reachable.hr10 << "\nndcg@10 " << reachable.ndcg10 << "\n";
  file.close();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot write ", ReachablePath(path)));
  return absl::OkStatus();
}

}  // namespace tandem::tasks
