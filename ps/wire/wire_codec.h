// How rows, gradients and ids travel (WireFormat and IdsFormat of proto/embedding.proto): each row by itself, at any alignment, so that
// it is read where the message lies and written where the message is made. All but f16 look as rows are stored (row_codec.h), and
// what is stored so travels as it is. Readers trust nothing: they stay within the bytes they are given and refuse what no writer
// makes. Thread rule: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/random.h"
#include "proto/embedding.pb.h"

namespace tandem::ps {

const char* NameOf(WireFormat format);  // "f32", "bf16", "f16", "int8"
// Of one row.
size_t WireBytes(WireFormat format, uint32_t dim);
// Whether such a stored row travels as it is.
bool TravelsAsStored(WireFormat format, RowStorage storage);

void DecodeRow(WireFormat format, const char* wire, uint32_t dim, float* row);
// To the nearest, ties to even: pulled rows. f16 keeps what is finite finite: it ends at 65,504.
void EncodeRow(WireFormat format, const float* row, uint32_t dim, char* wire);
// Up or down at random, keeping the mean: gradients. The random bits are a function of (key, step, column).
void EncodeGradient(WireFormat format, const float* gradient, uint32_t dim, RandomKey key, uint64_t step, char* wire);
// Error feedback (Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014), for what is pushed whole in every step: sends
// gradient + residual to the nearest, and leaves in `residual` [dim] what rounding took away, so that the sum of all that is sent
// follows the sum of all gradients to within one unit. A NaN or an infinity is sent and leaves no residual.
void EncodeWithResidual(WireFormat format, const float* gradient, uint32_t dim, float* residual, char* wire);

// Whether `num_rows` rows, one behind the other, decode to numbers without NaN and infinity.
bool AllFinite(WireFormat format, const char* wire, size_t num_rows, uint32_t dim);

// IDS_DELTA for one segment: writes `ids` to `out` and returns the end, or null where they do not ascend or take more than
// `max_bytes`. REQUIRES: max_bytes + kMaxIdBytes bytes of room.
inline constexpr size_t kMaxIdBytes = 10;
char* EncodeAscending(absl::Span<const uint64_t> ids, size_t max_bytes, char* out);
// Takes a segment of ids.size() ids off the front of `bytes`. InvalidArgument where they are cut short, an id is 0 or above 2^64 - 1, or
// one comes twice; `ids` is then unspecified. Before it allocates `ids`, the caller knows that each takes a byte at least.
absl::Status DecodeAscending(std::string_view* bytes, absl::Span<uint64_t> ids);

absl::Status CheckCrc(uint32_t said, absl::Span<const std::string_view> pieces, uint64_t sequence, uint32_t trainer);
// Of a push's payload, if it has a checksum: InvalidArgument, naming the push, if that is another one than that of `pieces`.
template <class Request>
absl::Status CheckPayload(const Request& request, absl::Span<const std::string_view> pieces) {
  if (!request.has_payload_crc32c()) return absl::OkStatus();
  return CheckCrc(request.payload_crc32c(), pieces, request.sequence(), request.header().sender().rank());
}

}  // namespace tandem::ps
