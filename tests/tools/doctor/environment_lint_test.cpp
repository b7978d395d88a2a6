#include "testing.hpp"

#include "npu_train/tools/doctor/environment_lint.hpp"

#include <algorithm>
#include <set>

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns the findings for an NPU server with these additional variables. The server is created only once.
std::vector<Finding> lint_all(const std::map<std::string, std::string>& variables) {
  static Machine m;
  if (m.host.environment.empty()) make_ascend_box(m);
  auto view = m.host.view();
  for (const auto& [key, value] : variables) view.environment[key] = value;
  return lint_environment(view);
}

Finding lint(const std::map<std::string, std::string>& variables, const std::string& name, bool ascend = true) {
  if (ascend) return finding_of(lint_all(variables), name);
  Machine m;
  make_laptop(m);
  for (const auto& [key, value] : variables) m.host.environment[key] = value;
  return finding_of(lint_environment(m.host.view()), name);
}

std::string all_of(const std::map<std::string, std::string>& variables) { return not_ok(lint_all(variables)); }

}  // namespace

TEST_CASE("the table: unique names, kinds that are known, defaults that are allowed, no harmful value that is not") {
  std::set<std::string> names;
  CHECK(known_variables().size() >= 47);
  for (const auto& v : known_variables()) {
    INFO(v.name);
    CHECK(names.insert(v.name).second);
    CHECK((std::set<std::string>{"choice", "int", "folder", "file", "devices", "alloc", "text"}.contains(v.kind)));
    CHECK((v.wrong == "fail" || v.wrong == "warn"));
    CHECK(!v.says.empty());
    CHECK((v.kind == "choice" || v.kind == "int") != v.allowed.empty());
    if (!v.harmful.empty()) CHECK(v.harmful.find(v.fallback.empty() ? "?" : v.fallback) == std::string::npos);
    const bool own_default = (v.kind == "choice" || v.kind == "int") && !v.fallback.empty();
    if (own_default) CHECK(all_of({{v.name, v.fallback}}).find("[" + std::string("'") + v.fallback) == std::string::npos);
    if (v.kind == "choice") CHECK(has(all_of({{v.name, "invalid"}}), v.name + " ['invalid' is not one of"));
    if (v.kind == "int") CHECK(has(all_of({{v.name, "invalid"}}), v.name + " ['invalid' is not an integer"));
  }
  for (const char* name : {"ASCEND_HOME_PATH", "HCCL_CONNECT_TIMEOUT", "MASTER_PORT", "CUDA_LAUNCH_BLOCKING", "OMP_NUM_THREADS"})
    CHECK(names.contains(name));
}

TEST_CASE("an environment without errors is one finding") {
  CHECK(all_of({}) == "");
  CHECK(
      all_of({{"HCCL_CONNECT_TIMEOUT", "600"}, {"TASK_QUEUE_ENABLE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "host"}}) ==
      "");
  CHECK(has(lint({}, "variables").evidence, "ASCEND_HOME_PATH"));
}

TEST_CASE("values that are not allowed end a run on an NPU, and are a warning elsewhere") {
  CHECK((lint({{"HCCL_CONNECT_TIMEOUT", "60"}}, "HCCL_CONNECT_TIMEOUT").verdict == Verdict::Fail));
  CHECK(has(lint({{"HCCL_CONNECT_TIMEOUT", "60"}}, "HCCL_CONNECT_TIMEOUT").finding, "120 to 7200"));
  CHECK((lint({{"HCCL_CONNECT_TIMEOUT", "60"}}, "HCCL_CONNECT_TIMEOUT", false).verdict == Verdict::Warn));
  CHECK((lint({{"ASCEND_GLOBAL_LOG_LEVEL", "5"}}, "ASCEND_GLOBAL_LOG_LEVEL").verdict == Verdict::Fail));
  CHECK((lint({{"OMP_NUM_THREADS", "0"}}, "OMP_NUM_THREADS").verdict == Verdict::Warn));
  CHECK((lint({{"MASTER_PORT", "99999"}}, "MASTER_PORT", false).verdict == Verdict::Fail));
}

TEST_CASE("switches for debugging that were left on") {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"ASCEND_LAUNCH_BLOCKING", "1"},
                                                                      {"PYTORCH_NO_NPU_MEMORY_CACHING", "1"},
                                                                      {"ASCEND_GLOBAL_LOG_LEVEL", "1"},
                                                                      {"CUDA_LAUNCH_BLOCKING", "1"},
                                                                      {"TORCH_HCCL_DESYNC_DEBUG", "1"},
                                                                      {"NCCL_DEBUG", "INFO"}}) {
    const auto f = lint({{name, value}}, name);
    CHECK((f.verdict == Verdict::Warn));
    CHECK(has(f.fix, "unset " + name));
    CHECK(has(f.evidence, name + "=" + value));
  }
  CHECK(has(lint({{"TORCH_NPU_DISABLED_WARNING", "1"}}, "TORCH_NPU_DISABLED_WARNING").fix, "TORCH_NPU_WARNING_DISABLE"));
}

