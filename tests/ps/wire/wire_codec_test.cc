// Rows, gradients and ids on the wire: how near rounded numbers are, and what they add up to.
// Bits depend on neither instruction set nor alignment. Readers refuse bytes that no writer makes.
#include "ps/wire/wire_codec.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/vector/vectorise.h"
#include "ps/wire/row_codec.h"
#include "ps/wire/wire_rows.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

constexpr WireFormat kFormats[] = {WIRE_F32, WIRE_BF16, WIRE_F16, WIRE_INT8};

// Encodes at an odd address, between two bytes that must not change, and decodes again.
template <class Encode>
std::vector<float> RoundTrip(WireFormat format, size_t dim, const Encode& encode) {
  const size_t bytes = WireBytes(format, static_cast<uint32_t>(dim));
  std::string wire(bytes + 2, 'z');
  encode(wire.data() + 1);
  EXPECT_EQ(wire.front(), 'z');
  EXPECT_EQ(wire.back(), 'z');
  std::vector<float> row(dim);
  DecodeRow(format, wire.data() + 1, static_cast<uint32_t>(dim), row.data());
  return row;
}

std::vector<float> Nearest(WireFormat format, const std::vector<float>& row) {
  return RoundTrip(format, row.size(), [&](char* wire) {
    EncodeRow(format, row.data(), static_cast<uint32_t>(row.size()), wire);
  });
}

std::vector<float> Rounded(WireFormat format, const std::vector<float>& row, uint64_t step) {
  return RoundTrip(format, row.size(), [&](char* wire) {
    EncodeGradient(format, row.data(), static_cast<uint32_t>(row.size()), {3, 4}, step, wire);
  });
}

TEST(WireCodecTest, RoundTripsWithinAUnitOrHalfAUnit) {
  for (uint32_t dim : {1u, 3u, 16u, 65u, 1500u}) {
    const auto row = MakeValues(dim, dim);
    float largest = 0;
    for (float x : row) largest = std::max(largest, std::fabs(x));
    EXPECT_EQ(Nearest(WIRE_F32, row), row);
    EXPECT_EQ(Rounded(WIRE_F32, row, 1), row);
    for (WireFormat format : {WIRE_BF16, WIRE_F16, WIRE_INT8}) {
      const auto near = Nearest(format, row), rounded = Rounded(format, row, 1);
      for (uint32_t i = 0; i < dim; ++i) {
        const float size = std::fabs(row[i]);
        const float unit = format == WIRE_INT8  ? largest / 127 * 1.0001f
                           : format == WIRE_F16 ? std::max(size * 0x1p-10f, 0x1p-24f)
                                                : size * 0x1p-7f;
        EXPECT_LE(std::fabs(near[i] - row[i]), unit / 2) << NameOf(format) << " " << i;
        EXPECT_LE(std::fabs(rounded[i] - row[i]), unit) << NameOf(format) << " " << i;
      }
    }
  }
}

// Compares all 65,536 numbers with the compiler's own conversion.
TEST(WireCodecTest, EveryF16IsReadAndWrittenAsIEEESays) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> values(halves.size());
  DecodeRow(WIRE_F16, reinterpret_cast<const char*>(halves.data()), 65536, values.data());
  std::vector<uint16_t> back(halves.size());
  EncodeRow(WIRE_F16, values.data(), 65536, reinterpret_cast<char*>(back.data()));
  for (size_t i = 0; i < halves.size(); ++i) {
    const auto expected = static_cast<float>(std::bit_cast<_Float16>(halves[i]));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
      EXPECT_EQ(back[i] & 0x7c00, 0x7c00) << i;
      EXPECT_NE(back[i] & 0x3ff, 0) << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected)) << i;
      EXPECT_EQ(back[i], halves[i]) << i;
    }
  }
}

