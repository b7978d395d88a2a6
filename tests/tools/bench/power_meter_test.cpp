#include "testing.hpp"

#include <atomic>
#include <thread>

#include "npu_train/tools/bench/power_meter.hpp"
#include "tools/doctor/fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using namespace std::chrono_literals;

namespace {

const std::string kRapl = "/sys/class/powercap/intel-rapl:";

void add_zone(FakeHost& host, const std::string& number, const std::string& name, const std::string& energy) {
  host.write(kRapl + number + "/name", name + "\n");
  host.write(kRapl + number + "/max_energy_range_uj", "262143328850\n");
  host.write(kRapl + number + "/energy_uj", energy + "\n");
}

struct Server : FakeHost {
  Server() {
    add_zone(*this, "0", "package-0", "1000000");
    add_zone(*this, "0:0", "core", "500000");
    add_zone(*this, "0:1", "dram", "2000000");
    add_zone(*this, "1", "psys", "9000000");
  }
};

/// A meter that queries a device's tool constantly, with a clock that stands still meanwhile.
struct MeteredDevice {
  std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
  std::atomic<int> asked = 0;
  PowerMeter meter;

  MeteredDevice(const FakeHost& host, const Device& device) : meter(counted(host.view()), device, 1ms, clock) {}

  HostView counted(HostView view) {
    view.run = [this, run = view.run](const std::vector<std::string>& words) {
      ++asked;
      return run(words);
    };
    return view;
  }

  EnergyReading of_work(double seconds) {
    meter.start();
    for (const int before = asked; asked < before + 3;) std::this_thread::sleep_for(1ms);  // at least two answers were recorded
    clock->advance(seconds);
    return meter.stop();
  }
};

}  // namespace

TEST_CASE("packages and their memory are summed, what they contain is not, and a counter that wrapped around is read right") {
  Server host;
  const auto clock = std::make_shared<ManualClock>();
  PowerMeter meter(host.view(), Device{}, 0ms, clock);
  CHECK(meter.host_why().empty());
  CHECK(meter.device_why().empty());
  meter.start();
  add_zone(host, "0", "package-0", "4500000");
  add_zone(host, "0:1", "dram", "2500000");
  add_zone(host, "1", "psys", "99000000");
  clock->advance(3);
  auto reading = meter.stop();
  REQUIRE(reading.host_joules.has_value());
  CHECK(*reading.host_joules == doctest::Approx(4.0));
  CHECK(!reading.device_joules.has_value());
  CHECK(reading.seconds == 3);
  // the second measurement begins here and passes the end of the counter's range
  add_zone(host, "0", "package-0", "262143328000");
  meter.start();
  add_zone(host, "0", "package-0", "999150");
  reading = meter.stop();
  CHECK(*reading.host_joules == doctest::Approx(1.0));
}

TEST_CASE("a counter is followed while the work runs") {
  Server host;
  std::atomic<int> looks = 0;  // counts queries of the GPU's tool, one after each reading of the counters
  auto view = host.view();
  view.run = [&looks](const std::vector<std::string>&) {
    ++looks;
    return says("100\n");
  };
  PowerMeter meter(std::move(view), Device{.kind = "cuda", .index = 0}, 1ms);
  meter.start();
  for (const char* energy : {"200000000000", "150000000000", "100000000000"}) {  // passes the end of its range twice
    add_zone(host, "0", "package-0", energy);
    for (const int seen = looks; looks < seen + 2;) std::this_thread::sleep_for(1ms);
  }
  const auto reading = meter.stop();
  REQUIRE(reading.host_joules.has_value());
  CHECK(*reading.host_joules == doctest::Approx(1e-6 * (100'000'000'000 - 1'000'000 + 2 * 262'143'328'850.0)));
}

TEST_CASE("why the host's energy is not known") {
  FakeHost none;
  CHECK(has(PowerMeter(none.view(), Device{}).host_why(), "no /sys/class/powercap"));
  none.folder("/sys/class/powercap/dtpm");
  CHECK(has(PowerMeter(none.view(), Device{}).host_why(), "has no RAPL zone"));
  Server closed;
  closed.remove(kRapl + "0/energy_uj");
  PowerMeter meter(closed.view(), Device{});
  CHECK(has(meter.host_why(), "intel-rapl:0/energy_uj cannot be read by this user"));
  CHECK(has(meter.host_why(), "chmod a+r"));
  meter.start();
  CHECK(!meter.stop().host_joules.has_value());
  // the counter disappears between start and stop
  Server gone;
  PowerMeter lost(gone.view(), Device{});
  lost.start();
  gone.remove(kRapl + "0/energy_uj");
  CHECK(!lost.stop().host_joules.has_value());
}

TEST_CASE("a GPU's power times the time, asked of the GPU that the process sees") {
  FakeHost host;
  host.environment["CUDA_VISIBLE_DEVICES"] = "3,5";
  host.commands["nvidia-smi --query-gpu=power.draw --format=csv,noheader,nounits -i 5"] = says("250.50\n");
  MeteredDevice gpu(host, Device{.kind = "cuda", .index = 1});
  CHECK(gpu.meter.device_why().empty());
  const auto reading = gpu.of_work(2.25);
  CHECK(reading.seconds == 2.25);
  REQUIRE(reading.device_joules.has_value());
  CHECK(*reading.device_joules == doctest::Approx(250.5 * 2.25));
  CHECK(!gpu.of_work(1.75).device_joules.has_value());  // too short for an average over a second
}

TEST_CASE("an NPU's power, in the forms that npu-smi has, by card and chip") {
  const std::pair<const char*, double> forms[] = {
      {"\tNPU ID                         : 2\n\tNPU Real-time Power(W)         : 161.2\n\tChip ID   : 1\n", 161.2},
      {"\tRated Power Dissipation(W)     : 300.0\n\tPower Dissipation(W)           : 12.8\n", 12.8}};
  for (const auto& [text, watts] : forms) {
    FakeHost host;
    host.commands["npu-smi info -m"] = says(
        "\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name\n"
        "\t2                              0                              4                              Ascend910\n"
        "\t2                              1                              5                              Ascend910\n"
        "\t2                              2                              -                              Mcu\n");
    host.commands["npu-smi info -t power -i 2 -c 1"] = says(text);
    MeteredDevice npu(host, Device{.kind = "npu", .index = 5});
    CHECK(npu.meter.device_why().empty());
    const auto reading = npu.of_work(2.25);
    REQUIRE(reading.device_joules.has_value());
    CHECK(*reading.device_joules == doctest::Approx(watts * 2.25));
  }
}

TEST_CASE("why the device's power is not known") {
  FakeHost host;
  const Device gpu{.kind = "cuda"};
  CHECK(PowerMeter(host.view(), gpu).device_why() == "nvidia-smi is not installed");
  CHECK(PowerMeter(host.view(), Device{.kind = "npu"}).device_why() == "npu-smi is not installed");
  host.commands["nvidia-smi"] = says("[N/A]\n");
  CHECK(has(PowerMeter(host.view(), gpu).device_why(), "reports no power: '[N/A]'"));
  host.commands["nvidia-smi"] = says("No devices were found\n", 6);
  CHECK(has(PowerMeter(host.view(), gpu).device_why(), "failed with exit code 6: No devices were found"));
  CHECK(has(PowerMeter(host.view(), Device{.kind = "sim_npu"}).device_why(), "no power consumption of its own"));
}
