// Batches for sequential recommendation, leave-one-out. Of each user's items the last is the test
// target and the one before it the validation target. The training pairs are items[:-3] ->
// items[1:-2] (the recipe of S3-Rec's SASRec: Zhou et al., "S3-Rec", CIKM 2020). Users with fewer
// than 4 items have no training pair; with fewer than 3 they are not evaluated.
// Invariant: order, negatives and row_index depend on (seed, epoch, user, place) alone. Replicas
// and parts only cut the batch.
// Thread rule: const methods from any number of threads at once.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "trainer/data/interactions.h"

namespace tandem::data {

// B samples packed without padding; sample b owns [offsets[b], offsets[b + 1]) of the T tokens.
// "Global" numbers refer to the whole batch over all replicas and parts, so they do not depend on
// the cut.
struct SequenceBatch {
  int64_t first_sample = 0;         // global number of local sample 0
  std::vector<int64_t> users;       // [B] user index
  std::vector<int64_t> offsets{0};  // [B + 1]
  std::vector<uint64_t> inputs;     // [T] item ids
  std::vector<uint64_t> targets;    // [T] item ids; training only
  std::vector<uint64_t> negatives;  // [T] item ids; training with sample_negatives only
  std::vector<int64_t> positions;   // [T] 0..max_length-1; the last item always has max_length-1
  std::vector<int64_t> row_index;   // [T] global sample number * max_length + position
  int64_t global_samples = 0;
  int64_t global_targets = 0;

  int64_t num_samples() const { return static_cast<int64_t>(users.size()); }
  int64_t num_tokens() const { return static_cast<int64_t>(inputs.size()); }
};

enum class Split { VALID, TEST };

class SequenceSampler {
 public:
  struct Options {
    uint64_t seed = 0;
    int batch_size = 256;  // global: samples of one optimizer step over all replicas
    int max_length = 50;
    // One uniform negative per target, outside the user's whole history.
    bool sample_negatives = true;
  };

  // REQUIRES: `interactions` outlives the sampler and does not change; batch_size and max_length
  // are positive.
  SequenceSampler(const Interactions* interactions, Options options);

  // The users with a training pair, divided by batch_size, rounded up: the last batch may be short.
  int64_t steps_per_epoch() const;
  int64_t num_train_users() const { return static_cast<int64_t>(train_users_.size()); }

  // The users of a batch, in the order of its samples.
  std::vector<int64_t> BatchUsers(int64_t epoch, int64_t batch_in_epoch) const;
  // All of a user's training pairs: the item at place i of the inputs is followed by the item at
  // place i of the targets. REQUIRES: the user has a training pair.
  absl::Span<const uint64_t> TrainInputs(int64_t user) const;
  absl::Span<const uint64_t> TrainTargets(int64_t user) const;

  // The share of the global batch that batch_share.h cuts. An empty share is an empty batch.
  SequenceBatch TrainBatch(int64_t epoch, int64_t batch_in_epoch, int replica, int num_replicas,
                           int part = 0, int num_parts = 1) const;

  // Evaluated users are numbered 0..num_eval_users()-1 in the log's order. EvalUser returns the
  // user index of such a number. The other methods take a user index, as in SequenceBatch::users.
  int64_t num_eval_users() const { return static_cast<int64_t>(eval_users_.size()); }
  int64_t EvalUser(int64_t number) const { return eval_users_[number]; }

  // A batch of histories; `users` are their places in `histories`. Inputs are the last max_length
  // items of each. Has no targets or negatives.
  SequenceBatch HistoryBatch(absl::Span<const absl::Span<const uint64_t>> histories) const;
  uint64_t EvalTarget(Split split, int64_t user) const;
  // All items before the target, oldest first. For TEST they include the validation item.
  absl::Span<const uint64_t> History(Split split, int64_t user) const;

  // `count` uniform ids, shared by all targets of a step (sampled softmax). Depends on (seed, step)
  // alone.
  std::vector<uint64_t> SharedNegatives(int64_t step, int count) const;

 private:
  struct Shuffle {
    int64_t epoch = -1;
    std::vector<int64_t> users;
  };

  int64_t NumTrainTargets(int64_t user) const;
  void AppendSample(int64_t global_sample, int64_t user, absl::Span<const uint64_t> inputs,
                    SequenceBatch& batch) const;
  void AppendTargets(int64_t epoch, int64_t user, SequenceBatch& batch) const;
  uint64_t Negative(int64_t epoch, int64_t user, int64_t place, uint64_t target) const;

  const Interactions* interactions_;
  Options options_;
  std::vector<int64_t> train_users_;
  std::vector<int64_t> eval_users_;
  // Each user's whole history, sorted and without duplicates; empty without sample_negatives.
  Jagged seen_;
  mutable absl::Mutex mutex_;
  // The orders of the current epoch and its neighbour, by epoch % 2. A loader that runs ahead must
  // not evict the current order.
  mutable std::array<Shuffle, 2> shuffles_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::data
