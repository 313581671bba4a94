#include "trainer/comm/device/failure_board.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/split_plan.h"

namespace tandem::comm {

namespace {

// For a value that is there or not: no rank waits for it.
constexpr absl::Duration kGlance = absl::Milliseconds(20);

template <class T>
void Append(const T& value, std::string& text) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
bool Take(T& value, const char*& at, const char* end) {
  if (end - at < static_cast<std::ptrdiff_t>(sizeof(value))) return false;
  std::memcpy(&value, at, sizeof(value));
  at += sizeof(value);
  return true;
}

void AddRank(int rank, std::string& ranks) {
  absl::StrAppend(&ranks, ranks.empty() ? "rank " : ", rank ", rank);
}

}  // namespace

FailureBoard::FailureBoard(rpc::Store* store, std::string name, int rank, int size)
    : store_(store), name_(std::move(name)), rank_(rank), size_(size) {}

void FailureBoard::Begin(const Collective& collective) {
  absl::MutexLock lock(&mutex_);
  position_ = {true, collective.description, collective.send_counts, collective.recv_counts};
}

absl::Status FailureBoard::Watch() {
  const auto news = store_->Add(Key("news"), 0);
  // Without the store the job is lost, and the master's link reports that.
  if (!news.ok()) return absl::OkStatus();
  if (*news != seen_) {
    AnswerInquiries(*news);
    reason_due_ = true;
  }
  if (!reason_due_) return absl::OkStatus();
  // The counter tells a reason that nobody gave from a store that is slow to answer. While a reason
  // is due, the next call looks again.
  const auto reasons = store_->Add(Key("reasons"), 0);
  if (reasons.ok() && *reasons == 0) reason_due_ = false;
  if (!reasons.ok() || *reasons == 0) return absl::OkStatus();
  const auto reason = store_->Get(Key("reason"), absl::Now() + kGlance);
  if (!reason.ok()) return absl::OkStatus();
  reason_due_ = false;
  const char *at = reason->data(), *const end = at + reason->size();
  int32_t code = 0, rank = 0;
  if (!Take(code, at, end) || !Take(rank, at, end) || rank == rank_) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::StrCat("aborted by rank ", rank, ": ", std::string(at, end)));
}

void FailureBoard::AnswerInquiries(int64_t news) {
  std::string position;
  {
    absl::MutexLock lock(&mutex_);
    position = ToText(position_);
  }
  for (int64_t inquiry = seen_ + 1; inquiry <= news; ++inquiry)
    store_->Set(PositionKey(inquiry, rank_), position).IgnoreError();
  seen_ = news;
}

void FailureBoard::GiveUp(const absl::Status& reason) {
  const auto place = store_->Add(Key("reasons"), 1);
  if (!place.ok() || *place != 1) return;
  std::string text;
  Append(static_cast<int32_t>(reason.code()), text);
  Append(static_cast<int32_t>(rank_), text);
  text.append(std::string(reason.message()));
  store_->Set(Key("reason"), text).IgnoreError();
  store_->Add(Key("news"), 1).IgnoreError();
}

FailureBoard::Missing FailureBoard::Inquire(const Collective& mine, absl::Time deadline) {
  const int64_t inquiry = Ask();
  Missing missing;
  const Description& what = mine.description;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || !TakesPart(what, r)) continue;
    const std::optional<Position> its = Answer(inquiry, r, deadline);
    const bool here = its && its->begun && !IsPointToPoint(its->description.kind) &&
                      !IsPointToPoint(what.kind) && its->description.sequence >= what.sequence;
    if (!here) AddRank(r, missing.ranks);
    if (!here || its->description.sequence != what.sequence) continue;
    missing.mismatch.Update(CheckSame(rank_, what, r, its->description));
    if (what.kind != CollectiveKind::ALL_TO_ALL_V ||
        its->recv_counts.size() != static_cast<size_t>(size_))
      continue;
    missing.mismatch.Update(CheckPairCount(r, its->send_counts[rank_], rank_, mine.recv_counts[r]));
    missing.mismatch.Update(CheckPairCount(rank_, mine.send_counts[r], r, its->recv_counts[rank_]));
  }
  return missing;
}

std::string FailureBoard::InquireWhoIsGone(absl::Time deadline) {
  const int64_t inquiry = Ask();
  std::string gone;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !Answer(inquiry, r, deadline)) AddRank(r, gone);
  }
  return gone;
}

int64_t FailureBoard::Ask() { return store_->Add(Key("news"), 1).value_or(0); }

std::optional<FailureBoard::Position> FailureBoard::Answer(int64_t inquiry, int rank,
                                                           absl::Time deadline) {
  const auto text =
      store_->Get(PositionKey(inquiry, rank), std::max(deadline, absl::Now() + kGlance));
  return text.ok() ? FromText(*text) : std::nullopt;
}

std::string FailureBoard::Key(const char* what) const {
  return absl::StrCat(name_, "/failure/", what);
}

std::string FailureBoard::PositionKey(int64_t inquiry, int rank) const {
  return absl::StrCat(name_, "/failure/position", rank, "/", inquiry);
}

std::string FailureBoard::ToText(const Position& position) {
  std::string text;
  Append(position.begun, text);
  Append(position.description, text);
  for (const auto* counts : {&position.send_counts, &position.recv_counts}) {
    for (const int64_t count : *counts) Append(count, text);
  }
  return text;
}

std::optional<FailureBoard::Position> FailureBoard::FromText(const std::string& text) {
  Position position;
  const char *at = text.data(), *const end = at + text.size();
  if (!Take(position.begun, at, end) || !Take(position.description, at, end)) return std::nullopt;
  std::vector<int64_t>& sent = position.send_counts;
  for (int64_t count = 0; Take(count, at, end);) sent.push_back(count);
  // Has one count per rank, like send_counts.
  position.recv_counts.assign(sent.begin() + static_cast<std::ptrdiff_t>(sent.size() / 2),
                              sent.end());
  sent.resize(sent.size() / 2);
  return position;
}

}  // namespace tandem::comm
