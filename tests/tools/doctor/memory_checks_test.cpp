#include "testing.hpp"

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Finding memory(const Machine& m, const std::string& name) { return finding_of(check_memory(m.host.view()), name); }

}  // namespace

TEST_CASE("memory of the machine and of its control group") {
  Machine m;
  make_laptop(m);
  CHECK(has(memory(m, "memory").finding, "12.0 GiB available of 16.0 GiB"));
  SUBCASE("a limit of version 2: file pages that can be dropped do not count as used") {
    m.host.write("/sys/fs/cgroup/user.slice/memory.max", std::to_string(4 * kGiB) + "\n");
    m.host.write("/sys/fs/cgroup/user.slice/memory.current", std::to_string(3 * kGiB) + "\n");
    m.host.write("/sys/fs/cgroup/user.slice/memory.stat", "anon 1\ninactive_file " + std::to_string(2 * kGiB) + "\n");
    CHECK((memory(m, "memory").verdict == Verdict::Ok));
    CHECK(has(memory(m, "memory").finding, "3.0 GiB available of 4.0 GiB"));
    m.host.write("/sys/fs/cgroup/user.slice/memory.stat", "inactive_file 0\n");
    CHECK((memory(m, "memory").verdict == Verdict::Warn));
    CHECK(has(memory(m, "memory").fix, "--memory"));
    m.host.write("/sys/fs/cgroup/user.slice/memory.current", std::to_string(4 * kGiB - 1000) + "\n");
    CHECK((memory(m, "memory").verdict == Verdict::Fail));
  }
  SUBCASE("version 1 without a limit") {
    m.host.write("/proc/self/cgroup", "3:memory:/\n");
    m.host.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK(!has(memory(m, "memory").evidence, "control group"));
  }
  SUBCASE("killed before") {
    m.host.write("/sys/fs/cgroup/user.slice/session.scope/memory.events", "low 0\noom 3\noom_kill 2\n");
    CHECK((memory(m, "memory").verdict == Verdict::Warn));
    CHECK(has(memory(m, "memory").finding, "killed for lack of memory 2 times"));
  }
  SUBCASE("a machine that is full") {
    m.host.write("/proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 1000000 kB\nSwapTotal: 8000000 kB\nSwapFree: 1000000 kB\n");
    CHECK((memory(m, "memory").verdict == Verdict::Warn));
    CHECK(has(memory(m, "memory").fix, "end other programs"));
    CHECK(has(memory(m, "swap and overcommit").finding, "swapping"));
  }
}

TEST_CASE("memory that must be backed at once") {
  Machine m;
  make_laptop(m);
  m.host.write("/proc/sys/vm/overcommit_memory", "2\n");
  CHECK((memory(m, "swap and overcommit").verdict == Verdict::Warn));
  CHECK(has(memory(m, "swap and overcommit").fix, "overcommit_memory=0"));
}

TEST_CASE("/dev/shm of docker, full, missing") {
  Machine m;
  make_laptop(m);
  m.host.spaces["/dev/shm"] = {64 << 20, 64 << 20, 1000};
  CHECK((memory(m, "/dev/shm").verdict == Verdict::Warn));
  CHECK(has(memory(m, "/dev/shm").fix, "--shm-size"));
  m.host.spaces["/dev/shm"] = {8 * kGiB, 100 << 20, 1000};
  CHECK(has(memory(m, "/dev/shm").fix, "ls -la /dev/shm"));
  m.host.remove("/dev/shm");
  CHECK((memory(m, "/dev/shm").verdict == Verdict::Warn));
  CHECK(has(memory(m, "/dev/shm").fix, "--ipc=host"));
}

TEST_CASE("ulimits that are in the way") {
  Machine m;
  make_laptop(m);
  const auto with = [&](const std::string& name, const std::string& soft, const std::string& hard = "unlimited") {
    Machine broken;
    make_laptop(broken);
    const auto before = broken.host.text("/proc/self/limits");
    const auto at = before.find(name);
    REQUIRE(at != std::string::npos);
    broken.host.write("/proc/self/limits",
                      before.substr(0, at) + name + "   " + soft + "   " + hard + "  units\n" + before.substr(before.find('\n', at) + 1));
    return memory(broken, "ulimits");
  };
  CHECK((memory(m, "ulimits").verdict == Verdict::Ok));
  CHECK((with("Max open files", "256").verdict == Verdict::Warn));
  CHECK(has(with("Max open files", "256").fix, "ulimit -n"));
  CHECK((with("Max open files", "20").verdict == Verdict::Fail));
  CHECK((with("Max address space", "8589934592").verdict == Verdict::Warn));
  CHECK((with("Max address space", "1000000000").verdict == Verdict::Fail));
  CHECK(has(with("Max file size", "1000000000").finding, "SIGXFSZ"));
  CHECK(has(with("Max cpu time", "3600").finding, "SIGXCPU"));
  CHECK((with("Max processes", "100").verdict == Verdict::Warn));
  // a user can raise a limit up to the hard one
  CHECK(with("Max file size", "1000000000").fix == "ulimit -f unlimited");
  CHECK(with("Max open files", "256", "4096").fix == "ulimit -n 4096");
  CHECK(with("Max file size", "1073741824", "17179869184").fix == "ulimit -f 16777216");  // ulimit counts in KiB
  const auto stuck = with("Max file size", "1073741824", "1073741824");
  CHECK(has(stuck.finding, "is 1.0 GiB"));
  CHECK(has(stuck.fix, "its hard limit is 1.0 GiB, which only root can raise"));
  // locked memory matters on machines with RDMA
  CHECK((with("Max locked memory", "65536").verdict == Verdict::Ok));
  m.host.edit("/proc/self/limits", "Max locked memory         unlimited", "Max locked memory         65536");
  m.host.write("/dev/infiniband/uverbs0", "");
  CHECK(has(memory(m, "ulimits").fix, "memlock"));
}
