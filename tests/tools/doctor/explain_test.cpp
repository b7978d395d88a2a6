#include "testing.hpp"

#include "npu_train/tools/doctor/explain.hpp"

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <streambuf>

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

std::string name_of(const std::string& text) { return explain(text).at(0).name; }

LogReport scan(const std::string& text) {
  std::istringstream in(text);
  return explain_log(in);
}

// A stream of `size` bytes, each of which is made when it is read.
class Endless : public std::streambuf {
 public:
  Endless(uint64_t size, std::function<std::string(uint64_t)> line) : left_(size), line_(std::move(line)) {}

 protected:
  int_type underflow() override {
    if (left_ == 0) return traits_type::eof();
    block_.clear();
    while (block_.size() < 65536) block_ += line_(number_++);
    if (block_.size() > left_) block_.resize(left_);
    left_ -= block_.size();
    setg(block_.data(), block_.data(), block_.data() + block_.size());
    return traits_type::to_int_type(block_[0]);
  }

 private:
  uint64_t left_, number_ = 0;
  std::function<std::string(uint64_t)> line_;
  std::string block_;
};

}  // namespace

TEST_CASE("the tables: unique names, meanings and fixes, patterns in lower case and of one owner") {
  std::set<std::string> names, patterns;
  for (const auto& a : known_problems()) {
    INFO(a.name);
    CHECK(names.insert(a.name).second);
    CHECK(!a.meaning.empty());
    CHECK(!a.fix.empty());
    CHECK(!a.layer.empty());
    CHECK((a.rank >= 1 && a.rank <= 4));
    CHECK(!a.patterns.empty());
    for (const auto& p : a.patterns) {
      CHECK(patterns.insert(p).second);
      CHECK(p.size() >= 4);
      for (const char c : p) CHECK(!(c >= 'A' && c <= 'Z'));
    }
  }
  CHECK(names.size() > 90);
}

TEST_CASE("codes, however they are written") {
  CHECK(name_of("507018") == "507018");
  CHECK(has(explain("507018")[0].meaning, "AI CPU"));
  CHECK(name_of("0x7BC8A") == "507018");
  CHECK(name_of(" error code is 507018 ") == "507018");
  CHECK(name_of("ei0006") == "EI0006");
  CHECK(name_of("507044") == "507042-507045");
  CHECK(name_of("507000") == "507000-507008");
  CHECK(name_of("ERR00100") == "ERR00100");
  // of several explanations, the one that names the cause comes first
  const auto both = explain("ERR00100 PTA call acl api failed, error code is 507015");
  REQUIRE(both.size() == 2);
  CHECK(both[0].name == "507015");
}

TEST_CASE("codes that only their family explains") {
  CHECK(has(explain("ERR02077")[0].meaning, "communication (DIST); the code"));
  CHECK(has(explain("ERR01003")[0].meaning, "its operators (OPS): an invalid value, shape or dimension"));
  CHECK(has(explain("ERR02011")[0].meaning, "a timeout"));
  CHECK(explain("err02077")[0].name == "ERR02077");
  CHECK(has(explain("507999")[0].meaning, "inside CANN"));
  CHECK(has(explain("107777")[0].meaning, "refused"));
}

TEST_CASE("symptoms by name and in words") {
  for (const char* name :
       {"is_available false", "library not found", "device busy", "allocation failed", "outputs differ", "slow", "out of memory"})
    CHECK(name_of(name) == name);
  CHECK(name_of("torch.npu.is_available() is False") == "is_available false");
  CHECK(name_of("libhccl.so: cannot open shared object file: No such file or directory") == "library not found");
  CHECK(name_of("my training is slow") == "slow");
  CHECK(name_of("No module named torch_npu") == "torch_npu not installed");
  CHECK(name_of("ModuleNotFoundError: No module named 'torch_npu'") == "torch_npu not installed");
  CHECK(name_of("segfault") == "crash");
  CHECK(name_of("Segmentation fault (core dumped)") == "crash");
  CHECK(name_of("Illegal instruction") == "illegal instruction");
  CHECK(name_of("it hangs") == "hangs");
  CHECK(name_of("my training hangs") == "hangs");
  CHECK(name_of("OOM") == "out of memory");
  CHECK(name_of("CUDA out of memory. Tried to allocate 2 GiB") == "out of memory");
  CHECK(name_of("loss is NaN") == "loss is not finite");
}

