#include "testing.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "fake_host.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/tools/doctor/checks.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

DoctorReport sample() {
  return {{{"cpu", "cores", Verdict::Ok, "4 processors", "/proc/cpuinfo"},
           {"cpu", "threads", Verdict::Warn, "too many", "64", "export OMP_NUM_THREADS=4"},
           {"cuda", "NVIDIA GPU", Verdict::NotHere, "none", "no driver"},
           {"disk", "space", Verdict::Fail, "full", "0 B", "make room"}}};
}

}  // namespace

TEST_CASE("missing parts do not count; the worst verdict wins") {
  auto report = sample();
  CHECK(report.passed() == 1);
  CHECK(report.total() == 3);
  CHECK((report.worst() == Verdict::Fail));
  CHECK(report.summary() == "1 of 3 checks passed, 1 warning, 1 failed");
  report.findings.pop_back();
  CHECK((report.worst() == Verdict::Warn));
  CHECK(report.summary() == "1 of 2 checks passed, 1 warning");
  report.add({{"x", "y", Verdict::Warn, "a", "b", "c"}});
  CHECK(report.summary() == "1 of 3 checks passed, 2 warnings");
  CHECK((DoctorReport().worst() == Verdict::Ok));
  CHECK(DoctorReport().summary() == "0 of 0 checks passed");
}

TEST_CASE("as many findings are listed as the summary counts") {
  for (const size_t n : {1, 2, 5, 60}) {
    DoctorReport report;
    for (size_t i = 0; i < n; ++i) {
      report.add({{"a", "good", Verdict::Ok, "fine", "seen"}});
      report.add({{"a", "odd", Verdict::Warn, "slow", "seen", "do"}, {"a", "bad", Verdict::Fail, "wrong", "seen", "do"}});
    }
    const auto number = std::to_string(n);
    CHECK(report.summary() == number + " of " + std::to_string(3 * n) + " checks passed, " + number +
                                  (n == 1 ? " warning, " : " warnings, ") + number + " failed");
    const auto text = to_text(report);
    for (const std::string word : {"fine", "slow", "wrong"}) {
      size_t lines = 0;
      for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++lines;
      CHECK(lines == n);
    }
  }
}

TEST_CASE("the text: summary, areas, evidence, fix") {
  CHECK(to_text(sample()) ==
        "1 of 3 checks passed, 1 warning, 1 failed\n"
        "\n"
        "cpu\n"
        "  OK    cores: 4 processors\n"
        "        seen: /proc/cpuinfo\n"
        "  WARN  threads: too many\n"
        "        seen: 64\n"
        "        fix:  export OMP_NUM_THREADS=4\n"
        "\n"
        "cuda\n"
        "  -     NVIDIA GPU: none\n"
        "        seen: no driver\n"
        "\n"
        "disk\n"
        "  FAIL  space: full\n"
        "        seen: 0 B\n"
        "        fix:  make room\n");
}

TEST_CASE("lines are broken at blanks, and long words are on separate lines") {
  CHECK(wrapped("aa bb cc dd", "> ", "  ", 7) == "> aa bb\n  cc dd\n");
  CHECK(wrapped("aa bb", "> ", "  ", 0) == "> aa bb\n");
  CHECK(wrapped("abcdefghijkl mn", "> ", "  ", 6) == "> abcdefghijkl\n  mn\n");
  CHECK(wrapped("", "> ", "  ", 6) == "> \n");
  DoctorReport report;
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word" + std::to_string(i) + " ";
  report.findings = {{"a", "b", Verdict::Warn, words, words, words}};
  std::istringstream lines(to_text(report, 60));
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 60);
}

TEST_CASE("what the machine says cannot act on the terminal or the page") {
  DoctorReport report;
  report.findings = {{"a", "b\x1b[2J", Verdict::Warn, "x\x1b]0;t\x07", "<script>alert(1)</script>\r\n\xff",
                      "\x9b"
                      "31m"}};
  for (const unsigned char c : to_text(report)) CHECK((c == '\n' || (c >= 0x20 && c < 0x7F)));
  CHECK(has(to_text(report), "\\x1b[2J"));
  CHECK(!has(to_html(report), "<script>alert"));
  CHECK(parse_json(to_json(report).dump(), "report").is_object());
}

TEST_CASE("JSON and HTML hold all of it") {
  const auto json = to_json(sample());
  CHECK(json.at("passed", "x").integer("x") == 1);
  CHECK(json.at("total", "x").integer("x") == 3);
  CHECK(json.at("verdict", "x").text("x") == "fail");
  const auto& findings = json.at("findings", "x").items("x");
  REQUIRE(findings.size() == 4);
  CHECK(findings[1].at("fix", "x").text("x") == "export OMP_NUM_THREADS=4");
  CHECK(findings[2].at("verdict", "x").text("x") == "not here");
  const auto page = to_html(sample());
  for (const char* part :
       {"Training would fail on this machine or compute wrong numbers: space failed.", "1 of 3", "OMP_NUM_THREADS", "make room"})
    CHECK(has(page, part));
}

TEST_CASE("files are read up to a bound; folders, pipes and what is missing are nothing") {
  FakeHost host;
  host.write("/etc/a", "hello");
  host.folder("/etc/folder");
  ::mkfifo((host.root() / "pipe").c_str(), 0600);
  const auto view = host.view();
  CHECK(view.read("/etc/a") == "hello");
  CHECK(view.read("/etc/a", 3) == "hel");
  CHECK(!view.read("/etc/folder"));
  CHECK(!view.read("/pipe"));  // also does not wait for a writer
  CHECK(!view.read("/none"));
  CHECK(view.exists("/etc/a"));
  CHECK(!view.is_folder("/etc/a"));
  CHECK((view.list("/etc") == std::vector<std::string>{"a", "folder"}));
  CHECK(view.list("/none").empty());
}

TEST_CASE("links are followed inside the root") {
  FakeHost host;
  host.write("/opt/cann-9.1.0/version", "9");
  host.link("/opt/cann", "cann-9.1.0");
  CHECK(host.view().read("/opt/cann/version") == "9");
  CHECK(host.view().resolved("/opt/cann") == "/opt/cann-9.1.0");
  CHECK(host.view().resolved("/opt/none") == "/opt/none");
  host.link("/out", "/etc");
  CHECK(host.view().resolved("/out") == "/out");
}

TEST_CASE("this machine: only known variables are read") {
  ::setenv("NPU_TRAIN_DOCTOR_SECRET_TOKEN", "hidden", 1);
  ::setenv("ASCEND_LAUNCH_BLOCKING", "1", 1);
  const auto view = HostView::live();
  ::unsetenv("ASCEND_LAUNCH_BLOCKING");
  CHECK(view.variable("ASCEND_LAUNCH_BLOCKING") == "1");
  CHECK(!view.has_variable("NPU_TRAIN_DOCTOR_SECRET_TOKEN"));
  CHECK(view.variable("NPU_TRAIN_DOCTOR_SECRET_TOKEN").empty());
  CHECK(view.space("/")->total > 0);
  CHECK(!view.space("/no/such/place"));
  CHECK(view.may_use("/dev/null"));
  CHECK(!view.may_use("/no/such/place"));
}

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
