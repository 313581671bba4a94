// Rows in the memory in which they were received. A message arrives in slices that the transport
// chooses. Rows are used in place; only a row that a slice boundary cuts is copied. PieceReader
// takes rows off the slices one by one. WireRows are the rows of one table, read in ascending
// order.
// Thread rule: values; WireRows may be read by any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/embedding.pb.h"
#include "ps/wire/wire_codec.h"

namespace tandem::ps {

class PieceReader {
 public:
  // `pieces` outlive this reader.
  // REQUIRES: no piece is empty.
  explicit PieceReader(const std::vector<std::string_view>& pieces) : pieces_(pieces) {}

  // Bytes left in the current slice.
  size_t in_one_piece() const {
    return number_ < pieces_.size() ? pieces_[number_].size() - offset_ : 0;
  }
  // Returns the next bytes: in place, or copied together into `scratch`.
  // REQUIRES: `num_bytes` bytes are left.
  const char* Next(size_t num_bytes, char* scratch) {
    if (num_bytes <= in_one_piece()) {
      const char* const bytes = pieces_[number_].data() + offset_;
      Skip(num_bytes);
      return bytes;
    }
    for (size_t done = 0; done < num_bytes;) {
      const size_t count = std::min(num_bytes - done, in_one_piece());
      std::memcpy(scratch + done, pieces_[number_].data() + offset_, count);
      Skip(count);
      done += count;
    }
    return scratch;
  }

 private:
  void Skip(size_t num_bytes) {
    offset_ += num_bytes;
    if (offset_ < pieces_[number_].size()) return;
    ++number_;
    offset_ = 0;
  }

  const std::vector<std::string_view>& pieces_;
  size_t number_ = 0, offset_ = 0;
};

inline size_t TotalBytes(const std::vector<std::string_view>& pieces) {
  size_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  return bytes;
}

class WireRows {
  struct Piece {
    size_t first;  // first row of this piece
    const char* rows;
  };

 public:
  WireRows() = default;
  // All rows in one piece, at any alignment. `rows` outlives this object.
  WireRows(const void* rows, WireFormat format = WIRE_F32)
      : format_(format), pieces_{{0, static_cast<const char*>(rows)}} {}  // NOLINT
  // Takes `count` rows of `row_bytes` off `reader`. The pieces of `reader` outlive this object.
  // REQUIRES: `count` rows are left.
  WireRows(PieceReader& reader, WireFormat format, size_t row_bytes, size_t count)
      : format_(format) {
    for (size_t row = 0; row < count;) {
      if (const size_t whole = std::min(count - row, reader.in_one_piece() / row_bytes);
          whole > 0) {
        pieces_.push_back({row, reader.Next(whole * row_bytes, nullptr)});
        row += whole;
        continue;
      }
      std::shared_ptr<char[]> joined(new char[row_bytes]);
      pieces_.push_back({row++, reader.Next(row_bytes, joined.get())});
      joined_.push_back(std::move(joined));
    }
  }

  WireFormat format() const { return format_; }
  // Calls visit(first row, rows, number of rows) for each run of adjacent rows among the first
  // `count` rows.
  template <class Visit>
  void ForEachRun(size_t count, const Visit& visit) const {
    for (size_t i = 0; i < pieces_.size() && pieces_[i].first < count; ++i) {
      const size_t end = i + 1 < pieces_.size() ? std::min(count, pieces_[i + 1].first) : count;
      visit(pieces_[i].first, pieces_[i].rows, end - pieces_[i].first);
    }
  }

  // Finds the memory of rows that are asked for in ascending order.
  class Cursor {
   public:
    // `rows` outlives this cursor.
    Cursor(const WireRows& rows, size_t row_bytes) : pieces_(rows.pieces_), row_bytes_(row_bytes) {}
    const char* At(size_t row) {
      while (number_ + 1 < pieces_.size() && pieces_[number_ + 1].first <= row) ++number_;
      return pieces_[number_].rows + (row - pieces_[number_].first) * row_bytes_;
    }

   private:
    const std::vector<Piece>& pieces_;
    const size_t row_bytes_;
    size_t number_ = 0;
  };

 private:
  WireFormat format_ = WIRE_F32;
  std::vector<Piece> pieces_;  // ascending by first
  std::vector<std::shared_ptr<char[]>> joined_;
};

}  // namespace tandem::ps
