#include "trainer/data/interactions.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "trainer/data/text_file.h"

namespace tandem::data {
namespace {

constexpr std::string_view kSequenceFormat = "user item item ...";
constexpr std::string_view kPairFormat = "user item";

// Turns the fields of a file into numbers.
class IdReader {
 public:
  // `mapped` is null if the files hold numbers. Numbers are at most `catalogue_limit`, unless that
  // is 0.
  IdReader(uint64_t catalogue_limit, MappedIds* mapped)
      : catalogue_limit_(catalogue_limit), mapped_(mapped) {}

  absl::StatusOr<uint64_t> User(const LineReader& reader, const Field& field,
                                std::string_view format) const {
    if (mapped_ == nullptr) return reader.ParseId(field, "user", format);
    if (!IsUtf8(field.text)) return reader.Unexpected(format, field);
    return mapped_->users.Add(field.text);
  }

  absl::StatusOr<uint64_t> Item(const LineReader& reader, const Field& field,
                                std::string_view format) const {
    return mapped_ == nullptr ? Numbered(reader, field, format) : Mapped(reader, field, format);
  }

 private:
  absl::StatusOr<uint64_t> Numbered(const LineReader& reader, const Field& field,
                                    std::string_view format) const {
    ASSIGN_OR_RETURN(const uint64_t item, reader.ParseId(field, "item", format));
    if (item == 0) {
      return reader.Error(
          absl::StrCat("item id 0 is reserved for padding (column ", field.column, ")"));
    }
    if (catalogue_limit_ != 0 && item > catalogue_limit_) {
      return reader.Error(absl::StrCat("item id ", item, " is above the catalogue's largest id ",
                                       catalogue_limit_, " (column ", field.column, ")"));
    }
    return item;
  }

  absl::StatusOr<uint64_t> Mapped(const LineReader& reader, const Field& field,
                                  std::string_view format) const {
    if (!IsUtf8(field.text)) return reader.Unexpected(format, field);
    const uint64_t item =
        mapped_->closed ? mapped_->items.Find(field.text) : mapped_->items.Add(field.text);
    if (item != 0) return item;
    return reader.Error(absl::StrCat("item id ", Printable(field.text),
                                     " is not in the catalogue (column ", field.column, ")"));
  }

  const uint64_t catalogue_limit_;
  MappedIds* const mapped_;
};

struct SequenceRows {
  std::vector<uint64_t> users;
  Jagged items;
  FileDigest source;
};

// Checks a line whose fields are `user item item ...`.
using RowCheck = absl::FunctionRef<absl::Status(const LineReader& reader, uint64_t user,
                                                absl::Span<const uint64_t> items)>;

absl::Status NoCheck(const LineReader&, uint64_t, absl::Span<const uint64_t>) {
  return absl::OkStatus();
}

// Reads the lines of the SEQUENCES format, which fixed negatives share.
absl::StatusOr<SequenceRows> ReadRows(const std::string& path, const IdReader& ids,
                                      RowCheck check) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  LineReader reader(path, content);
  SequenceRows rows;
  rows.source = DigestOf(content);
  absl::flat_hash_map<uint64_t, int64_t> line_of_user;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (!more) break;
    const std::vector<Field>& fields = reader.fields();
    ASSIGN_OR_RETURN(const uint64_t user, ids.User(reader, fields[0], kSequenceFormat));
    if (fields.size() < 2) return reader.UnexpectedEnd(kSequenceFormat);
    const auto [first, is_new] = line_of_user.try_emplace(user, reader.line_number());
    if (!is_new)
      return reader.Error(
          absl::StrCat("user ", Printable(fields[0].text), " already has line ", first->second));
    for (size_t i = 1; i < fields.size(); ++i) {
      ASSIGN_OR_RETURN(const uint64_t item, ids.Item(reader, fields[i], kSequenceFormat));
      rows.items.values.push_back(item);
    }
    rows.items.offsets.push_back(static_cast<int64_t>(rows.items.values.size()));
    rows.users.push_back(user);
    RETURN_IF_ERROR(check(reader, user, rows.items.row(rows.items.size() - 1)));
  }
  if (rows.users.empty())
    return absl::DataLossError(absl::StrCat(Printable(path), ": the file has only blank lines"));
  return rows;
}

// The largest id of the catalogue.
uint64_t CatalogueOf(const Jagged& items, uint64_t catalogue_limit, const MappedIds* ids) {
  if (ids != nullptr) return ids->items.size();
  return catalogue_limit != 0 ? catalogue_limit
                              : *std::max_element(items.values.begin(), items.values.end());
}

struct Pair {
  int64_t user_index;
  uint64_t item;
};

// A stable counting sort: each user's items keep the order of their lines.
Jagged GroupByUser(absl::Span<const Pair> pairs, int64_t num_users) {
  Jagged grouped;
  grouped.offsets.assign(num_users + 1, 0);
  for (const Pair& pair : pairs) ++grouped.offsets[pair.user_index + 1];
  for (int64_t u = 0; u < num_users; ++u) grouped.offsets[u + 1] += grouped.offsets[u];
  std::vector<int64_t> next(grouped.offsets.begin(), grouped.offsets.end() - 1);
  grouped.values.resize(pairs.size());
  for (const Pair& pair : pairs) grouped.values[next[pair.user_index]++] = pair.item;
  return grouped;
}

