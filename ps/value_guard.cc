#include "ps/value_guard.h"

#include <cmath>
#include <cstring>
#include <tuple>

namespace tandem::ps {
namespace {

bool BytesAllFinite(const char* values, size_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
    found |= (bits & kExponent) == kExponent ? 1u : 0u;
  }
  return found == 0;
}

}  // namespace

void ValueGuardStatistics::NoteOffender(const Offender& offender) {
  const auto place = [](const Offender& o) { return std::tuple(o.step, o.trainer, o.id); };
  if (!first.has_value() || place(offender) < place(*first)) first = offender;
}

void ValueGuardStatistics::Merge(const ValueGuardStatistics& other) {
  rejected += other.rejected;
  skipped += other.skipped;
  mended += other.mended;
  clipped += other.clipped;
  if (other.first.has_value()) NoteOffender(*other.first);
}

std::optional<uint64_t> FindNonFinite(const void* ids, const void* gradients, size_t count, size_t dim) {
  const char* const bytes = static_cast<const char*>(gradients);
  if (BytesAllFinite(bytes, count * dim)) return std::nullopt;
  size_t row = 0;
  while (BytesAllFinite(bytes + row * dim * sizeof(float), dim)) ++row;
  uint64_t id;
  std::memcpy(&id, static_cast<const char*>(ids) + row * sizeof(id), sizeof(id));
  return id;
}

bool AllFinite(absl::Span<const float> values) {
  return BytesAllFinite(reinterpret_cast<const char*>(values.data()), values.size());
}

void ZeroNonFinite(absl::Span<float> values) {
  for (float& value : values) value = std::isfinite(value) ? value : 0.0f;
}

}  // namespace tandem::ps
