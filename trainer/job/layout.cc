#include "trainer/job/layout.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"

namespace tandem::job {

namespace {

int TpOf(const Job& job) { return job.parallel().has_tp() ? job.parallel().tp() : 1; }

std::string Trainers(int count) {
  return absl::StrCat(count, count == 1 ? " trainer" : " trainers");
}

}  // namespace

int ReplicasOf(const Job& job, int num_trainers) {
  const int tp = TpOf(job), dp = job.parallel().has_dp() ? job.parallel().dp() : 0;
  if (tp < 1) return 0;
  if (num_trainers <= 0) return job.parallel().has_dp() ? dp : 1;
  if (num_trainers % tp != 0) return 0;
  return dp == 0 || dp == num_trainers / tp ? num_trainers / tp : 0;
}

void CheckLayout(const Job& job, int num_trainers, Limits* limits) {
  const Parallel& parallel = job.parallel();
  limits->AtLeast(parallel, "parallel.", "dp", 1);
  limits->Between(parallel, "parallel.", "tp", 1, 1024);
  limits->Between(parallel, "parallel.", "zero", 0, 3);
  limits->AtLeast(parallel, "parallel.", "memory_bytes", 0);
  const int tp = TpOf(job);
  const bool served =
      std::any_of(job.parameters().begin(), job.parameters().end(),
                  [](const Parameters& entry) { return entry.placement() == Job::PS; });
  if (served && parallel.zero() > 0) {
    limits->Refuse("parallel.zero", parallel.zero(),
                   "0 with dense parameters on servers (parameters[].placement PS)");
  }
  if (served && tp > 1) {
    limits->Refuse("parallel.tp", tp,
                   "1 with dense parameters on servers (parameters[].placement PS)");
  }
  if (tp == 1 && parallel.sequence_parallel())
    limits->Refuse("parallel.sequence_parallel", "true", "false with parallel.tp 1");
  if (num_trainers <= 0 || tp < 1 || ReplicasOf(job, num_trainers) > 0) return;
  if (num_trainers % tp != 0 && parallel.dp() > 0) {
    limits->Fail("parallel.dp",
                 absl::StrCat("impossible layout: parallel.dp is ", parallel.dp(),
                              " and parallel.tp ", tp, " with ", Trainers(num_trainers),
                              "; allowed: ", Trainers(parallel.dp() * tp)));
  } else if (num_trainers % tp != 0) {
    limits->Fail("parallel.tp",
                 absl::StrCat("impossible layout: parallel.tp is ", tp, " with ",
                              Trainers(num_trainers), "; allowed: a divisor of ", num_trainers));
  } else if (parallel.dp() > 0) {
    const int dp = num_trainers / tp;
    limits->Fail("parallel.dp", absl::StrCat("impossible layout: parallel.dp is ", parallel.dp(),
                                             tp == 1 ? "" : absl::StrCat(" and parallel.tp ", tp),
                                             " with ", Trainers(num_trainers), "; allowed: ", dp,
                                             tp == 1 ? ", the number of trainers"
                                                     : ", the number of trainers divided by tp"));
  }
}

void ResolveLayout(int num_trainers, Job* job) {
  Parallel* const parallel = job->mutable_parallel();
  parallel->set_dp(std::max(1, ReplicasOf(*job, num_trainers)));
  parallel->set_tp(TpOf(*job));
  if (parallel->tp() == 1) return;
  if (!parallel->has_sequence_parallel()) parallel->set_sequence_parallel(true);
}

int NumTrainers(const Job& job) { return job.parallel().dp() * job.parallel().tp(); }

}  // namespace tandem::job
