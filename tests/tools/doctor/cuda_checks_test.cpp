#include "testing.hpp"

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Finding cuda(const Machine& m, const std::string& name) { return finding_of(check_cuda(m.host.view(), m.process), name); }

struct CudaBox : Machine {
  CudaBox() { make_cuda_box(*this); }
  void nvidia_smi(const CommandResult& result) { host.commands[kNvidiaQuery] = result; }
};

}  // namespace

TEST_CASE("GPUs with what they can") {
  CudaBox m;
  CHECK(has(cuda(m, "gpu 0").finding, "NVIDIA H200, 143771 MiB"));
  CHECK(has(cuda(m, "gpu 1").finding, "bf16, fp16 and TF32"));
  CHECK(has(cuda(m, "driver").evidence, "at least 525.60.13; recommended: 570.26"));
  CHECK(has(cuda(m, "libtorch").finding, "sees 2 GPUs"));
  m.nvidia_smi(says("0, Tesla V100-SXM2-32GB, 570.1, 32510, 4, 7.0\n1, Tesla P40, 570.1, 22919, [N/A], 6.1\n"));
  CHECK(has(cuda(m, "gpu 0").finding, "no bf16"));
  CHECK(has(cuda(m, "gpu 1").finding, "no tensor cores"));
  CHECK((cuda(m, "gpu 1").verdict == Verdict::Ok));
  m.process.cuda_runtime = 13000;
  CHECK((cuda(m, "gpu 1").verdict == Verdict::Fail));
  // a row of the version table that is not verified never fails a GPU
  m.nvidia_smi(says("0, Tesla K10, 570.1, 4000, 4, 3.0\n"));
  m.process.cuda_runtime = 11080;
  CHECK((cuda(m, "gpu 0").verdict == Verdict::Warn));
  CHECK(has(cuda(m, "gpu 0").evidence, "is not verified"));
}

TEST_CASE("a driver that is too old, old, or of an unknown CUDA") {
  CudaBox m;
  m.host.edit("/proc/driver/nvidia/version", "570.133.20", "470.82.01");
  CHECK((cuda(m, "driver").verdict == Verdict::Fail));
  CHECK(has(cuda(m, "driver").fix, "570.26"));
  m.host.edit("/proc/driver/nvidia/version", "470.82.01", "535.104.05");
  CHECK((cuda(m, "driver").verdict == Verdict::Ok));
  CHECK(has(cuda(m, "driver").finding, "same major version"));
  m.process.cuda_runtime = 13000;
  CHECK((cuda(m, "driver").verdict == Verdict::Fail));
  m.process.cuda_runtime = 17000;
  CHECK((cuda(m, "driver").verdict == Verdict::Warn));
  CHECK(has(cuda(m, "driver").fix, "12.8"));
}

TEST_CASE("a card without its driver fails only where libtorch could use it") {
  Machine m;
  make_laptop(m);
  m.host.write("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  m.host.write("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  m.host.write("/sys/bus/pci/devices/0000:01:00.0/device", "0x2335\n");
  CHECK((cuda(m, "driver").verdict == Verdict::Warn));
  CHECK(has(cuda(m, "driver").evidence, "0000:01:00.0 (0x2335)"));
  CHECK(has(cuda(m, "libtorch").finding, "built for the CPU only"));
  m.process.cuda_runtime = 12080;
  CHECK((cuda(m, "driver").verdict == Verdict::Fail));
  CHECK((cuda(m, "libtorch").verdict == Verdict::Fail));
  // a sound card of the same vendor is no GPU
  m.host.write("/sys/bus/pci/devices/0000:01:00.0/class", "0x040300\n");
  CHECK((cuda(m, "NVIDIA GPU").verdict == Verdict::NotHere));
}

TEST_CASE("a GPU that libtorch is not built for is a warning") {
  CudaBox m;
  m.process.cuda_runtime = 0;
  m.process.cuda_devices = 0;
  CHECK(not_ok(check_cuda(m.host.view(), m.process)).starts_with("WARN libtorch"));
  CHECK(has(cuda(m, "libtorch").fix, "CUDA build"));
}

TEST_CASE("device nodes that are missing or closed") {
  CudaBox m;
  m.host.closed = {"/dev/nvidia1"};
  CHECK((cuda(m, "device nodes").verdict == Verdict::Fail));
  CHECK(has(cuda(m, "device nodes").finding, "/dev/nvidia1"));
  CHECK(has(cuda(m, "device nodes").fix, "usermod"));
  m.host.remove("/dev/nvidia-uvm");
  CHECK(has(cuda(m, "device nodes").fix, "nvidia-modprobe"));
}

TEST_CASE("nvidia-smi: missing, hanging, failing, old, of another driver") {
  CudaBox m;
  m.host.commands.clear();
  CHECK((cuda(m, "nvidia-smi").verdict == Verdict::Warn));
  m.nvidia_smi({CommandResult::End::TimedOut, 0, ""});
  CHECK((cuda(m, "nvidia-smi").verdict == Verdict::Fail));
  CHECK(has(cuda(m, "nvidia-smi").fix, "Xid"));
  m.nvidia_smi(says("Failed to initialize NVML: Driver/library version mismatch\n", 18));
  CHECK((cuda(m, "nvidia-smi").verdict == Verdict::Fail));
  CHECK(has(cuda(m, "nvidia-smi").fix, "reboot"));
  m.nvidia_smi(says("Field \"compute_cap\" is not a valid field to query.\n", 2));
  m.host.commands["nvidia-smi --query-gpu=index,name,driver_version,memory.total,memory.used"] =
      says("0, Tesla K80, 470.82.01, 11441, 3\n");
  CHECK(has(cuda(m, "gpu 0").finding, "is unknown"));
}

TEST_CASE("GPUs that are hidden, dropped out, or taken") {
  CudaBox m;
  m.process.cuda_devices = 0;
  m.host.environment["CUDA_VISIBLE_DEVICES"] = "";
  CHECK((cuda(m, "libtorch").verdict == Verdict::Fail));
  CHECK(has(cuda(m, "libtorch").fix, "CUDA_VISIBLE_DEVICES"));
  m.host.environment["CUDA_VISIBLE_DEVICES"] = "0";
  m.process.cuda_devices = 1;
  CHECK((cuda(m, "libtorch").verdict == Verdict::Ok));
  m.host.environment.clear();
  CHECK((cuda(m, "libtorch").verdict == Verdict::Warn));
  m.nvidia_smi(says("0, NVIDIA H200, 570.133.20, 143771, 120000, 9.0\n"));
  CHECK((cuda(m, "gpu 0").verdict == Verdict::Warn));
  CHECK(has(cuda(m, "gpu 0").fix, "nvidia-smi"));
}

TEST_CASE("TF32 in products is a warning, in convolutions libtorch's default") {
  CudaBox m;
  m.process.tf32_conv = true;
  CHECK((cuda(m, "TF32").verdict == Verdict::Ok));
  m.host.environment["NVIDIA_TF32_OVERRIDE"] = "1";
  CHECK((cuda(m, "TF32").verdict == Verdict::Warn));
  m.host.environment.clear();
  m.process.tf32_matmul = true;
  CHECK(has(cuda(m, "TF32").fix, "TORCH_ALLOW_TF32"));
}
