#include "trainer/tasks/ranking/rec_llm_inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/base/random.h"
#include "trainer/models/model_flops.h"
#include "trainer/sparse/remote_embedding.h"
#include "trainer/tasks/embedding_table.h"
#include "trainer/tasks/packed_rows.h"

namespace tandem::tasks {

namespace {

std::vector<uint64_t> TrainedItems(const std::vector<int64_t>& counts) {
  std::vector<uint64_t> items;
  for (uint64_t item = 1; item < counts.size(); ++item) {
    if (counts[item] > 0) items.push_back(item);
  }
  return items;
}

Tensor Index(const std::vector<int64_t>& places) { return Tensor::FromVector(places); }

}  // namespace

RecLlmInputs::RecLlmInputs(const Job* job, const RecLlmData* data,
                           const models::RecLlmOptions& model, const comm::ProcessGroup& group,
                           const parallel::Pipeline& pipeline)
    : job_(*job),
      options_(job_.model().rec_llm()),
      data_(*data),
      table_of_(RecLlmTablesOf(job_)),
      model_(model),
      pipeline_(pipeline),
      served_(job_.placement() == Job::PS),
      rank_(group.rank()),
      num_ranks_(group.size()),
      sampler_(&data->interactions(), {.seed = job_.seed(),
                                       .batch_size = job_.train().batch_size(),
                                       .max_length = options_.max_length(),
                                       .sample_negatives = false}),
      stream_(&data->title_symbols(), data->stream()),
      trained_(TrainedItems(data->training_counts())),
      place_of_trained_(data->num_items() + 1, -1),
      place_of_all_(data->num_items() + 1),
      trained_words_(WordsOf(trained_)) {
  for (size_t place = 0; place < trained_.size(); ++place)
    place_of_trained_[trained_[place]] = static_cast<int64_t>(place);
  uint64_t occurrences = 0;
  for (const uint64_t item : trained_) {
    occurrences += static_cast<uint64_t>(data->training_counts()[item]);
    occurrences_.push_back(occurrences);
  }
  std::iota(place_of_all_.begin(), place_of_all_.end(), 0);
}

RecLlmInputs::Words RecLlmInputs::WordsOf(absl::Span<const uint64_t> items) const {
  Words words;
  std::vector<int64_t> offsets{0};
  std::vector<uint64_t> buckets;
  words.scale = Tensor::Empty(Shape{static_cast<int64_t>(items.size())}, DType::F32);
  for (size_t i = 0; i < items.size(); ++i) {
    const absl::Span<const uint64_t> title =
        data_.title_words().row(static_cast<int64_t>(items[i]));
    if (table_of_.title >= 0) buckets.insert(buckets.end(), title.begin(), title.end());
    offsets.push_back(static_cast<int64_t>(buckets.size()));
    words.scale.data<float>()[i] = std::sqrt(static_cast<float>(title.size()));
  }
  words.offsets = Index(std::move(offsets));
  if (served_) {
    for (uint64_t& bucket : buckets) bucket = RowIdOf(static_cast<int64_t>(bucket));
    sparse::MergedIds merged = sparse::MergeIds({buckets});
    words.ids = std::move(merged.ids);
    words.places = merged.places[0];
  } else {
    words.places = Index({buckets.begin(), buckets.end()});
  }
  return words;
}

models::ItemSet RecLlmInputs::ItemsOf(size_t size, const std::vector<int64_t>& with_row,
                                      const Words& words) {
  return {.size = static_cast<int64_t>(size),
          .with_row = Index(with_row),
          .word_offsets = words.offsets,
          .words = words.places,
          .word_scale = words.scale};
}

bool RecLlmInputs::DropsRow(int64_t step, uint64_t item) const {
  const RandomKey key{job_.seed(), StableHash("row dropout")};
  return UnitFloat(RandomBits(key, static_cast<uint64_t>(step), item)) < options_.row_dropout();
}

models::RecLlmInput RecLlmInputs::InputOf(const data::StreamBatch& batch,
                                          absl::Span<const int64_t> place_of) const {
  std::vector<int64_t> inputs;
  inputs.reserve(batch.places.size());
  for (const uint64_t place : batch.places) {
    inputs.push_back(data::IsItem(place) ? model_.vocabulary_size + place_of[data::ItemAt(place)]
                                         : static_cast<int64_t>(place));
  }
  return {.rows = PackedRowsOf(batch, stream_.options().max_length),
          .inputs = Index(std::move(inputs)),
          .item_places = Tensor::FromVector(batch.item_places),
          .item_targets = Index({}),
          .text_places = Tensor::FromVector(batch.text_places),
          .text_targets = Tensor::FromVector(batch.text_targets)};
}

double RecLlmInputs::Flops(const data::StreamBatch& batch, int64_t num_items) const {
  const models::RecLlmOptions& model = model_;
  const double pairs = models::CausalPairs(batch.offsets);
  const auto tokens = static_cast<double>(batch.places.size()),
             items = static_cast<double>(batch.item_places.size()),
             symbols = static_cast<double>(batch.text_places.size()),
             vectors = static_cast<double>(num_items);
  const int64_t candidates =
      options_.loss() == SAMPLED_SOFTMAX ? options_.num_negatives() : num_items;
  return models::BlocksFlops({model.layers, model.dim, model.ffn_dim, tokens, pairs}) +
         models::ProductFlops(items, model.dim, candidates) +
         models::ProductFlops(symbols, model.dim, model.vocabulary_size) +
         models::ProductFlops(vectors, model.item_dim, model.dim) +
         (model.has_tower ? 2 * models::ProductFlops(vectors, model.dim, model.dim) : 0);
}

std::unique_ptr<RecLlmStep> RecLlmInputs::Prepare(int64_t step) const {
  auto input = std::make_unique<RecLlmStep>();
  const std::vector<int64_t> users =
      sampler_.BatchUsers((step - 1) / steps_per_epoch(), (step - 1) % steps_per_epoch());
  int64_t symbols = 0;
  for (const int64_t user : users) {
    const data::StreamCounts counts = stream_.Count(sampler_.TrainInputs(user));
    input->global_tokens += counts.places;
    input->global_targets += counts.items;
    symbols += counts.symbols;
  }
  input->global_samples = static_cast<int64_t>(users.size());
  input->text_weight = options_.text_loss() * static_cast<double>(input->global_targets) /
                       static_cast<double>(std::max<int64_t>(1, symbols));
  std::vector<ItemStreams> parts;
  const int num_parts = job_.parallel().microbatches();
  for (int part = 0; part < num_parts; ++part) {
    parts.push_back(
        StreamsOf(users, data::ShareOf(input->global_samples, rank_, num_ranks_, part, num_parts)));
  }
  const bool compares = pipeline_.has_last_stage();
  if (options_.loss() != SAMPLED_SOFTMAX && compares) {
    TakeItems(step, trained_, trained_words_, *input);
    TakeParts(parts, place_of_trained_, *input);
    return input;
  }
  const std::vector<uint64_t> negatives = compares ? Negatives(step) : std::vector<uint64_t>();
  const std::vector<uint64_t> used = UsedItems(parts, negatives);
  std::vector<int64_t> place_of(place_of_all_.size(), -1);
  for (size_t place = 0; place < used.size(); ++place)
    place_of[used[place]] = static_cast<int64_t>(place);
  TakeItems(step, used, WordsOf(used), *input);
  TakeParts(parts, place_of, *input);
  if (compares) TakeNegatives(negatives, place_of, *input);
  return input;
}

RecLlmInputs::ItemStreams RecLlmInputs::StreamsOf(absl::Span<const int64_t> users,
                                                  const data::BatchShare& share) const {
  ItemStreams part;
  data::Jagged streams;
  for (int64_t sample = share.begin; sample < share.end; ++sample) {
    const absl::Span<const uint64_t> inputs = sampler_.TrainInputs(users[sample]),
                                     targets = sampler_.TrainTargets(users[sample]);
    stream_.Append(inputs, &streams);
    const auto shown = targets.last(static_cast<size_t>(stream_.Count(inputs).items));
    part.targets.insert(part.targets.end(), shown.begin(), shown.end());
  }
  part.batch = data::PackStreams(std::move(streams), share.begin, stream_.options().max_length);
  return part;
}

std::vector<uint64_t> RecLlmInputs::Negatives(int64_t step) const {
  const RandomKey key{job_.seed(), StableHash("item negatives")};
  std::vector<uint64_t> negatives(static_cast<size_t>(options_.num_negatives()));
  for (size_t i = 0; i < negatives.size(); ++i) {
    // The item of a training occurrence, drawn with equal chances.
    const uint64_t occurrence =
        RandomBelow(key, static_cast<uint64_t>(step), i, occurrences_.back());
    const auto found = std::upper_bound(occurrences_.begin(), occurrences_.end(), occurrence);
    negatives[i] = trained_[static_cast<size_t>(found - occurrences_.begin())];
  }
  return negatives;
}

std::vector<uint64_t> RecLlmInputs::UsedItems(const std::vector<ItemStreams>& parts,
                                              std::vector<uint64_t> used) const {
  for (const ItemStreams& part : parts) {
    if (pipeline_.has_last_stage())
      used.insert(used.end(), part.targets.begin(), part.targets.end());
    if (!pipeline_.has_first_stage()) continue;
    for (const int64_t place : part.batch.item_places)
      used.push_back(data::ItemAt(part.batch.places[place]));
  }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  return used;
}

void RecLlmInputs::TakeItems(int64_t step, absl::Span<const uint64_t> items, const Words& words,
                             RecLlmStep& input) const {
  std::vector<int64_t> kept, index;
  std::vector<uint64_t> ids;
  for (size_t place = 0; place < items.size(); ++place) {
    if (DropsRow(step, items[place])) continue;
    kept.push_back(static_cast<int64_t>(place));
    ids.push_back(items[place]);
    index.push_back(PlaceOf(items[place]));
  }
  input.items = ItemsOf(items.size(), kept, words);
  if (!served_) {
    input.item_index = Index(index);
    return;
  }
  input.ids.resize(static_cast<size_t>(job_.tables_size()));
  input.ids[table_of_.item] = std::move(ids);
  if (table_of_.title >= 0) input.ids[table_of_.title] = words.ids;
  if (table_of_.token >= 0 && pipeline_.has_first_stage())
    input.ids[table_of_.token] = AllRowIds(model_.vocabulary_size);
}

void RecLlmInputs::TakeParts(const std::vector<ItemStreams>& parts,
                             absl::Span<const int64_t> place_of, RecLlmStep& input) const {
  for (const ItemStreams& part : parts) {
    input.flops += Flops(part.batch, input.items.size);
    input.parts.push_back(InputOf(part.batch, place_of));
    std::vector<int64_t> targets;
    for (const uint64_t target : part.targets) targets.push_back(place_of[target]);
    input.parts.back().item_targets = Index(targets);
  }
}

void RecLlmInputs::TakeNegatives(const std::vector<uint64_t>& negatives,
                                 absl::Span<const int64_t> place_of, RecLlmStep& input) const {
  std::vector<int64_t> places;
  const Tensor correction =
      Tensor::Empty(Shape{static_cast<int64_t>(negatives.size()), 1}, DType::F32);
  for (size_t i = 0; i < negatives.size(); ++i) {
    places.push_back(place_of[negatives[i]]);
    const double expected = static_cast<double>(negatives.size()) *
                            static_cast<double>(data_.training_counts()[negatives[i]]) /
                            static_cast<double>(occurrences_.back());
    correction.data<float>()[i] = static_cast<float>(-std::log(expected));
  }
  for (models::RecLlmInput& part : input.parts) {
    part.negatives = Index(places);
    part.correction = correction.Clone();
  }
}

RecLlmInputs::AllItems RecLlmInputs::All() const {
  std::vector<uint64_t> all(place_of_all_.size());
  std::iota(all.begin(), all.end(), 0);
  Words words = WordsOf(all);  // item 0 is nobody and has no words
  AllItems found;
  found.items = ItemsOf(all.size(), {trained_.begin(), trained_.end()}, words);
  found.word_ids = std::move(words.ids);
  std::vector<int64_t> index;
  for (const uint64_t item : trained_) index.push_back(PlaceOf(item));
  found.item_index = Index(index);
  return found;
}

models::RecLlmInput RecLlmInputs::OfHistories(
    absl::Span<const absl::Span<const uint64_t>> histories, data::StreamBatch* batch) const {
  data::Jagged streams;
  for (const absl::Span<const uint64_t> history : histories) stream_.Append(history, &streams);
  *batch = data::PackStreams(std::move(streams), 0, stream_.options().max_length);
  return InputOf(*batch, place_of_all_);
}

}  // namespace tandem::tasks