TEST_CASE("visible devices: blanks, order, numbers that do not exist") {
  const auto devices = [](const std::string& value) { return lint({{"ASCEND_RT_VISIBLE_DEVICES", value}}, "ASCEND_RT_VISIBLE_DEVICES"); };
  CHECK(has(devices("0, 1").finding, "without spaces"));
  CHECK(has(devices("1,0").finding, "ascend"));
  CHECK(has(devices("0,x").finding, "'x'"));
  CHECK(has(devices("0,2").finding, "there is no NPU 2"));
  CHECK((devices("0,2").verdict == Verdict::Fail));
  CHECK(all_of({{"ASCEND_RT_VISIBLE_DEVICES", "0,1"}}) == "");
}

TEST_CASE("the allocator's settings") {
  const auto alloc = [](const std::string& value) { return all_of({{"PYTORCH_NPU_ALLOC_CONF", value}}); };
  CHECK(alloc("expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2]") == "");
  CHECK(has(alloc("expandable_segment:True"), "did you mean expandable_segments?"));
  CHECK(has(alloc("max_split_size_mb:5"), "20 to"));
  CHECK(has(alloc("garbage_collection_threshold:2"), "0 to 1"));
  CHECK(has(alloc("expandable_segments:yes"), "allowed: True, False"));
  CHECK(has(alloc("expandable_segments"), "no value"));
}

TEST_CASE("variables that contradict each other") {
  CHECK(has(all_of({{"PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True"}, {"PYTORCH_ALLOC_CONF", "x"}}), "FAIL PYTORCH_ALLOC_CONF"));
  CHECK(has(all_of({{"HCCL_EXEC_TIMEOUT", "3600"}}), "WARN HCCL timeouts"));
  CHECK(lint({{"HCCL_EXEC_TIMEOUT", "3600"}}, "HCCL timeouts").fix == "set HCCL_EVENT_TIMEOUT=3632");
  CHECK(all_of({{"HCCL_EXEC_TIMEOUT", "3600"}, {"HCCL_EVENT_TIMEOUT", "0"}}) == "");
  CHECK(has(all_of({{"HCCL_WHITELIST_DISABLE", "0"}}), "FAIL HCCL_WHITELIST_FILE"));
  CHECK(has(all_of({{"HCCL_INTRA_ROCE_ENABLE", "1"}, {"HCCL_INTRA_PCIE_ENABLE", "1"}}), "WARN HCCL_INTRA_ROCE_ENABLE"));
  CHECK(has(all_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}}), "FAIL RANK"));
  // the evidence distinguishes a value from a variable that is not set
  CHECK(lint({{"LOCAL_RANK", "1"}}, "RANK").evidence == "RANK is not set, LOCAL_RANK=1, WORLD_SIZE is not set (default: 1)");
  CHECK(lint({{"HCCL_EXEC_TIMEOUT", "3600"}}, "HCCL timeouts").evidence ==
        "HCCL_EVENT_TIMEOUT is not set (default: 1868), HCCL_EXEC_TIMEOUT=3600");
  CHECK(has(all_of({{"WORLD_SIZE", "4"}}), "FAIL MASTER_ADDR"));
}

TEST_CASE("files and folders that do not exist; a table of ranks that is a link") {
  CHECK(has(all_of({{"ASCEND_OPP_PATH", "/none"}}), "FAIL ASCEND_OPP_PATH"));
  CHECK(has(all_of({{"RANK_TABLE_FILE", "/none.json"}}), "FAIL RANK_TABLE_FILE"));
  Machine m;
  make_ascend_box(m);
  m.host.write("/srv/ranks.json", "{}");
  m.host.environment["RANK_TABLE_FILE"] = "/srv/ranks.json";
  CHECK(not_ok(lint_environment(m.host.view())) == "");
  m.host.link("/srv/link.json", "ranks.json");
  m.host.environment["RANK_TABLE_FILE"] = "/srv/link.json";
  CHECK(has(not_ok(lint_environment(m.host.view())), "link"));
}

