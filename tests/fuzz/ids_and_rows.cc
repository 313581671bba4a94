#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"
#include "proto/embedding.pb.h"
#include "ps/wire/wire_codec.h"
#include "tests/fuzz/target.h"

namespace tandem::fuzz {
namespace {

void RunIds(std::string_view bytes, size_t count) {
  if (count > bytes.size()) return;  // DecodeAscending's callers know that
  std::vector<uint64_t> ids(count);
  std::string_view left = bytes;
  if (!ps::DecodeAscending(&left, absl::MakeSpan(ids)).ok()) return;
  TANDEM_CHECK_LE(left.size(), bytes.size());
  for (size_t i = 0; i < count; ++i) TANDEM_CHECK_LT(i == 0 ? 0 : ids[i - 1], ids[i]);
  // The writer's output is never longer than the input that it reproduces.
  std::string again(bytes.size() + ps::kMaxIdBytes, '\0');
  const char* const end = ps::EncodeAscending(ids, bytes.size() - left.size(), again.data());
  TANDEM_CHECK(end != nullptr);
  std::string_view written(again.data(), static_cast<size_t>(end - again.data()));
  std::vector<uint64_t> read(count);
  TANDEM_CHECK(ps::DecodeAscending(&written, absl::MakeSpan(read)).ok());
  TANDEM_CHECK(written.empty() && read == ids);
}

void RunRows(std::string_view bytes, WireFormat format, uint32_t dim) {
  const size_t row_bytes = ps::WireBytes(format, dim), num_rows = bytes.size() / row_bytes;
  const std::string wire(bytes.substr(0, num_rows * row_bytes));  // memory with an end
  bool finite = true;
  for (size_t i = 0; i < num_rows; ++i) {
    std::vector<float> row(dim);
    ps::DecodeRow(format, wire.data() + i * row_bytes, dim, row.data());
    finite &= std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); });
    std::string again(row_bytes, '\0');
    ps::EncodeRow(format, row.data(), dim, again.data());
    std::vector<float> residual(dim);
    ps::EncodeWithResidual(format, row.data(), dim, residual.data(), again.data());
    ps::EncodeGradient(format, row.data(), dim, {}, 1, again.data());
  }
  const bool all_finite = ps::AllFinite(format, wire.data(), num_rows, dim);
  TANDEM_CHECK(finite || !all_finite);
  // AllFinite judges int8 rows by their scale: a scale that could take some byte to infinity fails,
  // even if no such byte is there.
  TANDEM_CHECK(format == WIRE_INT8 || all_finite == finite);
}

// Input: one byte that chooses ids or a format of rows, one byte for their number, then the bytes.
void Run(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const int kind = static_cast<unsigned char>(bytes[0]) % (WireFormat_ARRAYSIZE + 1);
  const uint32_t number = static_cast<unsigned char>(bytes[1]);
  bytes.remove_prefix(2);
  if (kind == WireFormat_ARRAYSIZE)
    RunIds(std::string(bytes), number);
  else
    RunRows(bytes, static_cast<WireFormat>(kind), number + 1);
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const std::vector<float> row = {1, -0.5f, 3e30f, 1e-8f, 0};
  for (int format = 0; format < WireFormat_ARRAYSIZE; ++format) {
    std::string wire(ps::WireBytes(static_cast<WireFormat>(format), 5), '\0');
    ps::EncodeRow(static_cast<WireFormat>(format), row.data(), 5, wire.data());
    seeds.push_back(std::string{static_cast<char>(format), 4} + wire + wire);
  }
  const std::vector<uint64_t> ids = {1, 127, 128, 1u << 20, uint64_t{1} << 63, ~uint64_t{0}};
  std::string encoded(80, '\0');
  encoded.resize(
      static_cast<size_t>(ps::EncodeAscending(ids, 70, encoded.data()) - encoded.data()));
  seeds.push_back(
      std::string{static_cast<char>(WireFormat_ARRAYSIZE), static_cast<char>(ids.size())} +
      encoded);
  return seeds;
}

}  // namespace

Target IdsAndRows() { return {"ids_and_rows", Run, Seeds}; }

}  // namespace tandem::fuzz