TEST_CASE("symptoms of an NPU, in both languages") {
  const std::pair<const char*, std::vector<const char*>> asked[] = {
      {"not finite from the first step", {"loss is NaN from step 1", "NaN in the first step", "第一步loss为NaN", "训练一开始就NaN"}},
      {"loss scale keeps falling", {"the loss scale keeps falling", "loss scale一直下降", "每步都溢出"}},
      {"weights do not change", {"the loss does not decrease", "weights are not updated", "loss不下降", "参数不更新"}},
      {"running statistics are not finite", {"running_var is nan", "the validation loss is NaN", "验证loss为NaN"}},
      {"first step is slow", {"slow first step", "the first step takes minutes", "首步很慢", "第一个step慢"}},
      {"runs on the AI CPU", {"the operator runs on the AI CPU", "AICPU算子", "算子跑在AICPU上"}},
      {"kernel of an operator is missing", {"EZ: Cannot find bin of op Range, integral key 0/1/|int64", "未安装Kernels"}},
      {"tensors on different devices",
       {"RuntimeError: Expected all tensors to be on the same device. Expected NPU tensor", "张量不在同一设备"}},
      {"not contiguous", {"RuntimeError: Tensors must be contiguous", "通信算子传入非连续Tensor"}},
      {"changed in place", {"one of the variables needed for gradient computation has been modified by an inplace operation"}},
      {"fragmented memory", {"memory fragmentation", "内存碎片", "显存碎片化"}},
      {"ranks do not connect", {"wait socket establish timeout, role[0] rank[0] timeout[120 s]", "通信域建链超时", "建链失败"}},
      {"a rank was lost", {"ExceptionType:[Heartbeat Lost Occurred], Possible Reason:1. Process has exited", "心跳丢失"}},
      {"number of ranks refused", {"sim_npu:0 trains with 1, 2, 4 or 8 processes on one machine; 3 were started", "3卡无法训练"}},
      {"driver, firmware and CANN do not match",
       {"the driver is too old", "driver and firmware do not match", "驱动与固件不匹配", "驱动版本过低"}}};
  for (const auto& [name, questions] : asked)
    for (const char* question : questions) {
      INFO(question);
      const auto found = explain(question);
      CHECK(found[0].name == name);
    }
  // one line of a log, with the codes that torch_npu and HCCL add to it
  const auto log = scan(
      "NPU warning, error code is 507048[Error]:\nEI0002: The wait execution of the Notify register times out. there are(is) 1 abnormal "
      "device(s): Cluster Exception Location[IP/ID]:[90.90.92.240/1], ExceptionType:[Heartbeat Lost Occurred]\n");
  std::vector<std::string> names;
  for (const auto& s : log.sightings) names.push_back(s.problem.name);
  CHECK(names == std::vector<std::string>{"507048", "EI0002", "a rank was lost"});
  for (const char* code : {"EI0003", "EI0005", "EI0009", "EI0012", "EI0015", "EI0020"}) {
    CAPTURE(code);
    CHECK(explain(code)[0].name == code);
  }
}

TEST_CASE("symptoms as guides for Ascend name them, in Chinese") {
  const std::pair<const char*, const char*> asked[] = {{"torch.npu.is_available()返回False", "is_available false"},
                                                       {"torch.npu.is_available() 返回 False", "is_available false"},
                                                       {"libascend.so找不到", "library not found"},
                                                       {"NPU设备显示但无法使用", "device busy"},
                                                       {"内存分配失败", "allocation failed"},
                                                       {"模型输出不一致", "outputs differ"},
                                                       {"训练速度慢", "slow"},
                                                       {"训练 速度慢", "slow"},
                                                       {"内存不足", "out of memory"},
                                                       {"训练中途OOM", "out of memory"},
                                                       {"中间结果差异过大", "intermediate results differ"},
                                                       {"特定层无输出", "a layer gives no output"},
                                                       {"随机性导致结果不一致", "runs do not repeat"},
                                                       {"文件对比耗时过长", "comparison takes long"},
                                                       {"多卡训练loss不一致", "loss differs between ranks"},
                                                       {"loss differs between cards", "loss differs between ranks"},
                                                       {"程序卡死", "hangs"},
                                                       {"训练卡住", "hangs"},
                                                       {"torch_npu 导入失败", "torch_npu not installed"},
                                                       {"驱动版本不匹配", "undefined symbol"},
                                                       {"算子不支持", "falls back to the CPU"},
                                                       {"loss变成NaN", "loss is not finite"},
                                                       {"loss不收敛", "loss is not finite"},
                                                       {"精度下降", "outputs differ"}};
  for (const auto& [text, name] : asked) {
    INFO(text);
    const auto found = explain(text);
    CHECK(found.size() == 1);
    CHECK(found[0].name == name);
  }
  for (const char* question : {"loss differs between cards", "多卡训练loss不一致"})
    for (const char* command : {"npu_tool compare --ranks", "npu_tool doctor --dist", "dist.check_every"})
      CHECK(explain(question)[0].fix.find(command) != std::string::npos);
  CHECK(name_of("速度特别慢") == "slow");  // other words are matched by their characters
  CHECK(name_of("特定的层没有输出") == "a layer gives no output");
  CHECK(scan("2023-11-02 错误：训练中途OOM\n").sightings.at(0).problem.name == "out of memory");
  CHECK((error_of([] { explain("紫色的大象"); }).kind() == ErrorKind::Usage));
}

