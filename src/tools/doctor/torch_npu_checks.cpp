#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/version_matrix.hpp"
#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/library_search.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kLibrary = "libtorch_npu.so";

std::string torch_minor(const ProcessFacts& process) {
  const auto version = Version::parse(process.torch_headers);
  return version ? version->minor() : "";
}

std::string wanted_torch_npu(const ProcessFacts& process) {
  const auto minor = torch_minor(process);
  return "python3 -m pip install 'torch-npu==" + minor +
         ".*' numpy pyyaml, in the environment of this libtorch (NPU_TRAIN_PYTHON names another one), or set NPU_TRAIN_TORCH_NPU to the "
         "file "
         "of a build without Python";
}

// Adds the library of the wheel in the Python environment `folder`.
void add_environment(const HostView& host, const std::string& folder, std::vector<std::string>& out) {
  for (const auto& name : host.list(folder + "/lib"))
    if (name.starts_with("python3")) out.push_back(folder + "/lib/" + name + "/site-packages/torch_npu/lib/" + kLibrary);
}

// Returns the places that device npu searches, in its order (docs/npu.md), except python3 in PATH.
std::vector<std::string> places(const HostView& host, const ProcessFacts& process) {
  std::vector<std::string> out;
  if (const auto python = host.variable("NPU_TRAIN_PYTHON"); !python.empty()) {  // ENVIRONMENT/bin/python, or its folder
    add_environment(host, host.is_folder(python) ? python : std::filesystem::path(python).parent_path().parent_path().string(), out);
    return out;
  }
  if (const auto named = host.variable("NPU_TRAIN_TORCH_NPU"); !named.empty())
    return {host.is_folder(named) ? named + "/" + kLibrary : named};
  if (const auto active = host.variable("VIRTUAL_ENV"); !active.empty()) add_environment(host, active, out);
  const auto& torch = process.torch_folder;
  if (!torch.empty()) out.push_back(torch + "/../../torch_npu/lib/" + kLibrary);
  if (const auto prefix = host.variable("TORCH_NPU_INSTALL_PREFIX"); !prefix.empty()) out.push_back(prefix + "/lib/" + kLibrary);
  if (!torch.empty()) out.push_back(torch + "/../../libtorch_npu/lib/" + kLibrary);
  for (auto& path : out) path = std::filesystem::path(path).lexically_normal().string();
  return out;
}

std::string torch_npu_path(const HostView& host, const LibrarySearch& search, const std::vector<std::string>& tried) {
  for (const auto& path : tried)
    if (host.exists(path) && !host.is_folder(path)) return path;
  const bool is_named = !host.variable("NPU_TRAIN_TORCH_NPU").empty() || !host.variable("NPU_TRAIN_PYTHON").empty();
  return is_named ? "" : search.find(kLibrary);
}

// Returns the version in version.py or version.txt of the package, or in the name of the wheel's folder torch_npu-2.11.0.dist-info. "" if
// none.
std::string torch_npu_version(const HostView& host, const std::string& library) {
  auto path = std::filesystem::path(host.resolved(library)).parent_path().parent_path();
  for (const char* file : {"version.py", "version.txt", "build-version"}) {
    const auto text = host.read((path / file).string(), 4096).value_or("");
    const auto value = value_of(text, "__version__", '=').value_or(first_line(text));
    if (Version::parse(value)) return value;
  }
  const std::string start = "torch_npu-", end = ".dist-info";
  for (const auto& name : host.list(path.parent_path().string()))
    if (name.starts_with(start) && name.ends_with(end) && name.size() > start.size() + end.size())
      return name.substr(start.size(), name.size() - start.size() - end.size());
  return "";
}

Finding pair_finding(const std::string& version, const std::string& library, const ProcessFacts& process) {
  const auto pair = "torch_npu " + (version.empty() ? "of an unknown version" : version) + " with libtorch " + process.torch_headers;
  const auto here = Version::parse(version);
  if (!here)
    return {kAscend,
            "torch_npu",
            Verdict::Warn,
            pair,
            library + ": neither version.py nor .dist-info next to it",
            "check that its version is " + torch_minor(process)};
  if (here->minor() != torch_minor(process))
    return {kAscend, "torch_npu", Verdict::Fail, pair + ": their minor versions must be equal", library, wanted_torch_npu(process)};
  return {kAscend, "torch_npu", Verdict::Ok, pair, library};
}

