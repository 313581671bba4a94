// `tandem bench step`: the speed of a whole training step, measured in the training loop itself,
// and where its time goes.
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/terminal.h"
#include "kernels/cpu/matmul/bf16_tiles.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "trainer/bench/ceilings.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/data.h"
#include "trainer/bench/figures.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/report.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_options.h"
#include "trainer/loop/train_loop.h"
#include "trainer/report/json.h"
#include "trainer/report/text_table.h"

namespace tandem::bench {

namespace {

constexpr int kTracedSteps = 4;

// The steps before the measured ones. By then a GPU has recorded its step as a graph
// (loop/step_passes.h).
int WarmUpSteps(Device device) { return device.is_cuda() ? 8 : 4; }

// The time of one kind or one name of kernel, without the time of nested spans.
struct Share {
  double seconds = 0, flops = 0, other_flops = 0, bytes = 0;
  int64_t calls = 0;
};

struct StepProfile {
  double step_seconds = 0;               // one traced step
  std::map<std::string, Share> kernels;  // by kind and name, per step
};

struct Measured {
  std::string job;
  int threads = 1;
  std::string dtype;
  double samples_per_second = 0, tokens_per_second = 0, step_seconds = 0;
  Device device;
  StepProfile profile;
  Ceilings ceilings;
};

// Spans of one thread are nested or disjoint; a span's own time excludes its children. Spans before
// the second step are not counted: in the first traced step, which follows steps that ran as a
// graph, a device allocates memory.
StepProfile ProfileOf(const RoleTrace& trace, int num_steps) {
  std::vector<int64_t> steps;
  for (const RecordedSpan& span : trace.spans()) {
    if (trace.names(static_cast<int>(span.kind())) == NameOf(SpanKind::STEP))
      steps.push_back(span.begin_ns());
  }
  std::sort(steps.begin(), steps.end());
  std::vector<const RecordedSpan*> spans;
  for (const RecordedSpan& span : trace.spans()) {
    if (span.thread() != 0 && steps.size() > 1 && span.begin_ns() >= steps[1])
      spans.push_back(&span);
  }
  std::sort(spans.begin(), spans.end(), [](const RecordedSpan* a, const RecordedSpan* b) {
    return std::tuple(a->thread(), a->begin_ns(), -a->duration_ns()) <
           std::tuple(b->thread(), b->begin_ns(), -b->duration_ns());
  });
  StepProfile profile;
  std::vector<const RecordedSpan*> open;
  const auto share_of = [&](const RecordedSpan& span) -> Share& {
    return profile.kernels[absl::StrCat(trace.names(static_cast<int>(span.kind())), "/",
                                        trace.names(static_cast<int>(span.name())))];
  };
  for (const RecordedSpan* span : spans) {
    const double seconds = static_cast<double>(span->duration_ns()) * 1e-9 / num_steps;
    if (trace.names(static_cast<int>(span->kind())) == NameOf(SpanKind::STEP)) {
      profile.step_seconds += seconds;
      continue;
    }
    if (trace.names(static_cast<int>(span->kind())) == NameOf(SpanKind::PHASE)) continue;
    while (!open.empty() &&
           (open.back()->thread() != span->thread() ||
            open.back()->begin_ns() + open.back()->duration_ns() <= span->begin_ns())) {
      open.pop_back();
    }
    if (!open.empty()) share_of(*open.back()).seconds -= seconds;
    open.push_back(span);
    Share& share = share_of(*span);
    share.seconds += seconds;
    share.flops += span->flops() / num_steps;
    share.other_flops += span->other_flops() / num_steps;
    share.bytes += span->bytes() / num_steps;
    ++share.calls;
  }
  return profile;
}

absl::StatusOr<Ceilings> CeilingsOf(Device device, int threads, bool bf16) {
  return device.is_cuda() ? MeasureDeviceCeilings(device)
                          : MeasureCeilings(threads, bf16 ? DType::BF16 : DType::F32);
}

absl::StatusOr<Measured> Measure(const BenchJob& bench, int threads, bool bf16, int num_steps) {
  Job job = bench.job;
  job.mutable_runtime()->set_threads(threads);
  job.mutable_train()->set_precision(bf16 ? Train::BF16 : Train::F32);
  job.mutable_train()->set_max_epochs(0);
  ASSIGN_OR_RETURN(const job::ComputePlace place,
                   job::DeviceOf(job, /*place=*/0, /*num_trainers=*/1));
  const Device device = place.device;
  const int warm_up_steps = WarmUpSteps(device);
  // The evaluation after the last step is not traced.
  job.mutable_train()->set_max_steps(warm_up_steps + num_steps + 1 + kTracedSteps + 1);
  job.mutable_train()->set_eval_every_steps(job.train().max_steps());
  job.mutable_train()->set_log_every_steps(static_cast<int>(job.train().max_steps()));
  job.mutable_trace()->set_first_step(warm_up_steps + num_steps + 1);
  job.mutable_trace()->set_steps(1 + kTracedSteps);

  Measured measured;
  measured.job = job.name();
  measured.threads = threads;
  measured.dtype = bf16 ? "bf16" : "f32";
  measured.device = device;
  ASSIGN_OR_RETURN(const Ceilings before, CeilingsOf(device, threads, bf16));
  std::vector<double> samples, tokens;
  report::OnStep on_step([&](const report::StepRecord& record) {
    if (record.step <= warm_up_steps || record.step > warm_up_steps + num_steps) return;
    samples.push_back(record.samples_per_second);
    tokens.push_back(record.tokens_per_second);
  });
  ps::TableHost host(1);
  ps::LocalClient client(host, /*trainer=*/0, /*num_trainers=*/1);
  const auto groups =
      comm::ThreadGroup::Create(1, "dp", absl::Seconds(job.runtime().timeout_seconds()));
  const auto summary = loop::RunReplica(job, *bench.data,
                                        {.group = groups[0].get(),
                                         .clients = ps::ClientsOf(client),
                                         .device = device,
                                         .compute = bf16 ? DType::BF16 : DType::F32,
                                         .observer = &on_step,
                                         .on_trace = [&](const std::vector<RoleTrace>& traces) {
                                           measured.profile = ProfileOf(traces[0], kTracedSteps);
                                         }});
  RETURN_IF_ERROR(summary.status());
  measured.samples_per_second = Median(samples);
  measured.tokens_per_second = Median(tokens);
  measured.step_seconds = job.train().batch_size() / measured.samples_per_second;
  ASSIGN_OR_RETURN(const Ceilings after, CeilingsOf(device, threads, bf16));
  measured.ceilings = Mean(before, after);  // clocks change from one second to the next
  return measured;
}

// The least time that the work takes at the measured ceilings; 0 if the span does not state its
// work.
double LeastSeconds(const std::string& name, const Share& share, const Measured& m) {
  const bool is_gemm = name.rfind("gemm/", 0) == 0, is_attention = name.rfind("attention/", 0) == 0;
  const bool on_cuda = m.device.is_cuda();
  const bool in_tiles =
      m.dtype == "bf16" && (is_gemm || (is_attention && (on_cuda || kernels::UsesTiles())));
  const bool split = name.rfind("gemm/split_", 0) == 0;
  const double flops_per_second = split      ? m.ceilings.f32_split
                                  : in_tiles ? m.ceilings.bf16_matmul
                                  : is_gemm  ? m.ceilings.f32_matmul
                                             : m.ceilings.f32_fma;
  // A device has separate units for exponentials, beside its tensor cores.
  const double other_seconds = on_cuda ? 0 : share.other_flops / m.ceilings.f32_fma;
  return std::max(share.flops / flops_per_second + other_seconds,
                  is_gemm ? 0 : share.bytes / m.ceilings.copy_bytes);
}

// Kernels that take less than a two-hundredth of the step are left out.
void PrintKernels(const std::vector<std::pair<std::string, Share>>& kernels, const Measured& m) {
  report::TextTable table({{"kernel", report::TextTable::LEFT},
                           {"ms"},
                           {"step"},
                           {"calls"},
                           {"GFLOP/s"},
                           {"GB/s"},
                           {"ceiling"}});
  for (const auto& [name, share] : kernels) {
    if (share.seconds < 0.005 * m.profile.step_seconds) continue;
    table.Add({name, FigureText(share.seconds * 1e3, 2),
               absl::StrFormat("%.1f %%", 100 * share.seconds / m.profile.step_seconds),
               FigureText(static_cast<double>(share.calls) / kTracedSteps, 1),
               FigureText(share.flops / share.seconds * 1e-9, 1),
               FigureText(share.bytes / share.seconds * 1e-9, 1),
               absl::StrFormat("%.0f %%", 100 * LeastSeconds(name, share, m) / share.seconds)});
  }
  std::printf("%s", table.TakeLines(TerminalColumns()).c_str());
}

void Print(const Measured& m) {
  std::printf("\n%s  %s  %d thread%s   %.0f tokens/s  %.1f samples/s  %.1f ms a step on %s\n",
              m.job.c_str(), m.dtype.c_str(), m.threads, m.threads == 1 ? "" : "s",
              m.tokens_per_second, m.samples_per_second, m.step_seconds * 1e3,
              cli::DeviceName(m.device));
  std::fflush(stdout);
  const std::string split = m.ceilings.f32_split > 0 ? absl::StrFormat(", in pieces of bf16 %.0f",
                                                                       m.ceilings.f32_split * 1e-9)
                                                     : "";
  const std::string alone = m.ceilings.f32_fma_alone > 0
                                ? absl::StrFormat(" (alone %.0f)", m.ceilings.f32_fma_alone * 1e-9)
                                : "";
  std::printf(
      "  ceilings of this run: f32 matmul %.0f%s, bf16 matmul %.0f, f32 fma %.0f%s GFLOP/s, copy "
      "%.1f GB/s\n",
      m.ceilings.f32_matmul * 1e-9, split.c_str(), m.ceilings.bf16_matmul * 1e-9,
      m.ceilings.f32_fma * 1e-9, alone.c_str(), m.ceilings.copy_bytes * 1e-9);
  std::map<std::string, double> kinds;
  double matmul_seconds = 0, least_seconds = 0, saved_seconds = 0, other = m.profile.step_seconds;
  std::vector<std::pair<std::string, Share>> kernels(m.profile.kernels.begin(),
                                                     m.profile.kernels.end());
  std::sort(kernels.begin(), kernels.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  for (const auto& [name, share] : kernels) {
    kinds[name.substr(0, name.find('/'))] += share.seconds;
    other -= share.seconds;
    // Data still in a cache arrive faster than a copy's, so a kernel never needs less than its
    // measured time.
    const double least = std::min(LeastSeconds(name, share, m), share.seconds);
    least_seconds += least;
    if (name.rfind("gemm/", 0) == 0)
      matmul_seconds += least;
    else
      saved_seconds += share.seconds - least;
  }
  if (m.device.is_cuda()) std::printf("  kernels of steps that ran one by one, without a graph:\n");
  const auto print_at_ceilings = [&](const char* what, double seconds) {
    std::printf("%s %.1f ms, %.0f %%", what, seconds * 1e3, 100 * seconds / m.step_seconds);
  };
  print_at_ceilings("  at their ceilings the matmuls alone:", matmul_seconds);
  std::printf(" of the step");
  print_at_ceilings("; every kernel:", least_seconds);
  print_at_ceilings("; the step with all but the matmuls at theirs:",
                    m.step_seconds - saved_seconds);
  std::printf("\n  by kind:");
  for (const auto& [kind, seconds] : kinds)
    std::printf(" %s %.1f %%", kind.c_str(), 100 * seconds / m.profile.step_seconds);
  std::printf(" rest %.1f %%\n", 100 * other / m.profile.step_seconds);
  PrintKernels(kernels, m);
  std::fflush(stdout);
}

std::string JsonObject(const Measured& m) {
  return report::JsonText({{"job", m.job},
                           {"threads", m.threads},
                           {"dtype", m.dtype},
                           {"device", cli::DeviceName(m.device)},
                           {"tokens_per_second", report::NineDigits(m.tokens_per_second)},
                           {"samples_per_second", report::NineDigits(m.samples_per_second)}});
}

struct Combination {
  const BenchJob* bench;
  int threads;
  bool bf16;
};

// Lists the combinations to measure. Refuses bf16 for a job that was named on the command line and
// has no bf16.
absl::StatusOr<std::vector<Combination>> Plan(const StepOptions& options, const tasks::Kinds& kinds,
                                              const std::vector<BenchJob>& benches) {
  const auto asked = [&](const char* dtype) {
    return options.dtypes.empty() ||
           std::count(options.dtypes.begin(), options.dtypes.end(), dtype) > 0;
  };
  std::vector<Combination> plan;
  for (const BenchJob& bench : benches) {
    ASSIGN_OR_RETURN(const job::ComputePlace place,
                     job::DeviceOf(bench.job, /*place=*/0, /*num_trainers=*/1));
    // Threads of the CPU change nothing on a device.
    const std::vector<int> both{1, 2}, one{1};
    const std::vector<int>& threads = !options.threads.empty() ? options.threads
                                      : place.device.is_cuda() ? one
                                                               : both;
    const job::ModelRules& kind = kinds.Of(bench.job).rules;
    const bool has_bf16 = kind.has_bf16;
    if (!has_bf16 && asked("bf16") && !options.dtypes.empty() && !options.presets.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--dtype bf16 with ", bench.job.name(), ", a ",
                                                     kind.name, "; allowed: f32"));
    }
    for (const int count : threads) {
      if (asked("f32")) plan.push_back({&bench, count, false});
      if (asked("bf16") && has_bf16) plan.push_back({&bench, count, true});
    }
  }
  return plan;
}

absl::Status Run(const StepOptions& options, const tasks::Kinds& kinds) {
  const std::vector<std::string> presets =
      options.presets.empty() ? std::vector<std::string>{"gpt", "sasrec"} : options.presets;
  std::vector<BenchJob> benches;
  for (const std::string& preset : presets) {
    ASSIGN_OR_RETURN(BenchJob bench, MakeBenchJob(preset, options.sets, kinds));
    benches.push_back(std::move(bench));
  }
  ASSIGN_OR_RETURN(const std::vector<Combination> plan, Plan(options, kinds, benches));
  FigureFile json(options.json);
  RETURN_IF_ERROR(json.status());
  std::vector<std::string> objects;
  for (const Combination& combination : plan) {
    ASSIGN_OR_RETURN(Measured measured, Measure(*combination.bench, combination.threads,
                                                combination.bf16, options.steps));
    Print(measured);
    objects.push_back(JsonObject(measured));
  }
  return json.Write(objects);
}

}  // namespace

int BenchStep(const StepOptions& options, const tasks::Kinds& kinds) {
  const absl::Status status = Run(options, kinds);
  return status.ok() ? 0 : cli::ReportError(status);
}

}  // namespace tandem::bench
