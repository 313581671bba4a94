#include "trainer/data/item_stream.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace tandem::data {

ItemStream::Shown ItemStream::ShownOf(absl::Span<const uint64_t> history) const {
  TANDEM_CHECK(!history.empty());
  Shown shown;
  int64_t length = 0;
  const int64_t titles = titles_ == nullptr ? 0 : options_.titles_per_history;
  for (auto item = history.rbegin(); item != history.rend(); ++item) {
    const bool titled = shown.items < titles;
    length += 1 + (titled ? static_cast<int64_t>(TitleOf(*item).size()) : 0);
    if (length > options_.max_length) break;
    ++shown.items;
    shown.titles += titled;
  }
  if (shown.items == 0) shown.items = 1;
  return shown;
}

void ItemStream::Append(absl::Span<const uint64_t> history, Jagged* streams) const {
  const Shown shown = ShownOf(history);
  const auto items = history.last(static_cast<size_t>(shown.items));
  for (size_t i = 0; i < items.size(); ++i) {
    if (items.size() - i <= static_cast<size_t>(shown.titles)) {
      const absl::Span<const uint64_t> title = TitleOf(items[i]);
      streams->values.insert(streams->values.end(), title.begin(), title.end());
    }
    streams->values.push_back(ItemPlace(items[i]));
  }
  streams->offsets.push_back(static_cast<int64_t>(streams->values.size()));
}

StreamCounts ItemStream::Count(absl::Span<const uint64_t> history) const {
  const Shown shown = ShownOf(history);
  StreamCounts counts{.places = shown.items, .items = shown.items};
  for (const uint64_t item : history.last(static_cast<size_t>(shown.titles))) {
    const auto length = static_cast<int64_t>(TitleOf(item).size());
    counts.places += length;
    counts.symbols += std::max<int64_t>(0, length - 1);
  }
  return counts;
}

StreamBatch PackStreams(Jagged streams, int64_t first_sample, int64_t max_length) {
  StreamBatch batch;
  for (int64_t s = 0; s < streams.size(); ++s) {
    const int64_t begin = streams.offsets[s], end = streams.offsets[s + 1];
    TANDEM_CHECK_LE(end - begin, max_length);
    for (int64_t p = begin; p < end; ++p) {
      batch.positions.push_back(max_length - (end - p));
      batch.row_index.push_back((first_sample + s) * max_length + batch.positions.back());
      if (IsItem(streams.values[p])) {
        batch.item_places.push_back(p);
      } else if (p + 1 < end && !IsItem(streams.values[p + 1])) {
        batch.text_places.push_back(p);
        batch.text_targets.push_back(static_cast<int64_t>(streams.values[p + 1]));
      }
    }
  }
  batch.offsets = std::move(streams.offsets);
  batch.places = std::move(streams.values);
  return batch;
}

}  // namespace tandem::data
