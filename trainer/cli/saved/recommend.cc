// `tandem recommend`: the items that a saved recommender would show next. Needs only the
// checkpoint, which holds the items' ids and titles too.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/terminal.h"
#include "kernels/base/utf8.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/saved/saved_recommender.h"
#include "trainer/data/ranking.h"
#include "trainer/data/text_file.h"
#include "trainer/report/recommendation.h"
#include "trainer/report/text_table.h"

namespace tandem::cli {

namespace {

// The items of one user, as asked for.
struct History {
  std::string user;  // empty for --history
  std::vector<uint64_t> items;
  std::vector<std::string> unknown;  // ids that the model does not know, left out
};

void AddItem(const tasks::SequenceData& data, const std::string& id, History* history) {
  const uint64_t item = data.FindItem(id);
  if (item != 0)
    history->items.push_back(item);
  else
    history->unknown.push_back(id);
}

absl::StatusOr<std::vector<History>> ReadUsers(const std::string& path,
                                               const tasks::SequenceData& data) {
  ASSIGN_OR_RETURN(const std::string content, data::ReadFile(path));
  data::LineReader reader(path, content);
  std::vector<History> histories;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (!more) break;
    History& history = histories.emplace_back();
    history.user = std::string(reader.fields().front().text);
    for (size_t i = 1; i < reader.fields().size(); ++i)
      AddItem(data, std::string(reader.fields()[i].text), &history);
    if (history.items.empty()) {
      return reader.Error(
          absl::StrCat("user ", Printable(history.user), " has no item that the model knows"));
    }
  }
  return histories;
}

absl::StatusOr<std::vector<History>> ReadHistories(const RecommendOptions& options,
                                                   const tasks::SequenceData& data) {
  if (!options.users.empty()) return ReadUsers(options.users, data);
  History history;
  for (const std::string& id :
       std::vector<std::string>(absl::StrSplit(options.history, ',', absl::SkipEmpty())))
    AddItem(data, id, &history);
  if (history.items.empty()) {
    return absl::DataLossError(absl::StrCat("--history ", Printable(options.history),
                                            " has no item that the model knows"));
  }
  return std::vector<History>{history};
}

// Tells about ids that were left out.
void PrintUnknown(const std::vector<History>& histories) {
  for (const History& history : histories) {
    if (history.unknown.empty()) continue;
    std::fprintf(stderr, "%s%s the model does not know, left out: %s\n",
                 history.user.empty() ? "" : (Printable(history.user) + ": ").c_str(),
                 history.unknown.size() == 1 ? "an item that" : "items that",
                 Printable(absl::StrJoin(history.unknown, ", ")).c_str());
  }
}

report::Recommendation RecommendationOf(const History& history, const std::vector<uint64_t>& top,
                                        absl::Span<const float> scores,
                                        const tasks::SequenceData& data) {
  report::Recommendation found{.user = history.user,
                               .items = {},
                               .has_titles = data.has_titles(),
                               .unknown = history.unknown};
  for (const uint64_t item : top)
    found.items.push_back({scores[item], data.ItemId(item), data.ItemTitle(item)});
  return found;
}

void PrintList(const report::Recommendation& list) {
  if (!list.user.empty()) std::printf("user %s\n", Printable(list.user).c_str());
  report::TextTable table({{"rank"},
                           {"score"},
                           {"id", report::TextTable::LEFT},
                           {list.has_titles ? "title" : "", report::TextTable::LEFT}});
  for (size_t i = 0; i < list.items.size(); ++i) {
    table.Add({absl::StrCat(i + 1), absl::StrFormat("%.4f", list.items[i].score), list.items[i].id,
               list.items[i].title});
  }
  std::fputs(table.TakeLines(TerminalColumns()).c_str(), stdout);
}

absl::Status PrintRecommendations(const std::vector<History>& histories,
                                  const RecommendOptions& options, SavedRecommender& model) {
  const tasks::EvaluationArgs args = model.args();
  RETURN_IF_ERROR(model.scorer().Begin(args));
  const auto block_size = static_cast<size_t>(tasks::UsersOfBlock(model.data().num_items()));
  for (size_t begin = 0; begin < histories.size(); begin += block_size) {
    tasks::Histories block;
    for (size_t i = begin; i < std::min(begin + block_size, histories.size()); ++i)
      block.push_back(histories[i].items);
    Tensor scores;
    RETURN_IF_ERROR(
        model.scorer().Score({block}, args, [&](size_t, const Tensor& found) { scores = found; }));
    RETURN_IF_ERROR(args.stream->status());
    for (size_t i = 0; i < block.size(); ++i) {
      const auto columns = static_cast<size_t>(scores.dim(1));
      const absl::Span<const float> row(scores.data<float>() + i * columns, columns);
      const std::vector<uint64_t> top = data::TopIds(row, /*target=*/0, block[i], options.top);
      const report::Recommendation list =
          RecommendationOf(histories[begin + i], top, row, model.data());
      if (options.json)
        std::printf("%s\n", report::JsonOf(list).c_str());
      else
        PrintList(list);
    }
  }
  return absl::OkStatus();
}

// A title per line, of items that the model need not know. Blank lines are left out.
absl::StatusOr<std::vector<std::string>> ReadTitleLines(const std::string& path) {
  std::vector<std::string> titles;
  if (path.empty()) return titles;
  ASSIGN_OR_RETURN(const std::string content, data::ReadFile(path));
  data::LineReader reader(path, content);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (!more) break;
    if (!IsUtf8(reader.line())) return reader.Error("the title is not UTF-8");
    std::string& title = titles.emplace_back(reader.line());
    std::replace(title.begin(), title.end(), '\t', ' ');
  }
  if (titles.empty())
    return absl::DataLossError(absl::StrCat(Printable(path), ": the file has only blank lines"));
  return titles;
}

absl::Status Run(const RecommendOptions& options, const tasks::Kinds& kinds) {
  ASSIGN_OR_RETURN(const std::vector<std::string> titles, ReadTitleLines(options.history_titles));
  ASSIGN_OR_RETURN(const auto model, SavedRecommender::Load(options.checkpoint, titles, kinds));
  std::vector<History> histories;
  if (titles.empty()) {
    ASSIGN_OR_RETURN(histories, ReadHistories(options, model->data()));
  } else {
    History& history = histories.emplace_back();
    for (size_t i = 0; i < titles.size(); ++i)
      history.items.push_back(model->data().num_items() - titles.size() + 1 + i);
  }
  PrintUnknown(histories);
  return PrintRecommendations(histories, options, *model);
}

}  // namespace

int Recommend(const RecommendOptions& options, const tasks::Kinds& kinds) {
  const absl::Status status = Run(options, kinds);
  return status.ok() ? 0 : ReportError(status);
}

}  // namespace tandem::cli