TEST(WireCodecTest, F16RoundsToTheNearestEvenAndEndsAtItsLargest) {
  std::vector<float> values;
  for (uint32_t i = 0; i < 20000; ++i) {
    const float x = std::bit_cast<float>(RandomBits({1, 1}, 0, i));
    if (std::fabs(x) <= 65504) values.push_back(x);
    // Half way between two neighbours.
    const auto low = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(i)));
    const auto high = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(i + 1)));
    values.push_back((low + high) / 2);
  }
  const auto near = Nearest(WIRE_F16, values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(near[i], static_cast<float>(static_cast<_Float16>(values[i]))) << values[i];
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& ends :
       {Nearest(WIRE_F16, {7e4f, -3e38f, infinity, -infinity, std::nanf("")}),
        Rounded(WIRE_F16, {7e4f, -3e38f, infinity, -infinity, std::nanf("")}, 1)}) {
    EXPECT_EQ(ends[0], 65504);
    EXPECT_EQ(ends[1], -65504);
    EXPECT_EQ(ends[2], infinity);
    EXPECT_EQ(ends[3], -infinity);
    EXPECT_TRUE(std::isnan(ends[4]));
  }
}

TEST(WireCodecTest, RoundingAtRandomKeepsTheMean) {
  std::vector<float> row(64);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = 1 + static_cast<float>(i) / 65536;  // between two units of any format
  for (size_t i = 40; i < row.size(); ++i)
    row[i] = -static_cast<float>(i) * 0x1p-24f / 64;  // below the smallest f16
  for (WireFormat format : {WIRE_BF16, WIRE_F16, WIRE_INT8}) {
    std::vector<double> mean(64);
    constexpr int kSteps = 4000;
    for (int step = 1; step <= kSteps; ++step) {
      const auto sent = Rounded(format, row, static_cast<uint64_t>(step));
      for (size_t i = 0; i < 64; ++i) mean[i] += double{sent[i]} / kSteps;
    }
    for (size_t i = 0; i < 64; ++i) {
      const double unit = format == WIRE_INT8 ? 1.001 / 127
                          : i < 40            ? (format == WIRE_F16 ? 0x1p-10 : 0x1p-7)
                                              : 0x1p-24;
      // The mean deviates by at most half a unit over sqrt(4000). The test allows five deviations,
      // plus the bias that 13 random bits leave.
      EXPECT_NEAR(mean[i], row[i], unit * (5 * 0.5 / std::sqrt(kSteps) + 0x1p-13))
          << NameOf(format) << " " << i;
    }
  }
}

TEST(WireCodecTest, BitsDependOnKeyStepAndColumnOnly) {
  const auto row = MakeValues(1, 700);
  for (WireFormat format : kFormats) {
    const auto sent = Rounded(format, row, 5), near = Nearest(format, row);
    EXPECT_EQ(Rounded(format, row, 5), sent);
    if (format != WIRE_F32) {
      EXPECT_NE(Rounded(format, row, 6), sent);
    }
    const kernels::InstructionSetLimit limit(kernels::InstructionSet::BASELINE);
    EXPECT_EQ(Rounded(format, row, 5), sent);
    EXPECT_EQ(Nearest(format, row), near);
  }
}

TEST(WireCodecTest, OneNumberThatIsNotFiniteIsFoundWhereverItStands) {
  for (WireFormat format : kFormats) {
    for (uint32_t dim : {1u, 17u, 64u}) {
      const size_t bytes = WireBytes(format, dim);
      std::string wire(3 * bytes + 1, '\0');
      for (uint32_t bad = 0; bad < 3 * dim; ++bad) {
        for (float value :
             {3.4e38f, 0.0f, std::nanf(""), -std::numeric_limits<float>::infinity()}) {
          if (format == WIRE_INT8 && value == 3.4e38f)
            continue;  // 128 times its scale is not finite
          for (uint32_t row = 0; row < 3; ++row) {
            std::vector<float> values(dim, 1.5f);
            if (bad / dim == row) values[bad % dim] = value;
            EncodeRow(format, values.data(), dim, wire.data() + 1 + row * bytes);
          }
          const bool finite = std::isfinite(value) && !(format == WIRE_BF16 && value > 3.39e38f);
          EXPECT_EQ(AllFinite(format, wire.data() + 1, 3, dim), finite)
              << NameOf(format) << " " << bad << " " << value;
        }
      }
    }
  }
}

// A finite scale may still have products that are not finite.
TEST(WireCodecTest, AnInt8ScaleThatOverflowsIsNotFinite) {
  std::string wire(WireBytes(WIRE_INT8, 4), '\x80');
  for (float scale : {3e36f, -3e36f, std::nanf("")}) {
    std::memcpy(wire.data() + 4, &scale, sizeof(scale));
    EXPECT_FALSE(AllFinite(WIRE_INT8, wire.data(), 1, 4)) << scale;
  }
  const float scale = 2e36f;
  std::memcpy(wire.data() + 4, &scale, sizeof(scale));
  EXPECT_TRUE(AllFinite(WIRE_INT8, wire.data(), 1, 4));
}

