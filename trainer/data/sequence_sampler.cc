#include "trainer/data/sequence_sampler.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/random.h"
#include "trainer/data/batch_share.h"

namespace tandem::data {
namespace {

constexpr uint64_t kMaxAttempts = 1000;
// Element numbers reserved per target; more than kMaxAttempts.
constexpr uint64_t kAttemptStride = 1024;

absl::Span<const uint64_t> Tail(absl::Span<const uint64_t> items, size_t length) {
  return items.subspan(items.size() - std::min(items.size(), length));
}

Jagged SortedUnique(const Jagged& items) {
  Jagged result;
  result.offsets.reserve(items.offsets.size());
  result.values.reserve(items.values.size());
  std::vector<uint64_t> row;
  for (int64_t i = 0; i < items.size(); ++i) {
    row.assign(items.row(i).begin(), items.row(i).end());
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    result.Append(row);
  }
  return result;
}

}  // namespace

SequenceSampler::SequenceSampler(const Interactions* interactions, Options options)
    : interactions_(interactions), options_(options) {
  TANDEM_CHECK_GT(options_.batch_size, 0);
  TANDEM_CHECK_GT(options_.max_length, 0);
  const Jagged& items = interactions_->items;
  TANDEM_CHECK_EQ(items.size(), static_cast<int64_t>(interactions_->users.size()));
  for (int64_t user = 0; user < items.size(); ++user) {
    if (items.row(user).size() >= kMinTrainItems) train_users_.push_back(user);
    if (items.row(user).size() >= kMinEvaluationItems) eval_users_.push_back(user);
  }
  if (options_.sample_negatives) seen_ = SortedUnique(items);
}

int64_t SequenceSampler::steps_per_epoch() const {
  return (num_train_users() + options_.batch_size - 1) / options_.batch_size;
}

int64_t SequenceSampler::NumTrainTargets(int64_t user) const {
  return std::min<int64_t>(interactions_->items.row_size(user) - 3, options_.max_length);
}

std::vector<int64_t> SequenceSampler::BatchUsers(int64_t epoch, int64_t batch_in_epoch) const {
  const int64_t begin = batch_in_epoch * options_.batch_size;
  const int64_t end = std::min(begin + options_.batch_size, num_train_users());
  absl::MutexLock lock(&mutex_);
  Shuffle& shuffle = shuffles_[epoch % 2];
  if (shuffle.epoch != epoch) {
    shuffle.users = train_users_;
    const RandomKey key{options_.seed, StableHash("shuffle")};
    // Fisher and Yates, in Durstenfeld's form.
    for (uint64_t i = shuffle.users.size(); i > 1; --i) {
      std::swap(shuffle.users[i - 1],
                shuffle.users[RandomBelow(key, static_cast<uint64_t>(epoch), i, i)]);
    }
    shuffle.epoch = epoch;
  }
  return {shuffle.users.begin() + begin, shuffle.users.begin() + end};
}

absl::Span<const uint64_t> SequenceSampler::TrainInputs(int64_t user) const {
  const absl::Span<const uint64_t> items = interactions_->items.row(user);
  TANDEM_CHECK_GE(items.size(), kMinTrainItems);
  return items.first(items.size() - 3);
}

absl::Span<const uint64_t> SequenceSampler::TrainTargets(int64_t user) const {
  return interactions_->items.row(user).subspan(1, TrainInputs(user).size());
}

SequenceBatch SequenceSampler::TrainBatch(int64_t epoch, int64_t batch_in_epoch, int replica,
                                          int num_replicas, int part, int num_parts) const {
  TANDEM_CHECK_GE(epoch, 0);
  TANDEM_CHECK(0 <= batch_in_epoch && batch_in_epoch < steps_per_epoch())
      << " batch " << batch_in_epoch;
  const std::vector<int64_t> users = BatchUsers(epoch, batch_in_epoch);
  SequenceBatch batch;
  batch.global_samples = static_cast<int64_t>(users.size());
  for (const int64_t user : users) batch.global_targets += NumTrainTargets(user);
  const BatchShare share = ShareOf(batch.global_samples, replica, num_replicas, part, num_parts);
  batch.first_sample = share.begin;
  for (int64_t sample = share.begin; sample < share.end; ++sample) {
    const int64_t user = users[sample];
    AppendSample(sample, user, TrainInputs(user), batch);
    AppendTargets(epoch, user, batch);
  }
  return batch;
}

void SequenceSampler::AppendSample(int64_t global_sample, int64_t user,
                                   absl::Span<const uint64_t> inputs, SequenceBatch& batch) const {
  const absl::Span<const uint64_t> kept = Tail(inputs, static_cast<size_t>(options_.max_length));
  batch.users.push_back(user);
  batch.inputs.insert(batch.inputs.end(), kept.begin(), kept.end());
  batch.offsets.push_back(batch.num_tokens());
  for (int64_t position = options_.max_length - static_cast<int64_t>(kept.size());
       position < options_.max_length; ++position) {
    batch.positions.push_back(position);
    batch.row_index.push_back(global_sample * options_.max_length + position);
  }
}

void SequenceSampler::AppendTargets(int64_t epoch, int64_t user, SequenceBatch& batch) const {
  const absl::Span<const uint64_t> items = interactions_->items.row(user);
  const int64_t end = static_cast<int64_t>(items.size()) - 2;
  for (int64_t place = end - NumTrainTargets(user); place < end; ++place) {
    batch.targets.push_back(items[place]);
    if (options_.sample_negatives)
      batch.negatives.push_back(Negative(epoch, user, place, items[place]));
  }
}

uint64_t SequenceSampler::Negative(int64_t epoch, int64_t user, int64_t place,
                                   uint64_t target) const {
  const RandomKey key{options_.seed, StableHash("negatives")};
  const uint64_t step = static_cast<uint64_t>(epoch), num_items = interactions_->num_items;
  // The target's place in the whole log stands for (user, place), so each has its own run of
  // element numbers.
  const uint64_t first =
      static_cast<uint64_t>(interactions_->items.offsets[user] + place) * kAttemptStride;
  const absl::Span<const uint64_t> seen = seen_.row(user);
  const uint64_t attempts = seen.size() < num_items ? kMaxAttempts : 0;
  for (uint64_t attempt = 0; attempt < attempts; ++attempt) {
    const uint64_t id = 1 + RandomBelow(key, step, first + attempt, num_items);
    if (!std::binary_search(seen.begin(), seen.end(), id)) return id;
  }
  // The user has (nearly) all items: any item other than the target is a better negative than none.
  if (num_items < 2) return target;
  const uint64_t id = 1 + RandomBelow(key, step, first + kMaxAttempts, num_items - 1);
  return id < target ? id : id + 1;
}

absl::Span<const uint64_t> SequenceSampler::History(Split split, int64_t user) const {
  const absl::Span<const uint64_t> items = interactions_->items.row(user);
  TANDEM_CHECK_GE(items.size(), kMinEvaluationItems);
  return items.first(items.size() - (split == Split::TEST ? 1 : 2));
}

uint64_t SequenceSampler::EvalTarget(Split split, int64_t user) const {
  return interactions_->items.row(user)[History(split, user).size()];
}

SequenceBatch SequenceSampler::HistoryBatch(
    absl::Span<const absl::Span<const uint64_t>> histories) const {
  SequenceBatch batch;
  batch.global_samples = static_cast<int64_t>(histories.size());
  for (int64_t place = 0; place < batch.global_samples; ++place)
    AppendSample(place, place, histories[place], batch);
  return batch;
}

std::vector<uint64_t> SequenceSampler::SharedNegatives(int64_t step, int count) const {
  const RandomKey key{options_.seed, StableHash("shared negatives")};
  std::vector<uint64_t> ids(count);
  for (int i = 0; i < count; ++i) {
    ids[i] = 1 + RandomBelow(key, static_cast<uint64_t>(step), static_cast<uint64_t>(i),
                             interactions_->num_items);
  }
  return ids;
}

}  // namespace tandem::data