TEST_CASE("symptoms in words that no log shows") {
  CHECK(name_of("memory leak") == "memory leak");
  CHECK(name_of("NPU is visible but unusable") == "device busy");
  CHECK(name_of("model outputs inconsistent") == "outputs differ");
  CHECK(name_of("results are not reproducible") == "runs do not repeat");
  CHECK(name_of("intermediate results differ too much") == "intermediate results differ");
  const auto text = [](const char* symptom) { return to_text(explain(symptom)); };
  CHECK(has(text("NPU设备显示但无法使用"), "another process holds the device"));
  CHECK(has(text("特定层无输出"), "does not support"));
  CHECK(has(text("特定层无输出"), "dynamic shape"));
  CHECK(has(text("文件对比耗时过长"), "--sample 0.1"));
  CHECK(has(text("文件对比耗时过长"), "parallel"));
}

// Texts from guides and error tables for Ascend, from other trainers, and from users. "" means that no answer is known: a wrong answer
// would be worse.
TEST_CASE("each text has its answer, or none") {
  const std::pair<const char*, const char*> asked[] = {
      {"迁移失败", "migration failed"},
      {"迁移 失败", "migration failed"},
      {"migration failed", "migration failed"},
      {"溢出", "gradient overflow"},
      {"梯度溢出", "gradient overflow"},
      {"overflow", "gradient overflow"},
      {"显存溢出", "out of memory"},
      {"内存溢出", "out of memory"},
      {"显存空间不足", "out of memory"},
      {"Tried to allocate 266 MiB", "out of memory"},
      {"you tried to allocate 8 bytes", "allocation failed"},
      {"数据类型不支持", "dtype not supported"},
      {"不支持的数据类型", "dtype not supported"},
      {"dtype not supported", "dtype not supported"},
      {"\"LayerNormKernelImpl\" not implemented for 'Half'", "dtype not supported"},
      {"驱动未安装", "driver not reachable"},
      {"NPU驱动没有安装", "driver not reachable"},
      {"driver not installed", "driver not reachable"},
      {"drvErr=87", "driver not reachable"},
      {"dcmi module initialize failed", "driver not reachable"},
      {"经常发散", "loss is not finite"},
      {"训练发散", "loss is not finite"},
      {"training diverges", "loss is not finite"},
      {"Train loss contains a NaN.", "loss is not finite"},
      {"Current loss scale already at minimum", "loss is not finite"},
      {"operator not implemented on NPU", "falls back to the CPU"},
      {"算子未实现", "falls back to the CPU"},
      {"CAUTION: The operator aten::foo fall back to run on the CPU", "falls back to the CPU"},
      {"Non finite check and unscale on NPU device!", "gradient overflow"},
      {"Gradient overflow. Skipping step", "gradient overflow"},
      {"libascendcl.so: cannot open", "library not found"},
      {"libhccl.so: cannot open", "library not found"},
      {"libascend_hal.so: cannot open", "library not found"},
      {"环境变量未设置", "library not found"},
      {"版本冲突", "undefined symbol"},
      {"version mismatch", "undefined symbol"},
      {"Unsupported soc version", "unknown chip"},
      {"INF_NAN_MODE_ENABLE shouldn't be set to 0", "saturation refused"},
      {"设备占用", "device busy"},
      {"检测不到NPU", "is_available false"},
      {"性能下降", "slow"},
      {"精度对不齐", "outputs differ"},
      {"通信超时", "hangs"},
      {"HCCL timeout", "hangs"},
      {"算子编译失败", "operator compilation failed"},
      {"failed to compile op", "operator compilation failed"},
      {"The Inner error is reported as above", "wrapped inner error"},
      {"磁盘已满", "disk full"},
      {"权限不足", "permission denied"},
      {"no permission", "permission denied"},
      {"端口被占用", "address in use"},
      {"标签越界", "index out of range"},
      {"非法内存访问", "illegal memory access"},
      {"共享内存不足", "shared memory too small"},
      {"打开文件过多", "too many open files"},
      {"段错误", "crash"},
      {"显存泄露", "memory leak"},
      {"结果无法复现", "runs do not repeat"},
      {"进程被杀", "killed by the kernel"},
      {"device memory exhausted", "207018"},
      {"driver internal error", "507899"},
      {"stub library loaded instead of the runtime one", "100039"},
      {"安装失败", ""},
      {"编译失败", ""},
      {"加载权重失败", ""},
      {"紫色的大象", ""},
      {"设备", "is_available false, device busy, tensors on different devices"},
      {"oom", "out of memory, killed by the kernel"},
      {"失败", ""},
      {"operator", ""},
      {"the device is purple", ""},
      {"checkpoint cannot be loaded", ""},
      {"my cat sleeps on the NPU", ""},
      {"task execution", ""},
  };
  for (const auto& [text, name] : asked) {
    INFO(text);
    if (name == std::string()) {
      CHECK(has(error_of([&question = text] { explain(question); }).what(), "is unknown"));
      continue;
    }
    std::string found;
    for (const auto& problem : explain(text)) found += (found.empty() ? "" : ", ") + problem.name;
    CHECK(found == name);
  }
}

