#include "trainer/loop/stage_watch.h"

#include "absl/strings/str_cat.h"

namespace tandem::loop {

StageWatch::StageWatch(const parallel::Pipeline* pipeline, parallel::GradientSync* sync)
    : pipeline_(*pipeline), sync_(*sync) {
  const parallel::PipelineSchedule& schedule = pipeline_.schedule();
  for (const parallel::StageOp& op : schedule.ranks[pipeline_.rank()]) {
    if (schedule.num_stages() == 1) {
      names_.emplace_back(op.work == parallel::StageWork::FORWARD ? "forward" : "backward");
    } else {
      names_.push_back(absl::StrCat(op.ToString(/*num_chunks=*/1), " stage ",
                                    schedule.StageOf(pipeline_.rank(), op.chunk)));
    }
    wait_names_.push_back(absl::StrCat("wait ", names_.back()));
  }
}

void StageWatch::BeginList(Context& context) {
  context_ = &context;
  place_ = 0;
  measures_ = num_lists_++ > 0 && !context.stream().on_cuda();
  list_seconds_ = 0;
}

void StageWatch::EndList() {
  span_.reset();
  if (measures_) times_.seconds += list_seconds_;
}

void StageWatch::Waits(const parallel::StageOp&) {
  span_.emplace(context_->stream(), SpanKind::PHASE, wait_names_[place_].c_str());
}

void StageWatch::Begins(const parallel::StageOp& op) {
  span_.reset();
  if (op.work == parallel::StageWork::FORWARD) sync_.BeginPass(*context_, op.microbatch);
  span_.emplace(context_->stream(), SpanKind::PHASE, names_[place_].c_str());
  of_op_ = Stopwatch();
  if (place_ == 0) of_list_ = of_op_;
}

void StageWatch::Ends(const parallel::StageOp&) {
  if (measures_) times_.busy_seconds += of_op_.Seconds();
  list_seconds_ = of_list_.Seconds();
  span_.reset();
  ++place_;
}

}  // namespace tandem::loop
