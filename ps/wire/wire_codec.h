// The wire encoding of rows, gradients and ids (WireFormat and IdsFormat of proto/embedding.proto).
// Each row is encoded by itself, at any alignment, so rows are read and written inside the message.
// All formats but f16 equal a storage format (row_codec.h); a row stored in the wire format is sent
// as it is. Readers trust nothing: they stay within the given bytes and refuse bytes that no writer
// makes.
// Thread rule: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/random.h"

namespace tandem {
enum RowStorage : int;  // proto/embedding.pb.h
enum WireFormat : int;  // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::ps {

const char* NameOf(WireFormat format);  // "f32", "bf16", "f16", "int8"
// Bytes of one encoded row.
size_t WireBytes(WireFormat format, uint32_t dim);
// True if a row with this storage is sent without conversion.
bool TravelsAsStored(WireFormat format, RowStorage storage);

void DecodeRow(WireFormat format, const char* wire, uint32_t dim, float* row);
// Rounds to nearest, ties to even. Used for pulled rows. f16 keeps finite numbers finite: it clamps
// to 65,504.
void EncodeRow(WireFormat format, const float* row, uint32_t dim, char* wire);
// Rounds up or down at random, keeping the mean. Used for gradients. The random bits are a function
// of (key, step, column).
void EncodeGradient(WireFormat format, const float* gradient, uint32_t dim, RandomKey key,
                    uint64_t step, char* wire);
// Error feedback (Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014), for
// parameters that are pushed whole in every step. Sends gradient + residual rounded to nearest, and
// stores the rounding error in `residual` [dim]. So the sum of all sent gradients follows the sum
// of all gradients to within one unit. A NaN or an infinity is sent and leaves no residual.
void EncodeWithResidual(WireFormat format, const float* gradient, uint32_t dim, float* residual,
                        char* wire);

// True if `num_rows` adjacent rows decode without NaN and infinity.
bool AllFinite(WireFormat format, const char* wire, size_t num_rows, uint32_t dim);

// IDS_DELTA for one segment: writes `ids` to `out` and returns the end. Returns null if the ids do
// not ascend or need more than `max_bytes`.
// REQUIRES: `out` has room for max_bytes + kMaxIdBytes bytes.
inline constexpr size_t kMaxIdBytes = 10;
char* EncodeAscending(absl::Span<const uint64_t> ids, size_t max_bytes, char* out);
// Takes a segment of ids.size() ids off the front of `bytes`. InvalidArgument if the ids are cut
// short, an id is 0 or above 2^64 - 1, or an id repeats; `ids` is then unspecified. Each id takes
// at least one byte, so the caller can bound ids.size() before it allocates `ids`.
absl::Status DecodeAscending(std::string_view* bytes, absl::Span<uint64_t> ids);

// Checks the checksum of a push's payload, whose bytes are `pieces` in order. InvalidArgument,
// naming the push, if the push has no checksum (null) or a wrong one.
absl::Status CheckCrc(const uint32_t* said, absl::Span<const std::string_view> pieces,
                      uint64_t sequence, uint32_t trainer);
// The same for a PushRequest or a PushPooledRequest.
template <class Request>
absl::Status CheckPayload(const Request& request, absl::Span<const std::string_view> pieces) {
  const uint32_t said = request.payload_crc32c();
  return CheckCrc(request.has_payload_crc32c() ? &said : nullptr, pieces, request.sequence(),
                  request.header().sender().rank());
}

}  // namespace tandem::ps