// Old contents of the buffer must not leave the process between the bytes of a row and its scale.
TEST(WireCodecTest, PaddingIsZero) {
  const std::vector<float> row = {1, 2, 3, 4, 5};
  std::string near(WireBytes(WIRE_INT8, 5), 'z'), rounded = near;
  EncodeRow(WIRE_INT8, row.data(), 5, near.data());
  EncodeGradient(WIRE_INT8, row.data(), 5, {1, 2}, 3, rounded.data());
  for (const std::string& wire : {near, rounded})
    EXPECT_EQ(wire.substr(5, 3), std::string(3, '\0'));
}

TEST(WireCodecTest, WhatIsStoredSoTravelsAsItIs) {
  for (RowStorage storage : {STORED_F32, STORED_BF16, STORED_INT8}) {
    const auto row = MakeValues(7, 33);
    std::vector<char> stored(StoredBytes(storage, 33));
    EncodeStochastic(storage, row.data(), 33, {1, 1}, 1, stored.data());
    int as_stored = 0;
    for (WireFormat format : kFormats) {
      if (!TravelsAsStored(format, storage)) continue;
      ++as_stored;
      std::vector<float> a(33), b(33);
      DecodeWeights(storage, stored.data(), 33, a.data());
      DecodeRow(format, stored.data(), 33, b.data());
      EXPECT_EQ(a, b);
    }
    EXPECT_EQ(as_stored, 1);
  }
}

// A gradient far below a unit of the largest one beside it: rounding to nearest would lose it in
// every step.
TEST(WireCodecTest, WithAResidualTheSumOfWhatIsSentFollowsTheSumOfGradients) {
  for (WireFormat format : kFormats) {
    std::vector<float> gradient = {1.0f, 0.001f, -0.0003f, 0.7f}, residual(4), sent(4);
    std::vector<double> sum(4), sent_sum(4);
    std::string wire(WireBytes(format, 4), '\0');
    for (int step = 0; step < 1000; ++step) {
      EncodeWithResidual(format, gradient.data(), 4, residual.data(), wire.data());
      DecodeRow(format, wire.data(), 4, sent.data());
      for (size_t i = 0; i < 4; ++i) {
        sum[i] += double{gradient[i]};
        sent_sum[i] += double{sent[i]};
      }
    }
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(sent_sum[i], sum[i], 0.01) << NameOf(format) << " " << i;
  }
}

TEST(WireCodecTest, ANaNLeavesNoResidualBehind) {
  for (WireFormat format : {WIRE_BF16, WIRE_F16, WIRE_INT8}) {
    std::vector<float> residual(2);
    std::string wire(WireBytes(format, 2), '\0');
    for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      const std::vector<float> gradient = {bad, 0.3f}, next = {0.3f, 0.3f};
      EncodeWithResidual(format, gradient.data(), 2, residual.data(), wire.data());
      EXPECT_FALSE(AllFinite(format, wire.data(), 1, 2));
      EncodeWithResidual(format, next.data(), 2, residual.data(), wire.data());
      EXPECT_TRUE(AllFinite(format, wire.data(), 1, 2));
    }
  }
}

std::string Differences(const std::vector<uint64_t>& ids, size_t max_bytes) {
  std::string wire(max_bytes + kMaxIdBytes, 'z');
  char* const end = EncodeAscending(ids, max_bytes, wire.data());
  return end == nullptr ? "none" : wire.substr(0, static_cast<size_t>(end - wire.data()));
}

TEST(AscendingIdsTest, RoundTrip) {
  std::vector<uint64_t> all = {1};
  for (int bit = 1; bit < 64; ++bit) all.push_back(uint64_t{1} << bit);
  all.push_back(~uint64_t{0});
  for (const std::vector<uint64_t>& ids : {std::vector<uint64_t>{},
                                           {1},
                                           {~uint64_t{0}},
                                           {127, 128, 255, 256, 16383 + 256, 40000},
                                           all}) {
    const std::string wire = Differences(ids, 10 * ids.size());
    std::string_view bytes(wire);
    std::vector<uint64_t> read(ids.size());
    EXPECT_TRUE(DecodeAscending(&bytes, absl::MakeSpan(read)).ok());
    EXPECT_EQ(read, ids);
    EXPECT_TRUE(bytes.empty());
  }
  EXPECT_EQ(Differences({5, 6, 300}, 24), std::string("\x05\x01\xa6\x02"));
}

