#include "testing.hpp"

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Finding cpu(const Machine& m, const std::string& name) { return finding_of(check_cpu(m.host.view(), m.process), name); }

}  // namespace

TEST_CASE("the model of x86 and of aarch64, with flags") {
  Machine laptop, arm;
  make_laptop(laptop);
  make_ascend_box(arm);
  CHECK(has(cpu(laptop, "model").finding, "i7-1260P, x86_64"));
  CHECK(has(cpu(laptop, "model").evidence, "avx2 fma"));
  CHECK(has(cpu(arm, "model").finding, "Kunpeng 920"));
  CHECK(has(cpu(arm, "model").evidence, "asimd asimdhp"));
  laptop.host.write("/proc/cpuinfo", cpuinfo(2, "model name\t: Old\n", "flags\t: sse sse2 avx"));
  CHECK((cpu(laptop, "model").verdict == Verdict::Warn));
  CHECK(has(cpu(laptop, "model").fix, "host-passthrough"));
}

TEST_CASE("kernels that are worse than the processor") {
  Machine m;
  make_cuda_box(m);
  CHECK((cpu(m, "kernels").verdict == Verdict::Ok));
  m.process.cpu_capability = "DEFAULT";
  m.host.environment["ATEN_CPU_CAPABILITY"] = "default";
  CHECK((cpu(m, "kernels").verdict == Verdict::Warn));
  CHECK(has(cpu(m, "kernels").fix, "unset ATEN_CPU_CAPABILITY"));
  m.host.environment.clear();
  CHECK(has(cpu(m, "kernels").fix, "libtorch"));
}

TEST_CASE("kernels that the processor does not have end the process at the first operator") {
  Machine m;
  make_cuda_box(m);
  m.host.edit("/proc/cpuinfo", "avx512f", "");
  m.process.cpu_capability = "AVX512";
  m.host.environment["ATEN_CPU_CAPABILITY"] = "avx512";
  CHECK((cpu(m, "kernels").verdict == Verdict::Fail));
  CHECK(has(cpu(m, "kernels").finding, "SIGILL"));
  CHECK(has(cpu(m, "kernels").fix, "unset ATEN_CPU_CAPABILITY"));
  m.process.cpu_capability = "AVX2";
  CHECK((cpu(m, "kernels").verdict == Verdict::Ok));
}

TEST_CASE("cores: what is online, what is allowed, what the control group gives") {
  Machine m;
  make_laptop(m);
  CHECK(has(cpu(m, "cores").finding, "8 processors"));
  m.host.edit("/proc/self/status", "0-7", "0-2,5");
  CHECK(has(cpu(m, "cores").finding, "4 processors"));
  SUBCASE("version 2, the limit of a group above") {
    m.host.write("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
    CHECK(has(cpu(m, "cores").finding, "2 processors"));
    CHECK(has(cpu(m, "cores").evidence, "1.5 (/sys/fs/cgroup/user.slice/cpu.max)"));
  }
  SUBCASE("version 2 without a limit") {
    m.host.write("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    CHECK(has(cpu(m, "cores").evidence, "no quota"));
  }
  SUBCASE("version 1 in a container that does not see its own path") {
    m.host.write("/proc/self/cgroup", "12:memory:/docker/12ab\n4:cpu,cpuacct:/docker/12ab\n");
    m.host.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
    m.host.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    CHECK(has(cpu(m, "cores").finding, "3 processors"));
  }
  SUBCASE("version 1 without a limit") {
    m.host.write("/proc/self/cgroup", "4:cpu,cpuacct:/\n");
    m.host.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    m.host.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK(has(cpu(m, "cores").evidence, "no quota"));
  }
  SUBCASE("less than one") {
    m.host.write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    CHECK((cpu(m, "cores").verdict == Verdict::Warn));
    CHECK(has(cpu(m, "cores").fix, "--cpus"));
  }
}

TEST_CASE("more threads than processors") {
  Machine m;
  make_laptop(m);
  m.host.write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK((cpu(m, "threads").verdict == Verdict::Warn));
  CHECK(has(cpu(m, "threads").fix, "OMP_NUM_THREADS=2"));
  CHECK(has(cpu(m, "threads").fix, "trainer.threads=2"));
  m.process.threads = 2;
  CHECK((cpu(m, "threads").verdict == Verdict::Ok));
  m.host.write("/proc/self/maps",
               "7f00-7f01 r-xp 0 08:01 1 /opt/torch/lib/libgomp.so.1\n7f02-7f03 r-xp 0 08:01 1 /opt/torch/lib/libgomp.so.1\n"
               "7f04-7f05 r-xp 0 08:01 2 /usr/lib/libiomp5.so\n");
  CHECK((cpu(m, "threads").verdict == Verdict::Warn));
  CHECK(has(cpu(m, "threads").evidence, "libiomp5.so"));
  m.host.write("/proc/self/maps", "7f00-7f01 r-xp 0 08:01 1 /opt/torch/lib/libgomp.so.1\n");
  CHECK((cpu(m, "threads").verdict == Verdict::Ok));
}

TEST_CASE("NUMA: none, one node, two nodes of which one is allowed") {
  Machine m;
  make_laptop(m);
  CHECK(has(cpu(m, "NUMA").finding, "one memory node"));
  m.host.remove("/sys/devices");
  CHECK((cpu(m, "NUMA").verdict == Verdict::Ok));
  m.host.write("/sys/devices/system/node/node0/cpulist", "0-3\n");
  m.host.write("/sys/devices/system/node/node1/cpulist", "4-7\n");
  m.host.write("/sys/devices/system/node/node2/cpulist", "\n");  // memory without processors
  CHECK(has(cpu(m, "NUMA").finding, "2 memory nodes; this process may run on 2"));
  CHECK(has(cpu(m, "NUMA").finding, "numactl"));
  m.host.edit("/proc/self/status", "0-7", "4-7");
  CHECK(has(cpu(m, "NUMA").finding, "may run on 1 of them"));
}

TEST_CASE("low precision by the flags of each architecture") {
  Machine laptop, xeon, arm;
  make_laptop(laptop);
  make_cuda_box(xeon);
  make_ascend_box(arm);
  CHECK(has(cpu(laptop, "low precision").finding, "emulated"));
  CHECK(has(cpu(xeon, "low precision").finding, "multiplies bf16 and fp16; fp16 is emulated nevertheless"));
  CHECK(has(cpu(arm, "low precision").finding, "multiplies bf16 and fp16"));
  arm.host.edit("/proc/cpuinfo", "asimddp bf16", "asimddp");
  CHECK(has(cpu(arm, "low precision").finding, "fp16, but not bf16"));
  xeon.host.edit("/proc/cpuinfo", "avx512_fp16", "avx512_fp16 amx_fp16");
  CHECK(cpu(xeon, "low precision").finding == "the processor multiplies bf16 and fp16");
}