TEST_CASE("the wanted environment of an NPU server") {
  Machine m;
  make_ascend_box(m);
  auto text = required_environment(m.host.view(), m.process);
  CHECK(has(text, "export PYTORCH_NPU_ALLOC_CONF='expandable_segments:True'\n"));
  CHECK(has(text, "export OMP_NUM_THREADS='32'\n"));  // 64 processors, 2 NPUs
  CHECK(has(text, "export HCCL_CONNECT_TIMEOUT='600'\n"));
  CHECK(!has(text, "\nsource"));
  CHECK(!has(text, "LD_LIBRARY_PATH"));  // is already right
  SUBCASE("CANN's script where its variables are not set, and the driver's folders") {
    m.host.environment.clear();
    m.host.folder("/usr/local/Ascend/driver/lib64");
    text = required_environment(m.host.view(), m.process);
    CHECK(has(text, "source '/usr/local/Ascend/cann/set_env.sh'"));
    CHECK(has(text, "/usr/local/Ascend/driver/lib64/driver"));
  }
  SUBCASE("stubs and doubles leave the library path") {
    m.host.environment["LD_LIBRARY_PATH"] =
        "/usr/local/Ascend/cann/devlib:" + m.host.environment["LD_LIBRARY_PATH"] + ":/usr/local/Ascend/cann/lib64";
    CHECK(has(required_environment(m.host.view(), m.process),
              "export LD_LIBRARY_PATH='/usr/local/Ascend/cann/lib64:/usr/local/Ascend/driver/lib64/driver'\n"));
  }
  SUBCASE("a library path that lost CANN's folders: its script again") {
    m.host.environment["LD_LIBRARY_PATH"] = "/usr/local/Ascend/cann/devlib:/usr/local/Ascend/driver/lib64/driver";
    text = required_environment(m.host.view(), m.process);
    CHECK(has(text, "export LD_LIBRARY_PATH='/usr/local/Ascend/driver/lib64/driver'\n"));
    CHECK(has(text, "\nsource '/usr/local/Ascend/cann/set_env.sh'\n"));
  }
  SUBCASE("a wrong value is replaced by a good one") {
    m.host.environment["HCCL_CONNECT_TIMEOUT"] = "60";
    text = required_environment(m.host.view(), m.process);
    CHECK(text.find("unset HCCL_CONNECT_TIMEOUT") < text.find("export HCCL_CONNECT_TIMEOUT='600'"));
    CHECK(has(text, "export HCCL_CONNECT_TIMEOUT='600'"));
  }
  SUBCASE("an invalid value is removed, whatever it contains") {
    m.host.environment["ASCEND_LAUNCH_BLOCKING"] = "1";
    m.host.environment["INF_NAN_MODE_FORCE_DISABLE"] = "1";
    m.host.environment["TASK_QUEUE_ENABLE"] = "x'\n; touch /tmp/evil";
    text = required_environment(m.host.view(), m.process);
    for (const char* line :
         {"\nunset ASCEND_LAUNCH_BLOCKING\n", "\nunset INF_NAN_MODE_ENABLE INF_NAN_MODE_FORCE_DISABLE\n", "\nunset TASK_QUEUE_ENABLE\n"})
      CHECK(has(text, line));
    CHECK(!has(text, "\n; touch"));
  }
}

TEST_CASE("every line of the wanted environment is a comment or one command, and a shell takes it") {
  Machine m;
  make_ascend_box(m);
  m.host.environment["LD_LIBRARY_PATH"] = "/a'b $(touch x):/usr/local/Ascend/cann/stub";
  m.host.environment["NCCL_DEBUG"] = "TRACE\x1b[2J`id`";
  TempDir dir;
  const auto file = dir / "env.sh";
  std::ofstream(file) << required_environment(m.host.view(), m.process);
  const auto result = run_command({"sh", "-c", "cd " + dir.path().string() + " && . ./env.sh && printf %s \"$LD_LIBRARY_PATH\" && ls"});
  CHECK(result.ok());
  CHECK(has(result.output, "/a'b $(touch x)"));
  CHECK(!std::filesystem::exists(dir / "x"));
}

TEST_CASE("a problem that no line can fix is reported, and the file is not called empty") {
  Machine m;
  make_laptop(m);
  m.host.environment["WORLD_SIZE"] = "2";
  auto text = required_environment(m.host.view(), m.process);
  CHECK(has(text, "# By hand: MASTER_ADDR: "));
  CHECK(!has(text, "# Nothing"));
  m.host.environment.clear();
  m.process.cpu_capability = "DEFAULT";
  m.host.environment["ATEN_CPU_CAPABILITY"] = "default";
  text = required_environment(m.host.view(), m.process);
  CHECK(has(text, "\nunset ATEN_CPU_CAPABILITY\n"));
  CHECK(!has(text, "# Nothing"));
}

TEST_CASE("a machine that needs no change is reported as such") {
  Machine m;
  make_laptop(m);
  CHECK(has(required_environment(m.host.view(), m.process), "# Nothing"));
  m.host.write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(has(required_environment(m.host.view(), m.process), "export OMP_NUM_THREADS='2'"));
}
