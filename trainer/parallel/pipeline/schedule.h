// A pipeline schedule as data: the order in which each rank works on its chunks and microbatches.
// The model is cut into ranks * chunks stages. Chunk c of rank r is stage c * ranks + r, so a
// microbatch passes all ranks once for each chunk.
// Sources: Huang et al. 2019 (GPipe), Narayanan et al. 2021 (1F1B, interleaved), Qi et al. 2024
// (ZB-H1).
// Thread rule: values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::parallel {

enum class StageWork : uint8_t {
  FORWARD,
  BACKWARD,         // both halves; the input's gradient leaves at the end
  BACKWARD_INPUT,   // the half that the stage before waits for
  BACKWARD_WEIGHT,  // the other half, at any time later
};

struct StageOp {
  StageWork work = StageWork::FORWARD;
  int chunk = 0;  // of the rank
  int microbatch = 0;

  bool operator==(const StageOp&) const = default;
  // "F3", "BW3", "B3", "W3"; with several chunks "F3.1" for chunk 1.
  std::string ToString(int num_chunks) const;
};

struct PipelineSchedule {
  int num_chunks = 1;
  int num_microbatches = 1;
  bool has_backward = true;                 // false: forwards alone, for an evaluation
  std::vector<std::vector<StageOp>> ranks;  // by rank: its operations in order

  int num_ranks() const { return static_cast<int>(ranks.size()); }
  int num_stages() const { return num_chunks * num_ranks(); }
  int StageOf(int rank, int chunk) const { return chunk * num_ranks() + rank; }
  int RankOf(int stage) const { return stage % num_ranks(); }
  int ChunkOf(int stage) const { return stage / num_ranks(); }
};

enum class ScheduleKind : uint8_t { GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1 };
inline constexpr ScheduleKind kScheduleKinds[] = {ScheduleKind::GPIPE, ScheduleKind::ONE_F_ONE_B,
                                                  ScheduleKind::INTERLEAVED, ScheduleKind::ZB_H1};

const char* NameOf(ScheduleKind kind);
std::optional<ScheduleKind> ScheduleKindOf(std::string_view name);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::ONE_F_ONE_B;
  int num_ranks = 1;
  int num_chunks = 1;  // INTERLEAVED: of each rank. Others have 1.
  int num_microbatches = 1;
};

// Writes the schedule down. Whether it runs is for VerifySchedule to say.
// REQUIRES: all numbers are positive; num_chunks is 1 unless INTERLEAVED.
PipelineSchedule MakeSchedule(const ScheduleOptions& options);
// The forwards alone, for an evaluation. REQUIRES: all numbers are positive.
PipelineSchedule MakeForwardSchedule(int num_ranks, int num_chunks, int num_microbatches);

}  // namespace tandem::parallel