// Refuses negatives that would count twice in a user's ranks, or against the user. `history` is
// empty for a user outside the log.
absl::Status CheckNegatives(const LineReader& reader, absl::Span<const uint64_t> negatives,
                            absl::Span<const uint64_t> history) {
  const std::string user = Printable(reader.fields()[0].text);
  absl::flat_hash_map<uint64_t, int64_t> column_of_item;
  for (size_t i = 0; i < negatives.size(); ++i) {
    const uint64_t item = negatives[i];
    const int64_t column = reader.fields()[i + 1].column;
    const std::string id = Printable(reader.fields()[i + 1].text);
    const auto [first, is_new] = column_of_item.try_emplace(item, column);
    if (!is_new)
      return reader.Error(absl::StrCat("item id ", id, " comes twice (columns ", first->second,
                                       " and ", column, ")"));
    if (history.size() < kMinEvaluationItems) continue;
    const bool tested = item == history.back();
    if (!tested && item != history[history.size() - 2]) continue;
    return reader.Error(absl::StrCat("item id ", id, " (column ", column, ") is what user ", user,
                                     " is ", tested ? "tested" : "validated",
                                     " on; negatives are other items"));
  }
  return absl::OkStatus();
}

}  // namespace

UserCounts CountUsers(const Interactions& interactions) {
  UserCounts counts;
  for (int64_t u = 0; u < interactions.items.size(); ++u) {
    const int64_t num_items = interactions.items.row_size(u);
    counts.evaluated += num_items >= static_cast<int64_t>(kMinEvaluationItems);
    counts.trained += num_items >= static_cast<int64_t>(kMinTrainItems);
    counts.most_items = std::max(counts.most_items, num_items);
  }
  counts.all = interactions.items.size();
  return counts;
}

absl::StatusOr<Interactions> ReadSequences(const std::string& path, uint64_t catalogue_limit,
                                           MappedIds* ids) {
  ASSIGN_OR_RETURN(SequenceRows rows, ReadRows(path, IdReader(catalogue_limit, ids), NoCheck));
  const uint64_t num_items = CatalogueOf(rows.items, catalogue_limit, ids);
  return Interactions{std::move(rows.users), std::move(rows.items), num_items, rows.source};
}

absl::StatusOr<Interactions> ReadPairs(const std::string& path, uint64_t catalogue_limit,
                                       MappedIds* ids) {
  const IdReader numbers(catalogue_limit, ids);
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  LineReader reader(path, content);
  Interactions result;
  result.source = DigestOf(content);
  absl::flat_hash_map<uint64_t, int64_t> index_of_user;
  std::vector<Pair> pairs;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (!more) break;
    const std::vector<Field>& fields = reader.fields();
    ASSIGN_OR_RETURN(const uint64_t user, numbers.User(reader, fields[0], kPairFormat));
    if (fields.size() < 2) return reader.UnexpectedEnd(kPairFormat);
    ASSIGN_OR_RETURN(const uint64_t item, numbers.Item(reader, fields[1], kPairFormat));
    if (fields.size() > 2) return reader.Unexpected(kPairFormat, fields[2]);
    const auto [place, is_new] =
        index_of_user.try_emplace(user, static_cast<int64_t>(result.users.size()));
    if (is_new) result.users.push_back(user);
    pairs.push_back({place->second, item});
  }
  if (pairs.empty())
    return absl::DataLossError(absl::StrCat(Printable(path), ": the file has only blank lines"));
  result.items = GroupByUser(pairs, static_cast<int64_t>(result.users.size()));
  result.num_items = CatalogueOf(result.items, catalogue_limit, ids);
  return result;
}

absl::StatusOr<Negatives> ReadNegatives(const std::string& path, const Interactions& interactions,
                                        MappedIds* ids) {
  absl::flat_hash_map<uint64_t, int64_t> index_of_user;
  for (size_t i = 0; i < interactions.users.size(); ++i)
    index_of_user[interactions.users[i]] = static_cast<int64_t>(i);
  const auto check = [&](const LineReader& reader, uint64_t user,
                         absl::Span<const uint64_t> items) {
    const auto index = index_of_user.find(user);
    const bool known = index != index_of_user.end();
    return CheckNegatives(
        reader, items,
        known ? interactions.items.row(index->second) : absl::Span<const uint64_t>());
  };
  ASSIGN_OR_RETURN(const SequenceRows rows,
                   ReadRows(path, IdReader(interactions.num_items, ids), check));
  absl::flat_hash_map<uint64_t, int64_t> row_of_user;
  for (size_t i = 0; i < rows.users.size(); ++i)
    row_of_user[rows.users[i]] = static_cast<int64_t>(i);
  Negatives negatives;
  negatives.source = rows.source;
  for (const uint64_t user : interactions.users) {
    const auto row = row_of_user.find(user);
    if (row == row_of_user.end()) {
      const std::string id = ids != nullptr ? ids->users.IdOf(user) : absl::StrCat(user);
      return absl::DataLossError(absl::StrCat(Printable(path), ": no line for user ", Printable(id),
                                              " of the interaction log"));
    }
    negatives.lists.Append(rows.items.row(row->second));
  }
  return negatives;
}

}  // namespace tandem::data
