#include "trainer/data/item_stream.h"

#include <gtest/gtest.h>

namespace tandem::data {
namespace {

// Items 1 to 4; item 3 has no title.
Jagged Titles() {
  Jagged titles;
  titles.Append({});
  titles.Append({10, 11, 12});
  titles.Append({20});
  titles.Append({});
  titles.Append({40, 41});
  return titles;
}

// Symbols as they are, items as negative numbers.
std::vector<int64_t> StreamOf(const std::vector<uint64_t>& history, ItemStream::Options options) {
  const Jagged titles = Titles();
  Jagged streams;
  ItemStream(&titles, options).Append(history, &streams);
  std::vector<int64_t> places;
  for (const uint64_t place : streams.row(0)) {
    places.push_back(IsItem(place) ? -static_cast<int64_t>(ItemAt(place))
                                   : static_cast<int64_t>(place));
  }
  return places;
}

using Places = std::vector<int64_t>;

TEST(ItemStreamTest, EachTitleComesBeforeItsItemOldestFirst) {
  EXPECT_EQ(StreamOf({1, 3, 4}, {.max_length = 99, .titles_per_history = 9}),
            (Places{10, 11, 12, -1, -3, 40, 41, -4}));
}

TEST(ItemStreamTest, OnlyTheLastItemsShowTheirTitles) {
  EXPECT_EQ(StreamOf({1, 2, 4}, {.max_length = 99, .titles_per_history = 2}),
            (Places{-1, 20, -2, 40, 41, -4}));
  EXPECT_EQ(StreamOf({1, 2, 4}, {.max_length = 99, .titles_per_history = 0}), (Places{-1, -2, -4}));
}

TEST(ItemStreamTest, ALongStreamIsCutAtAnItemsBorder) {
  EXPECT_EQ(StreamOf({2, 1, 4}, {.max_length = 9, .titles_per_history = 9}),
            (Places{20, -2, 10, 11, 12, -1, 40, 41, -4}));
  EXPECT_EQ(StreamOf({2, 1, 4}, {.max_length = 8, .titles_per_history = 9}),
            (Places{10, 11, 12, -1, 40, 41, -4}));
  EXPECT_EQ(StreamOf({2, 1, 4}, {.max_length = 6, .titles_per_history = 9}), (Places{40, 41, -4}));
}

TEST(ItemStreamTest, ALastItemWhoseTitleDoesNotFitIsShownAlone) {
  EXPECT_EQ(StreamOf({2, 1}, {.max_length = 3, .titles_per_history = 9}), (Places{-1}));
}

TEST(ItemStreamTest, CountsAreThoseOfThePackedStream) {
  const Jagged titles = Titles();
  const std::vector<std::vector<uint64_t>> histories{{1, 2, 4, 1}, {3}, {2, 1, 4, 4, 1, 2}};
  for (const int64_t max_length : {1, 5, 9, 40}) {
    for (const int64_t shown : {0, 1, 3, 9}) {
      const ItemStream stream(&titles, {max_length, shown});
      Jagged streams;
      StreamCounts counted;
      for (const auto& history : histories) {
        stream.Append(history, &streams);
        const StreamCounts more = stream.Count(history);
        counted.places += more.places;
        counted.items += more.items;
        counted.symbols += more.symbols;
      }
      const StreamBatch batch = PackStreams(streams, 0, max_length);
      EXPECT_EQ(counted.places, static_cast<int64_t>(batch.places.size()));
      EXPECT_EQ(counted.items, static_cast<int64_t>(batch.item_places.size()));
      EXPECT_EQ(counted.symbols, static_cast<int64_t>(batch.text_places.size()));
    }
  }
}

TEST(ItemStreamTest, APackedStreamEndsAtTheLastPosition) {
  const Jagged titles = Titles();
  const ItemStream stream(&titles, {.max_length = 8, .titles_per_history = 1});
  Jagged streams;
  stream.Append(std::vector<uint64_t>{2, 1}, &streams);
  stream.Append(std::vector<uint64_t>{4}, &streams);
  const StreamBatch batch = PackStreams(streams, 5, 8);
  EXPECT_EQ(batch.offsets, (std::vector<int64_t>{0, 5, 8}));
  EXPECT_EQ(batch.positions, (std::vector<int64_t>{3, 4, 5, 6, 7, 5, 6, 7}));
  EXPECT_EQ(batch.row_index, (std::vector<int64_t>{43, 44, 45, 46, 47, 53, 54, 55}));
  EXPECT_EQ(batch.item_places, (std::vector<int64_t>{0, 4, 7}));
  EXPECT_EQ(batch.text_places, (std::vector<int64_t>{1, 2, 5}));
  EXPECT_EQ(batch.text_targets, (std::vector<int64_t>{11, 12, 41}));
}

TEST(ItemStreamTest, AnItemPlaceHasNotSeenTheNextItemsTitle) {
  Jagged titles = Titles();
  const std::vector<uint64_t> history{1, 4};
  Jagged before, after;
  const ItemStream stream(&titles, {.max_length = 99, .titles_per_history = 9});
  stream.Append(history, &before);
  titles.values[4] = 77;  // the first symbol of item 4
  stream.Append(history, &after);
  ASSERT_EQ(before.row_size(0), after.row_size(0));
  for (int64_t p = 0; p <= 3; ++p) {  // up to the place of item 1
    EXPECT_EQ(before.row(0)[p], after.row(0)[p]);
  }
  EXPECT_EQ(after.row(0)[4], 77u);
}

}  // namespace
}  // namespace tandem::data