TEST(AscendingIdsTest, NoneWhereIdsDoNotAscendOrNothingIsSaved) {
  EXPECT_EQ(Differences({5, 4}, 16), "none");
  EXPECT_EQ(Differences({5, 5}, 16), "none");
  EXPECT_EQ(Differences({0, 5}, 16), "none");
  const std::vector<uint64_t> far = {uint64_t{1} << 62, uint64_t{1} << 63};
  EXPECT_EQ(Differences(far, 16), "none");
  EXPECT_EQ(Differences(far, 18).size(), 18u);
}

void ExpectRefused(std::string_view bytes, size_t count, const char* word) {
  std::vector<uint64_t> ids(count);
  const absl::Status status = DecodeAscending(&bytes, absl::MakeSpan(ids));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
}

TEST(AscendingIdsTest, RefusesWhatNoWriterMakes) {
  const std::string wire = Differences({300, 70000, uint64_t{1} << 40}, 24);
  for (size_t size = 0; size < wire.size(); ++size)
    ExpectRefused(std::string_view(wire).substr(0, size), 3, "ids end after");
  ExpectRefused(std::string_view("\0\1", 2), 2, "id 0 is padding");
  ExpectRefused(std::string_view("\7\0", 2), 2, "id 7 comes twice");
  ExpectRefused(std::string(10, '\xff') + '\1', 1, "2^64");   // eleven bytes
  ExpectRefused(std::string(9, '\xff') + '\2', 1, "2^64");    // 65 bits
  ExpectRefused(std::string(9, '\xff') + "\1\1", 2, "2^64");  // a sum of 65 bits
  ExpectRefused(std::string(10, '\x80') + std::string(1, '\0'), 1, "2^64");
}

TEST(AscendingIdsTest, AnyBytesAreReadOrRefused) {
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    std::string wire;
    for (uint64_t i = 0; i < seed % 24; ++i)
      wire.push_back(static_cast<char>(RandomBits({seed, 9}, 1, i)));
    std::string_view bytes(wire);
    std::vector<uint64_t> ids(1 + seed % 7);
    if (!DecodeAscending(&bytes, absl::MakeSpan(ids)).ok()) continue;
    EXPECT_GT(ids[0], 0u);
    for (size_t i = 1; i < ids.size(); ++i) EXPECT_GT(ids[i], ids[i - 1]);
    EXPECT_LE(bytes.size() + ids.size(), wire.size());
  }
}

TEST(WireRowsTest, RowsAreReadWhereTheyLieHoweverTheyAreSliced) {
  const std::string bytes = "aaaabbbbccccddddeeee";
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      std::vector<std::string_view> pieces;
      for (const auto& [begin, end] :
           {std::pair<size_t, size_t>{0, first}, {first, second}, {second, bytes.size()}}) {
        if (end > begin) pieces.push_back(std::string_view(bytes).substr(begin, end - begin));
      }
      PieceReader reader(pieces);
      const WireRows two(reader, WIRE_F32, 4, 2), three(reader, WIRE_F32, 4, 3);
      EXPECT_EQ(reader.in_one_piece(), 0u);
      std::string read;
      WireRows::Cursor of_two(two, 4), of_three(three, 4), skipping(three, 4);
      for (size_t row = 0; row < 2; ++row) read.append(of_two.At(row), 4);
      for (size_t row = 0; row < 3; ++row) read.append(of_three.At(row), 4);
      EXPECT_EQ(read, bytes);
      EXPECT_EQ(std::string(skipping.At(2), 4), "eeee");
      read.clear();
      three.ForEachRun(2, [&](size_t begin, const char* rows, size_t count) {
        EXPECT_EQ(begin * 4, read.size());
        read.append(rows, 4 * count);
      });
      EXPECT_EQ(read, "ccccdddd");
    }
  }
}

}  // namespace
}  // namespace tandem::ps