Finding cann_for_torch_npu_finding(const AscendFacts& ascend, const ProcessFacts& process) {
  const auto minor = torch_minor(process);
  const auto rule = version_rule("cann_for_torch_npu", minor);
  const auto here = Version::parse(ascend.cann.version), least = Version::parse(rule ? rule->minimum : "");
  const auto pair = "CANN " + (ascend.cann.version.empty() ? "of an unknown version" : ascend.cann.version) + " with torch_npu " + minor;
  const auto table = "table of " + version_matrix_date();
  if (!rule || !here || !least)
    return {kAscend,
            "CANN for torch_npu",
            Verdict::Warn,
            "the compatibility of " + pair + " is unknown",
            table + " contains torch_npu " + join(version_keys("cann_for_torch_npu")),
            "look it up in COMPATIBILITY.md of https://gitcode.com/Ascend/pytorch"};
  const auto evidence = table + ": torch_npu " + minor + " is built for CANN " + rule->recommended;
  if (*here < *least)
    return {kAscend,       "CANN for torch_npu",
            Verdict::Fail, pair + ": CANN is too old",
            evidence,      "install CANN " + rule->recommended + " (toolkit and operators of the chip) and run its set_env.sh"};
  if (here->minor() != least->minor())
    return {kAscend,       "CANN for torch_npu",
            Verdict::Warn, pair + ": CANN is newer than the one for which it is built",
            evidence,      "install CANN " + rule->recommended + " if something fails"};
  return {kAscend, "CANN for torch_npu", Verdict::Ok, pair + " are compatible", evidence};
}

Finding abi_pair_finding(const ElfFacts& elf, const std::string& library, const ProcessFacts& process) {
  const std::string here = process.cxx11_abi ? "1" : "0", there = elf.cxx11_names ? "1" : "0";
  Finding f{kAscend, "torch_npu ABI", Verdict::Ok, "torch_npu and npu_train use the same ABI of C++ strings",
            "_GLIBCXX_USE_CXX11_ABI=" + here};
  if (here != there) {
    f.verdict = Verdict::Fail;
    f.finding = "torch_npu uses a different ABI of C++ strings than npu_train, so it cannot be loaded";
    f.evidence = library + ": " + there + ", npu_train: " + here;
    f.fix = "build torch_npu with _GLIBCXX_USE_CXX11_ABI=" + here;
  }
  return f;
}

Finding libraries_finding(const LibrarySearch& search, const std::string& library) {
  const auto missing = search.missing(library);
  if (missing.empty()) return {kAscend, "torch_npu libraries", Verdict::Ok, "all libraries that torch_npu needs were found", library};
  std::vector<std::string> names, fixes;
  bool python = false, driver = false, cann = false;
  for (const auto& m : missing) {
    names.push_back(m.name + " (for " + m.needed_by + ")");
    const bool is_python = m.name.starts_with("libtorch_python") || m.name.starts_with("libpython");
    const bool is_driver = m.name.starts_with("libascend_hal") || m.name.starts_with("libdrv") || m.name.starts_with("libmmpa");
    (is_python ? python : is_driver ? driver : cann) = true;
  }
  if (python)
    fixes.emplace_back("this is the library of the Python wheel, and this libtorch is that of no Python: use the torch of its environment");
  if (cann) fixes.emplace_back("source set_env.sh of CANN in this shell (libhccl, libascendcl, libge_runner and libgraph are CANN's)");
  if (driver)
    fixes.emplace_back(
        "export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64/common:"
        "/usr/local/Ascend/driver/lib64/driver:$LD_LIBRARY_PATH (in a container, mount the driver)");
  return {
      kAscend,
      "torch_npu libraries",
      Verdict::Fail,
      (missing.size() == 1 ? std::string("a library was not found: ") : std::to_string(missing.size()) + " libraries were not found: ") +
          detail::first_few(names, 8),
      library,
      join(fixes, "; ")};
}

}  // namespace

std::string torch_npu_here(const HostView& host, const ProcessFacts& process) {
  const LibrarySearch search(host, process.machine, {});
  const auto library = torch_npu_path(host, search, places(host, process));
  return library.empty() ? "" : torch_npu_version(host, library);
}

std::vector<Finding> torch_npu_findings(const HostView& host, const AscendFacts& ascend, const ProcessFacts& process) {
  const LibrarySearch search(host, process.machine,
                             process.torch_folder.empty() ? std::vector<std::string>() : std::vector{process.torch_folder});
  const auto tried = places(host, process);
  const auto library = torch_npu_path(host, search, tried);
  if (library.empty())
    return {{kAscend, "torch_npu", Verdict::Fail, std::string(kLibrary) + " was not found",
             "searched: " + join(tried) + ", LD_LIBRARY_PATH and the system's folders", wanted_torch_npu(process)}};
  std::string why;
  const auto elf = read_elf(host.path(library), why);
  if (!elf) return {{kAscend, "torch_npu", Verdict::Fail, library + " is not a shared library", why, wanted_torch_npu(process)}};
  if (elf->machine_name() != process.machine)
    return {{kAscend, "torch_npu", Verdict::Fail, library + " is for " + elf->machine_name() + ", this machine is " + process.machine,
             "its ELF header", wanted_torch_npu(process)}};
  return {pair_finding(torch_npu_version(host, library), library, process), cann_for_torch_npu_finding(ascend, process),
          abi_pair_finding(*elf, library, process), libraries_finding(search, library)};
}

}  // namespace npu_train::detail