TEST_CASE("each entry of the tables is found by its own texts") {
  const auto finds = [](const std::string& text, const KnownProblem& problem) {
    const auto found = explain(text);
    return std::any_of(found.begin(), found.end(), [&](const KnownProblem& a) { return a.name == problem.name; });
  };
  for (const auto& problem : known_problems()) {
    CAPTURE(problem.name);
    CHECK(name_of(problem.name) == problem.name);
    CHECK(finds(problem.meaning, problem));
    if (const auto colon = problem.meaning.find(": "); colon != std::string::npos) CHECK(finds(problem.meaning.substr(0, colon), problem));
    for (const auto& pattern : problem.patterns) {
      CAPTURE(pattern);
      CHECK(finds(pattern, problem));
      if (!problem.is_code) CHECK(finds("my training: " + pattern + " (rank 3)", problem));
    }
  }
  CHECK(name_of("wrong memory type") == "107018");
  CHECK(name_of("Memory error") == "ERR00006");
}

TEST_CASE("sentences about something else, and negations, are unknown") {
  for (const char* text : {"数据加载慢",
                           "数据加载失败",
                           "训练数据不支持",
                           "驱动加载慢",
                           "打开文件失败",
                           "训练结果不好",
                           "没有溢出",
                           "没有出现溢出",
                           "不会卡死",
                           "没有内存泄漏",
                           "精度没有问题",
                           "如何恢复训练",
                           "学习率怎么设置",
                           "下载模型失败",
                           "图片格式不支持",
                           "保存模型失败",
                           "显存占用正常",
                           "日志输出太多",
                           "训练结果很好",
                           "文件太大",
                           "设备温度正常",
                           "no overflow",
                           "there was no overflow",
                           "no memory leak",
                           "it is not a memory leak",
                           "the run ended without any segfault",
                           "loss is not NaN",
                           "it doesn't diverge",
                           "how do I resume a training",
                           "the learning rate is constant",
                           "the log file is too long",
                           "the accuracy is good",
                           "how to change the batch size",
                           "the image format is wrong",
                           "data loading is slow today",
                           "the driver was updated yesterday",
                           "which operators are fast",
                           "save a model to a file",
                           "the model file is large",
                           "the device is warm"}) {
    INFO(text);
    std::string found;
    try {
      for (const auto& problem : explain(text)) found += problem.name + "; ";
    } catch (const Error&) {
    }
    CHECK(found == "");
  }
  CHECK(name_of("有没有溢出") == "gradient overflow");  // a question, not a negation
  CHECK(scan("no out of memory so far\n没有溢出\n").sightings.empty());
  CHECK(scan("no. out of memory\n").sightings.size() == 1);
}

TEST_CASE("an unknown text is reported, with the known ones") {
  for (const char* text : {"purple elephants", "999999", "x", "12"}) {
    const auto e = error_of([&] { explain(text); });
    CHECK((e.kind() == ErrorKind::Usage));
    CHECK(has(e.what(), "out of memory"));
    CHECK(has(e.what(), text));
  }
  CHECK(has(error_of([] { explain("EI0099"); }).what(), "did you mean EI00"));
  CHECK((error_of([] { explain("  "); }).kind() == ErrorKind::Usage));
  CHECK((error_of([] { explain(std::string(1 << 20, 'q')); }).kind() == ErrorKind::Usage));
}

