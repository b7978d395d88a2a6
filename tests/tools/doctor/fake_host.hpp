// Machines made of files: a laptop, a GPU server and a server with Ascend NPUs, intact or with some fault.
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train::testing {

inline constexpr uint64_t kGiB = uint64_t{1} << 30;

class FakeHost {
 public:
  // Replaces a file atomically, as files of /sys change, so that no reader ever finds it empty.
  void write(const std::string& path, const std::string& text) {
    const auto file = dir_ / path.substr(1), next = dir_ / ".written";
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(next, std::ios::binary) << text;
    std::filesystem::rename(next, file);
  }
  void folder(const std::string& path) { std::filesystem::create_directories(dir_ / path.substr(1)); }
  void remove(const std::string& path) { std::filesystem::remove_all(dir_ / path.substr(1)); }
  // Creates a link at `path`. `to` is relative, so that the link stays inside the root, or dangling, like the links in /proc/PID/fd.
  void link(const std::string& path, const std::string& to) {
    const auto file = dir_ / path.substr(1);
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::remove(file);
    std::filesystem::create_symlink(to, file);
  }
  std::string text(const std::string& path) const {
    std::ifstream in(dir_ / path.substr(1), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  // Replaces the first occurrence in a file, which must contain it.
  void edit(const std::string& path, const std::string& from, const std::string& to) {
    auto all = text(path);
    const auto at = all.find(from);
    REQUIRE(at != std::string::npos);
    write(path, all.replace(at, from.size(), to));
  }

  HostView view() const {
    HostView out{.root = dir_.path(), .environment = environment, .run = {}, .space = {}, .may_use = {}};
    out.run = [this](const std::vector<std::string>& words) {
      asked.push_back(words);
      // answers as the longest command in `commands` with which these words begin
      std::string line;
      CommandResult best;
      for (const auto& word : words) {
        line += (line.empty() ? "" : " ") + word;
        if (const auto found = commands.find(line); found != commands.end()) best = found->second;
      }
      return best;
    };
    out.space = [this](const std::filesystem::path& path) -> std::optional<FileSystemSpace> {
      const auto inside = "/" + path.lexically_relative(dir_.path()).string();
      const auto found = spaces.find(inside);
      return found != spaces.end() ? std::optional(found->second) : disk;
    };
    out.may_use = [this](const std::filesystem::path& path) {
      return !closed.contains("/" + path.lexically_relative(dir_.path()).string());
    };
    return out;
  }
  std::filesystem::path root() const { return dir_.path(); }

  std::map<std::string, std::string> environment;
  std::map<std::string, CommandResult> commands;  // for example "npu-smi info"
  std::map<std::string, FileSystemSpace> spaces;  // for places other than `disk`
  std::optional<FileSystemSpace> disk = FileSystemSpace{500 * kGiB, 300 * kGiB, 1'000'000};
  std::set<std::string> closed;  // device nodes that this user may not use
  mutable std::vector<std::vector<std::string>> asked;

 private:
  TempDir dir_;
};

inline CommandResult says(const std::string& output, int status = 0) { return {CommandResult::End::Exited, status, output}; }

// A shared library that consists of a dynamic section only.
struct FakeLibrary {
  std::vector<std::string> needed;
  std::string runpath{}, rpath{}, names = "_ZNSt7__cxx1112basic_stringIcE";
  uint16_t machine = EM_AARCH64;

  std::string bytes() const {
    std::string strings(1, '\0');
    std::vector<Elf64_Dyn> dynamic;
    const auto add = [&](int64_t tag, const std::string& text) {
      Elf64_Dyn entry{};
      entry.d_tag = tag;
      entry.d_un.d_val = strings.size();
      dynamic.push_back(entry);
      strings += text + '\0';
    };
    for (const auto& name : needed) add(DT_NEEDED, name);
    if (!runpath.empty()) add(DT_RUNPATH, runpath);
    if (!rpath.empty()) add(DT_RPATH, rpath);
    strings += names + '\0';
    const auto put = [&](int64_t tag, uint64_t value) {
      Elf64_Dyn entry{};
      entry.d_tag = tag;
      entry.d_un.d_val = value;
      dynamic.push_back(entry);
    };
    const uint64_t head = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr), table = (dynamic.size() + 3) * sizeof(Elf64_Dyn);
    constexpr uint64_t kBase = 0x10000;  // addresses differ from offsets in the file
    put(DT_STRTAB, kBase + head + table);
    put(DT_STRSZ, strings.size());
    put(DT_NULL, 0);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_machine = machine;
    header.e_phoff = sizeof(Elf64_Ehdr);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 2;
    Elf64_Phdr load{}, section{};
    load.p_type = PT_LOAD;
    load.p_vaddr = kBase;
    load.p_filesz = head + table + strings.size();
    section.p_type = PT_DYNAMIC;
    section.p_offset = head;
    section.p_vaddr = kBase + head;
    section.p_filesz = table;
    std::string out;
    const auto append = [&](const auto& value) { out.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
    append(header);
    append(load);
    append(section);
    for (const auto& entry : dynamic) append(entry);
    return out + strings;
  }
};

inline std::string cpuinfo(int cores, const std::string& head, const std::string& flags) {
  std::string out;
  for (int i = 0; i < cores; ++i) out += "processor\t: " + std::to_string(i) + "\n" + head + flags + "\n\n";
  return out;
}

// Adds the files that every Linux has.
inline void add_linux(FakeHost& host, int cores, uint64_t memory) {
  const auto last = std::to_string(cores - 1);
  host.write("/proc/self/status", "Name:\tnpu_tool\nUid:\t1000\t1000\t1000\t1000\nGroups:\t1000 1001 \nCpus_allowed_list:\t0-" + last +
                                      "\nMems_allowed_list:\t0\n");
  host.write("/proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units     \n"
             "Max cpu time              unlimited            unlimited            seconds   \n"
             "Max file size             unlimited            unlimited            bytes     \n"
             "Max stack size            8388608              unlimited            bytes     \n"
             "Max processes             95985                95985                processes \n"
             "Max open files            1024                 524288               files     \n"
             "Max locked memory         unlimited            unlimited            bytes     \n"
             "Max address space         unlimited            unlimited            bytes     \n");
  host.write("/proc/self/cgroup", "0::/user.slice/session.scope\n");
  host.write("/proc/self/mounts", "/dev/sda1 / ext4 rw,relatime 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n");
  host.write("/proc/meminfo", "MemTotal:       " + std::to_string(memory / 1024) + " kB\nMemFree:        1000 kB\nMemAvailable:   " +
                                  std::to_string(memory / 1024 * 3 / 4) + " kB\nSwapTotal:      2097148 kB\nSwapFree:       2097148 kB\n");
  host.write("/proc/sys/vm/overcommit_memory", "0\n");
  host.write("/proc/sys/kernel/osrelease", "5.15.0-94-generic\n");
  host.write("/etc/os-release", "NAME=\"Ubuntu\"\nPRETTY_NAME=\"Ubuntu 22.04.4 LTS\"\n");
  host.write("/sys/devices/system/node/node0/cpulist", "0-" + last + "\n");
  host.folder("/sys/fs/cgroup/user.slice");
  host.folder("/dev/shm");
  host.folder("/srv");
  host.spaces["/dev/shm"] = {8 * kGiB, 8 * kGiB, 100'000};
}

inline ProcessFacts process_on(const std::string& machine, int threads) {
  return {.machine = machine,
          .npu_train = "0.1.0",
          .torch_headers = "2.11.0",
          .torch_library = "2.11.0",
          .torch_folder = "/opt/torch/lib",
          .compiler = "GCC 12.2.0",
          .libc = "glibc 2.35",
          .cpu_capability = machine == "x86_64" ? "AVX2" : "DEFAULT",
          .threads = threads,
          .pid = 4711};
}

// A machine, and the facts that the process on it knows.
struct Machine {
  FakeHost host;
  ProcessFacts process;

  DoctorReport report() const { return check_machine(host.view(), process, {.output = "/srv/runs", .write_bytes = 0}); }
};

inline void make_laptop(Machine& m) {
  add_linux(m.host, 8, 16 * kGiB);
  m.host.write("/proc/cpuinfo", cpuinfo(8, "model name\t: 12th Gen Intel(R) Core(TM) i7-1260P\n", "flags\t\t: fpu sse sse2 avx avx2 fma"));
  m.process = process_on("x86_64", 8);
}

inline const char* kNvidiaQuery = "nvidia-smi --query-gpu=index,name,driver_version,memory.total,memory.used,compute_cap";

inline void make_cuda_box(Machine& m) {
  add_linux(m.host, 16, 128 * kGiB);
  m.host.write("/proc/cpuinfo",
               cpuinfo(16, "model name\t: INTEL(R) XEON(R) PLATINUM 8568Y+\n",
                       "flags\t\t: avx avx2 fma avx512f avx512dq avx512bw avx512vl avx512_bf16 avx512_fp16 amx_tile amx_bf16"));
  m.host.write("/proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 23 06:19:32 UTC 2025\nGCC version: 12.2.0\n");
  for (const char* node : {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"}) m.host.write(node, "");
  m.host.commands[kNvidiaQuery] = says("0, NVIDIA H200, 570.133.20, 143771, 512, 9.0\n1, NVIDIA H200, 570.133.20, 143771, 4, 9.0\n");
  // kNvidiaQuery is the beginning of the doctor's command, which continues with the format
  m.process = process_on("x86_64", 16);
  m.process.cpu_capability = "AVX512";
  m.process.cuda_runtime = 12080;
  m.process.cuda_devices = 2;
}

// Returns a chip's two rows of npu-smi info.
inline std::string smi_chip(int npu, const std::string& name, const std::string& health, const std::string& memory) {
  const auto padded = [](std::string text, size_t width) { return text + std::string(width > text.size() ? width - text.size() : 0, ' '); };
  return "| " + padded(std::to_string(npu) + "     " + name, 26) + "| " + padded(health, 14) +
         "| 93.0        47                0    / 0             |\n" +
         "| 0                         | 0000:C1:00.0  | 0           0    / 0          " + padded(memory, 21) + "|\n" +
         "+===========================+===============+====================================================+\n";
}

inline std::string smi_table(const std::string& chips, const std::string& processes) {
  const std::string rule = "+---------------------------+---------------+----------------------------------------------------+\n";
  return rule + "| npu-smi 26.0.rc1                 Version: 26.0.rc1                                             |\n" + rule +
         "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n"
         "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n" +
         rule + chips + rule + "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |\n" +
         rule + processes;
}

inline void make_ascend_box(Machine& m) {
  auto& host = m.host;
  add_linux(host, 64, 512 * kGiB);
  host.write("/proc/cpuinfo", cpuinfo(64, "BogoMIPS\t: 200.00\nCPU implementer\t: 0x48\nCPU part\t: 0xd01\n",
                                      "Features\t: fp asimd asimdhp asimddp bf16 i8mm"));
  for (const char* node : {"/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"})
    host.write(node, "");
  for (const char* address : {"0000:c1:00.0", "0000:c2:00.0"}) {
    const auto folder = std::string("/sys/bus/pci/devices/") + address;
    host.write(folder + "/vendor", "0x19e5\n");
    host.write(folder + "/class", "0x120000\n");
    host.write(folder + "/device", "0xd802\n");
  }
  host.write("/etc/ascend_install.info", "UserName=HwHiAiUser\nDriver_Install_Path_Param=/usr/local/Ascend\n");
  host.write("/usr/local/Ascend/driver/version.info", "Version=26.0.rc1\nascendhal_version=7.35.23\npackage_version=26.0.rc1\n");
  host.commands["npu-smi info"] =
      says(smi_table(smi_chip(0, "910B3", "OK", "3165 / 65536") + smi_chip(1, "910B3", "OK", "3166 / 65536"),
                     "| No running processes found in NPU 0                                                            |\n"));
  const std::string cann = "/usr/local/Ascend/cann-9.1.0";
  host.write(cann + "/aarch64-linux/ascend_toolkit_install.info", "package_name=Ascend-cann-toolkit\nversion=9.1.0\narch=aarch64\n");
  host.write(cann + "/set_env.sh", "");
  for (const char* part : {"/runtime", "/compiler", "/opp"}) host.folder(cann + part);
  host.link("/usr/local/Ascend/cann", "cann-9.1.0");
  host.write(cann + "/lib64/libascendcl.so", FakeLibrary{{"libascend_hal.so", "libc.so.6"}}.bytes());
  host.write(cann + "/lib64/libhccl.so", FakeLibrary{{"libascendcl.so"}}.bytes());
  host.write(cann + "/devlib/libascendcl.so", FakeLibrary{{}}.bytes());
  host.write("/usr/local/Ascend/driver/lib64/driver/libascend_hal.so", FakeLibrary{{}}.bytes());
  host.write("/usr/lib/aarch64-linux-gnu/libc.so.6", FakeLibrary{{}}.bytes());
  for (const char* name : {"libtorch_cpu.so", "libc10.so", "libtorch.so"})
    host.write(std::string("/opt/torch/lib/") + name, FakeLibrary{{}}.bytes());
  host.write("/opt/libtorch_npu/lib/libtorch_npu.so",
             FakeLibrary{{"libtorch_cpu.so", "libc10.so", "libhccl.so", "libascendcl.so", "libc.so.6"}}.bytes());
  host.write("/opt/libtorch_npu/version.txt", "2.11.0\n");
  host.environment = {{"ASCEND_HOME_PATH", "/usr/local/Ascend/cann"},
                      {"ASCEND_OPP_PATH", "/usr/local/Ascend/cann/opp"},
                      {"NPU_TRAIN_TORCH_NPU", "/opt/libtorch_npu/lib"},
                      {"LD_LIBRARY_PATH", "/usr/local/Ascend/cann/lib64:/usr/local/Ascend/driver/lib64/driver"}};
  m.process = process_on("aarch64", 64);
}

// Returns the finding with that name; the test fails without one.
inline Finding finding_of(const std::vector<Finding>& findings, const std::string& name) {
  for (const auto& f : findings)
    if (f.name == name) return f;
  FAIL("no finding named ", name);
  return {};
}

// Returns the findings that are not OK, like "WARN threads [...] FAIL chip [...]".
inline std::string not_ok(const std::vector<Finding>& findings) {
  std::string out;
  for (const auto& f : findings)
    if (f.verdict == Verdict::Warn || f.verdict == Verdict::Fail)
      out += std::string(verdict_name(f.verdict)) + " " + f.name + " [" + f.finding + "] ";
  return out;
}

}  // namespace npu_train::testing
