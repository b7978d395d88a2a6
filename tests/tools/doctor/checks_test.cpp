#include "testing.hpp"

#include "npu_train/tools/doctor/checks.hpp"

#include <set>

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("machines that are well set up pass every check") {
  for (auto* make : {&make_laptop, &make_cuda_box, &make_ascend_box}) {
    Machine m;
    make(m);
    const auto report = m.report();
    CHECK(not_ok(report.findings) == "");
    CHECK(report.passed() == report.total());
    CHECK((report.worst() == Verdict::Ok));
  }
}

TEST_CASE("a laptop has no GPU and no NPU: reported in one line each, not counted") {
  Machine m;
  make_laptop(m);
  const auto report = m.report();
  CHECK((finding_of(check_cuda(m.host.view(), m.process), "NVIDIA GPU").verdict == Verdict::NotHere));
  CHECK((finding_of(check_ascend(m.host.view(), m.process), "Ascend NPU").verdict == Verdict::NotHere));
  CHECK(report.count(Verdict::NotHere) == 2);
  CHECK(report.total() == report.findings.size() - 2);
  CHECK(m.host.asked.empty());  // no command was run
}

TEST_CASE("every check has a name of its own in its area, a finding and evidence; what is not OK has a fix") {
  for (auto* make : {&make_laptop, &make_cuda_box, &make_ascend_box}) {
    Machine m;
    make(m);
    m.host.environment["ASCEND_LAUNCH_BLOCKING"] = "1";
    m.host.environment["TASK_QUEUE_ENABLE"] = "9";
    m.host.remove("/proc/meminfo");
    m.host.remove("/dev/shm");
    m.host.remove("/proc/self/limits");
    std::set<std::pair<std::string, std::string>> names;
    int64_t bad = 0;
    for (const auto& f : m.report().findings) {
      CHECK(names.insert({f.area, f.name}).second);
      CHECK_MESSAGE(!f.finding.empty(), f.name);
      CHECK_MESSAGE(!f.evidence.empty(), f.name);
      if (f.verdict != Verdict::Warn && f.verdict != Verdict::Fail) continue;
      CHECK_MESSAGE(!f.fix.empty(), f.name);
      ++bad;
    }
    CHECK(bad > 0);
  }
}

TEST_CASE("a root without anything is findings, not an exception") {
  Machine m;
  m.process = process_on("x86_64", 1);
  m.host.disk.reset();
  const auto report = m.report();
  CHECK((report.worst() == Verdict::Fail));  // no disk
  CHECK((finding_of(report.findings, "model").verdict == Verdict::Warn));
  CHECK((finding_of(report.findings, "memory").verdict == Verdict::Warn));
  CHECK((finding_of(report.findings, "cores").verdict == Verdict::Ok));
}

TEST_CASE("files with invalid content are findings, not exceptions") {
  std::string nonsense;
  for (int i = 0; i < 50'000; ++i) nonsense += static_cast<char>(i * 131 % 256);
  for (auto* make : {&make_laptop, &make_cuda_box, &make_ascend_box}) {
    Machine m;
    make(m);
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(m.host.root()))
      if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
    REQUIRE(files.size() > 5);
    for (const auto& file : files) {
      const auto name = "/" + file.lexically_relative(m.host.root()).string();
      const auto good = m.host.text(name);
      for (const auto& bad : {nonsense, std::string(), std::string("-1\n"), std::string("99999999999999999999 kB\n")}) {
        m.host.write(name, bad);
        CHECK(m.report().findings.size() > 10);
      }
      m.host.write(name, good);
    }
    for (const auto& name : {std::string("npu-smi info"), std::string(kNvidiaQuery)}) {
      m.host.commands[name] = says(nonsense);
      CHECK(m.report().findings.size() > 10);
    }
  }
}

TEST_CASE("without libtorch nothing is said about it, and everything else is checked") {
  for (auto* make : {&make_laptop, &make_cuda_box, &make_ascend_box}) {
    Machine m;
    make(m);
    std::set<std::string> with, without;
    for (const auto& f : m.report().findings) with.insert(f.area + " " + f.name);
    m.process.torch_loaded = false;
    m.process.cuda_runtime = m.process.cuda_devices = 0;
    for (const auto& f : m.report().findings) without.insert(f.area + " " + f.name);
    for (const char* name : {"system libtorch", "cpu kernels", "cpu threads", "cuda libtorch", "cuda TF32"}) with.erase(name);
    CHECK(without == with);
  }
}

TEST_CASE("a process without libtorch knows the machine and what it was compiled with") {
  const auto process = process_without_libtorch("2.13.0");
  CHECK(!process.torch_loaded);
  CHECK(!process.machine.empty());
  CHECK(!process.npu_train.empty());
  CHECK(!process.libc.empty());
  CHECK(process.torch_headers == "2.13.0");
  CHECK(process.pid > 0);
  const auto report = check_machine(HostView::live(), process, {.write_bytes = 0});
  CHECK(report.total() >= 10);
  CHECK((finding_of(report.findings, "model").verdict != Verdict::Fail));
}
