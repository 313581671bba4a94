#include "trainer/job/layout.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/job.pb.h"

namespace tandem::job {

namespace {

using parallel::Axis;
using parallel::PlaceOn;

int TpOf(const Job& job) { return job.parallel().has_tp() ? job.parallel().tp() : 1; }
int PpOf(const Job& job) { return job.parallel().has_pp() ? job.parallel().pp() : 1; }
int RanksOfReplica(const Job& job) { return std::max(0, TpOf(job)) * std::max(0, PpOf(job)); }

std::string Trainers(int count) {
  return absl::StrCat(count, count == 1 ? " trainer" : " trainers");
}

// The job's numbers of one impossible layout: "parallel.dp is 2 and parallel.tp 4".
std::string LayoutText(const Job& job, bool with_dp) {
  std::string text;
  const auto add = [&text](const char* field, int value) {
    absl::StrAppend(&text, text.empty() ? "" : " and ", "parallel.", field,
                    text.empty() ? " is " : " ", value);
  };
  if (with_dp) add("dp", job.parallel().dp());
  if (TpOf(job) > 1) add("tp", TpOf(job));
  if (PpOf(job) > 1) add("pp", PpOf(job));
  return text;
}

// Refuses a number of trainers that the layout does not divide, or that it contradicts.
void CheckTrainers(const Job& job, int num_trainers, Limits* limits) {
  const int ranks = RanksOfReplica(job), dp = job.parallel().dp();
  const auto fail = [&](const char* field, bool with_dp, const std::string& allowed) {
    limits->Fail(field, absl::StrCat("impossible layout: ", LayoutText(job, with_dp), " with ",
                                     Trainers(num_trainers), "; allowed: ", allowed));
  };
  if (dp < 0) return;  // refused already
  if (num_trainers % ranks == 0) {
    const char* const divided = PpOf(job) == 1 ? "tp" : TpOf(job) == 1 ? "pp" : "tp x pp";
    fail("parallel.dp", true,
         absl::StrCat(
             num_trainers / ranks,
             ranks == 1 ? ", the number of trainers" : ", the number of trainers divided by ",
             ranks == 1 ? "" : divided));
  } else if (dp > 0) {
    fail("parallel.dp", true, Trainers(dp * ranks));
  } else if (PpOf(job) == 1 || TpOf(job) == 1) {
    fail(TpOf(job) > 1 ? "parallel.tp" : "parallel.pp", false,
         absl::StrCat("a divisor of ", num_trainers));
  } else {
    fail("parallel.pp", false, absl::StrCat("a product that divides ", num_trainers));
  }
}

// Refuses what needs the whole model, or servers, where a layout cuts the model.
void CheckServed(const Job& job, Limits* limits) {
  const bool served =
      std::any_of(job.parameters().begin(), job.parameters().end(),
                  [](const Parameters& entry) { return entry.placement() == Job::PS; });
  if (!served) return;
  const auto refuse = [limits](const char* field, int found, int allowed) {
    if (found == allowed) return;
    limits->Refuse(
        absl::StrCat("parallel.", field), found,
        absl::StrCat(allowed, " with dense parameters on servers (parameters[].placement PS)"));
  };
  refuse("zero", job.parallel().zero(), 0);
  refuse("tp", TpOf(job), 1);
  refuse("pp", PpOf(job), 1);
}

// A replica's first and last stage both pull and push. They agree step by step alone.
void CheckTwoClients(const Job& job, Limits* limits) {
  if (PpOf(job) == 1 || job.placement() == Job::REPLICATED) return;
  const ParameterServer& ps = job.ps();
  if (ps.consistency() != BSP) {
    limits->Refuse("ps.consistency", Consistency_Name(ps.consistency()),
                   "BSP with parallel.pp above 1");
  }
  if (ps.cache_rows() > 0)
    limits->Refuse("ps.cache_rows", ps.cache_rows(), "0 with parallel.pp above 1");
  if (ps.merge_pushes())
    limits->Refuse("ps.merge_pushes", "true", "false with parallel.pp above 1");
}

void CheckMicrobatches(const Job& job, Limits* limits) {
  const Parallel& parallel = job.parallel();
  limits->AtLeast(parallel, "parallel.", "microbatches", 1);
  if (parallel.has_microbatches() && job.train().has_accumulate() &&
      parallel.microbatches() != job.train().accumulate()) {
    limits->Refuse("parallel.microbatches", parallel.microbatches(),
                   absl::StrCat(job.train().accumulate(),
                                ", as train.accumulate, which is the same number, or none"));
  }
}

// The stages of each rank.
int ChunksOf(const Job& job) {
  const Parallel& parallel = job.parallel();
  if (parallel.has_virtual_stages()) return parallel.virtual_stages();
  return parallel.schedule() == Parallel::INTERLEAVED && PpOf(job) > 1 ? 2 : 1;
}

void CheckLayersPerStage(const Job& job, int num_layers, Limits* limits) {
  const auto& layers = job.parallel().layers_per_stage();
  const int num_stages = PpOf(job) * ChunksOf(job);
  const int sum = std::accumulate(layers.begin(), layers.end(), 0);
  const bool positive =
      std::all_of(layers.begin(), layers.end(), [](int number) { return number > 0; });
  if (layers.size() == num_stages && positive && sum == num_layers) return;
  limits->Refuse("parallel.layers_per_stage", absl::StrJoin(layers, ","),
                 absl::StrCat(num_stages, " numbers above 0, one for each stage, with the sum ",
                              num_layers, ", the model's layers"));
}

// A replica's first and last stage have a client each.
int ClientsOfReplica(const Job& job) { return job.parallel().pp() > 1 ? 2 : 1; }

}  // namespace

int ReplicasOf(const Job& job, int num_trainers) {
  const int ranks = RanksOfReplica(job), dp = job.parallel().has_dp() ? job.parallel().dp() : 0;
  if (ranks < 1) return 0;
  if (num_trainers <= 0) return job.parallel().has_dp() ? dp : 1;
  if (num_trainers % ranks != 0) return 0;
  return dp == 0 || dp == num_trainers / ranks ? num_trainers / ranks : 0;
}

void CheckLayout(const Job& job, int num_trainers, Limits* limits) {
  const Parallel& parallel = job.parallel();
  limits->AtLeast(parallel, "parallel.", "dp", 1);
  limits->Between(parallel, "parallel.", "tp", 1, 1024);
  limits->Between(parallel, "parallel.", "pp", 1, 1024);
  limits->Between(parallel, "parallel.", "zero", 0, 3);
  limits->AtLeast(parallel, "parallel.", "memory_bytes", 0);
  CheckServed(job, limits);
  CheckTwoClients(job, limits);
  CheckMicrobatches(job, limits);
  if (PpOf(job) > 1 && parallel.zero() > 1)
    limits->Refuse("parallel.zero", parallel.zero(), "0, 1 with parallel.pp above 1");
  if (TpOf(job) == 1 && parallel.sequence_parallel())
    limits->Refuse("parallel.sequence_parallel", "true", "false with parallel.tp 1");
  if (num_trainers <= 0 || RanksOfReplica(job) < 1 || ReplicasOf(job, num_trainers) > 0) return;
  CheckTrainers(job, num_trainers, limits);
}

void CheckStages(const Job& job, const std::string& kind, int num_layers, Limits* limits) {
  const Parallel& parallel = job.parallel();
  const int pp = PpOf(job);
  if (pp > 1 && num_layers == 0) {
    return limits->Refuse("parallel.pp", pp,
                          absl::StrCat("1 with ", kind, ", whose layers form no stages"));
  }
  limits->Between(parallel, "parallel.", "virtual_stages", 1, 256);
  const int chunks = ChunksOf(job), num_stages = pp * chunks;
  if (pp < 1 || chunks < 1) return;
  if (parallel.virtual_stages() > 1 && (parallel.schedule() != Parallel::INTERLEAVED || pp == 1)) {
    return limits->Refuse("parallel.virtual_stages", chunks,
                          "1, or more with parallel.schedule INTERLEAVED and parallel.pp above 1");
  }
  if (pp > 1 && pp > num_layers) {
    return limits->Refuse("parallel.pp", pp,
                          absl::StrCat("1 .. ", num_layers, ", the model's layers"));
  }
  if (parallel.layers_per_stage_size() > 0) return CheckLayersPerStage(job, num_layers, limits);
  if (chunks > 1 && num_layers % num_stages != 0) {
    limits->Refuse(parallel.has_virtual_stages() ? "parallel.virtual_stages" : "parallel.schedule",
                   parallel.has_virtual_stages() ? absl::StrCat(chunks) : "INTERLEAVED",
                   absl::StrCat("stages of equal size: parallel.pp x parallel.virtual_stages, ", pp,
                                " x ", chunks, ", divides the model's ", num_layers,
                                " layers; or parallel.layers_per_stage"));
  }
}

int MicrobatchesOf(const Job& job, int batch_size, int num_replicas) {
  if (job.parallel().has_microbatches()) return job.parallel().microbatches();
  if (job.train().has_accumulate()) return job.train().accumulate();
  const int pp = PpOf(job), of_replica = batch_size / std::max(1, num_replicas);
  if (pp == 1) return 1;
  int power = 1;
  while (power < pp) power *= 2;
  for (; power <= of_replica; power *= 2) {
    if (of_replica % power == 0) return power;
  }
  return pp;
}

void ResolveLayout(int num_trainers, Job* job) {
  Parallel* const parallel = job->mutable_parallel();
  parallel->set_dp(std::max(1, ReplicasOf(*job, num_trainers)));
  parallel->set_tp(TpOf(*job));
  parallel->set_pp(PpOf(*job));
  parallel->set_microbatches(MicrobatchesOf(*job, job->train().batch_size(), parallel->dp()));
  job->mutable_train()->set_accumulate(parallel->microbatches());
  parallel->set_virtual_stages(ChunksOf(*job));
  if (parallel->schedule() == Parallel::SCHEDULE_UNSPECIFIED)
    parallel->set_schedule(Parallel::ONE_F_ONE_B);
  if (parallel->tp() > 1 && !parallel->has_sequence_parallel())
    parallel->set_sequence_parallel(true);
}

parallel::MeshShape MeshShapeOf(const Job& job) {
  return {.tp = job.parallel().tp(), .dp = job.parallel().dp(), .pp = job.parallel().pp()};
}

int NumTrainers(const Job& job) { return MeshShapeOf(job).size(); }

parallel::ScheduleOptions ScheduleOptionsOf(const Job& job) {
  using parallel::ScheduleKind;
  const Parallel::Schedule schedule = job.parallel().schedule();
  return {.kind = schedule == Parallel::GPIPE         ? ScheduleKind::GPIPE
                  : schedule == Parallel::INTERLEAVED ? ScheduleKind::INTERLEAVED
                  : schedule == Parallel::ZB_H1       ? ScheduleKind::ZB_H1
                                                      : ScheduleKind::ONE_F_ONE_B,
          .num_ranks = job.parallel().pp(),
          .num_chunks = job.parallel().virtual_stages(),
          .num_microbatches = job.parallel().microbatches()};
}

int ClientOf(const Job& job, int rank) {
  const parallel::MeshShape shape = job::MeshShapeOf(job);
  return PlaceOn(Axis::DP, shape, rank) * ClientsOfReplica(job) +
         (PlaceOn(Axis::PP, shape, rank) > 0 ? 1 : 0);
}

int NumClients(const Job& job) { return job.parallel().dp() * ClientsOfReplica(job); }

bool IsClient(const Job& job, int rank) {
  const parallel::MeshShape shape = job::MeshShapeOf(job);
  const int stage = PlaceOn(Axis::PP, shape, rank);
  return PlaceOn(Axis::TP, shape, rank) == 0 && (stage == 0 || stage + 1 == shape.pp);
}

}  // namespace tandem::job
