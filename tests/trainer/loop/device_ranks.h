// Runs a job whose ranks are threads, each on the device that the job gives it.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "rpc/store/store.h"
#include "tests/support/temp_folder.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_options.h"
#include "trainer/loop/train_loop.h"

namespace tandem::loop {

// Returns rank 0's summary, and shows `on_step` rank 0's steps. The test fails unless all ranks end
// well.
inline report::RunSummary RunOnDevices(
    const Job& job, const tasks::JobData& data, int size,
    const std::function<void(const report::StepRecord&)>& on_step) {
  const support::TempFolder folder;
  testing::internal::CaptureStdout();
  auto output = report::RunOutput::Create(folder / "out", report::LogFormat::JSON);
  ps::TableHost host(1);
  rpc::MemoryStore store;
  auto groups = comm::ThreadGroup::Create(size, "trainers");
  report::RunSummary first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ps::LocalClient client(host, static_cast<uint32_t>(rank), static_cast<uint32_t>(size));
      const auto place = job::DeviceOf(job, rank, size);
      ASSERT_TRUE(place.ok()) << place.status();
      comm::DeviceGroup device_group;
      if (place->device.is_cuda() && size > 1) {
        auto made = job::MakeDeviceGroup(job, *place, groups[rank].get(), &store);
        ASSERT_TRUE(made.ok()) << made.status();
        device_group = *std::move(made);
      }
      report::OnStep observer(on_step);
      const auto summary = RunReplica(job, data,
                                      {.group = groups[rank].get(),
                                       .clients = ps::ClientsOf(client),
                                       .output = rank == 0 ? output->get() : nullptr,
                                       .device = place->device,
                                       .device_group = device_group.group.get(),
                                       .observer = rank == 0 ? &observer : nullptr});
      ASSERT_TRUE(summary.ok()) << summary.status();
      if (rank == 0) first = *summary;
    });
  }
  for (std::thread& thread : threads) thread.join();
  testing::internal::GetCapturedStdout();
  return first;
}

}  // namespace tandem::loop