TEST_CASE("a log: the cause before what follows from it, with lines and counts") {
  std::string log = "starting\nepoch 1 step 507018 loss 2.3\n";
  log += "[W] CAUTION: The operator aten::foo is not supported; will fall back to run on the CPU\n";
  log += "EZ9999: Inner Error!\n";
  for (int i = 0; i < 3; ++i) log += "RuntimeError: ERR00100 PTA call acl api failed\n";
  log += "NPU function error: aclrtSynchronizeStream, error code is 507015[Error]\r\n";
  log += "EI0002: notify timeout\n";
  const auto report = scan(log);
  std::vector<std::string> names;
  for (const auto& s : report.sightings) names.push_back(s.problem.name);
  CHECK((names == std::vector<std::string>{"507015", "EI0002", "EZ9999", "ERR00100", "falls back to the CPU"}));
  CHECK(report.sightings[0].first_line == 8);
  CHECK(report.sightings[3].count == 3);
  CHECK(has(report.sightings[0].excerpt, "aclrtSynchronizeStream"));
  CHECK(report.lines == 9);
  CHECK(report.first_error_line == 4);
  CHECK(has(to_text(report), "1. 507015: an operator on the AI Core failed"));
  CHECK(has(to_text(report), "3 times, first in line 5"));
  CHECK(to_json(report).at("found", "x").items("x").size() == 5);
}

TEST_CASE("numbers are codes only in an error") {
  CHECK(scan("step 507018\nloss 107001 200000\n").sightings.empty());
  CHECK(scan("error 1507018 and 5070181 and x507018 at 0.507018 and 507018.5\n").sightings.empty());
  CHECK(scan("ret=507018,\n").sightings.size() == 1);
  CHECK(scan("error " + std::string(100, ' ') + "step 507018\n").sightings.empty());
  CHECK(scan("NPUERR00100X EI00061\n").sightings.empty());
  CHECK(scan("error code is 512345\n").sightings.at(0).problem.name == "512345");
}

TEST_CASE("logs of nothing, of one error that is not known, of bytes, compressed") {
  CHECK(has(to_text(scan("")), "empty"));
  const auto unknown = scan("all is well\nfatal: the moon is down\n");
  CHECK(unknown.sightings.empty());
  CHECK(has(to_text(unknown), "line 2: fatal: the moon is down"));
  CHECK(scan("one line without an end").lines == 1);
  CHECK(scan("a\nb\n").lines == 2);
  std::mt19937 random(3);
  std::string bytes;
  for (int i = 0; i < 500'000; ++i) bytes += static_cast<char>(random());
  const auto report = scan(bytes + "\nerror code is 507018\n" + bytes);
  REQUIRE(!report.sightings.empty());
  for (const unsigned char c : to_text(report)) CHECK((c == '\n' || c >= 0x20));
  CHECK(parse_json(to_json(report).dump(), "x").is_object());
  CHECK(scan(std::string("\x1f\x8b\x08\x00", 4) + bytes).compressed);
  CHECK(has(to_text(scan(std::string("\x1f\x8b\x08\x00", 4))), "zcat"));
}

TEST_CASE("progress bars and lines without end") {
  std::string bar;
  for (int i = 0; i < 20'000; ++i) bar += "\repoch 1: " + std::to_string(i) + "/20000";
  const auto report = scan(bar + "\rerror code is 507015\ndone\n");
  CHECK(report.lines == 2);
  CHECK(report.long_lines == 0);
  CHECK(report.sightings.at(0).first_line == 1);
  const auto wide = scan(std::string(300'000, 'x') + " error code is 507015\nsecond\n");
  CHECK(wide.long_lines == 1);
  CHECK(wide.lines == 2);
  CHECK(wide.sightings.at(0).excerpt.size() <= 240);
  CHECK(has(to_text(wide), "64 KiB"));
}

TEST_CASE("a log of a gigabyte takes the memory of a line") {
  Endless source(uint64_t{1} << 30, [](uint64_t i) {
    return i % 100'000 == 7 ? std::string("EI0002 error code is 507018\n") : "step " + std::to_string(i) + std::string(400, '.') + "\n";
  });
  std::istream in(&source);
  const auto report = explain_log(in);
  CHECK(report.bytes == uint64_t{1} << 30);
  REQUIRE(report.sightings.size() == 2);
  CHECK(report.sightings[0].problem.name == "507018");
  CHECK(report.sightings[0].count > 10);
  CHECK(report.sightings[0].first_line == 8);
}
