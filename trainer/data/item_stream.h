// A user's history as one stream: each item's title, symbol by symbol, and then the item itself,
// oldest first. A decoder reads the stream. An item place is asked for the next item, before the
// next item's title comes; a symbol is asked for the next symbol of its title.
// A stream is a row of a Jagged, and a place is one of its values: a symbol's number, or an item
// with kItemFlag.
// Thread rule: const methods from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/data/jagged.h"

namespace tandem::data {

inline constexpr uint64_t kItemFlag = uint64_t{1} << 63;
inline uint64_t ItemPlace(uint64_t item) { return item | kItemFlag; }
inline bool IsItem(uint64_t place) { return (place & kItemFlag) != 0; }
inline uint64_t ItemAt(uint64_t place) { return place & ~kItemFlag; }

struct StreamCounts {
  int64_t places = 0;
  int64_t items = 0;    // item places, each of which has a next item
  int64_t symbols = 0;  // symbols that another symbol of the same title follows
};

class ItemStream {
 public:
  struct Options {
    int64_t max_length = 256;        // places, at least 1
    int64_t titles_per_history = 0;  // the last items whose titles are shown
  };
  // Row i of `titles` holds the symbols of item i's title; row 0 is empty. Null: no titles.
  // REQUIRES: `titles` outlives the stream.
  ItemStream(const Jagged* titles, Options options) : titles_(titles), options_(options) {}

  const Options& options() const { return options_; }

  // Appends the stream of a history, oldest item first, as a row. Cuts the stream from the left to
  // max_length places, so that it begins with a whole title or with an item. A last item whose
  // title does not fit is shown alone.
  // REQUIRES: the history is not empty.
  void Append(absl::Span<const uint64_t> history, Jagged* streams) const;
  // Counts without making the stream.
  StreamCounts Count(absl::Span<const uint64_t> history) const;

 private:
  // The part of a history that is shown: its last `items`, the last `titles` of them with their
  // titles.
  struct Shown {
    int64_t items = 0, titles = 0;
  };
  Shown ShownOf(absl::Span<const uint64_t> history) const;
  absl::Span<const uint64_t> TitleOf(uint64_t item) const {
    return titles_->row(static_cast<int64_t>(item));
  }

  const Jagged* titles_;
  const Options options_;
};

// Streams packed for a decoder, in the manner of SequenceBatch (sequence_sampler.h): the last place
// of a stream always has position max_length - 1.
struct StreamBatch {
  std::vector<int64_t> offsets{0};   // [S + 1]
  std::vector<int64_t> positions;    // [T]
  std::vector<int64_t> row_index;    // [T] global sample number * max_length + position
  std::vector<uint64_t> places;      // [T]
  std::vector<int64_t> item_places;  // numbers of the places that hold items
  std::vector<int64_t> text_places, text_targets;  // symbols with a next symbol, and that symbol

  int64_t num_samples() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

// Packs streams; row 0 of `streams` is sample number `first_sample` of the global batch.
StreamBatch PackStreams(Jagged streams, int64_t first_sample, int64_t max_length);

}  // namespace tandem::data
