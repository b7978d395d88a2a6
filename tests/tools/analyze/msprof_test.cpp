#include "testing.hpp"

#include <algorithm>
#include <fstream>

#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/tools/analyze/msprof.hpp"
#include "tools/analyze/facts/kernels.hpp"

using namespace npu_train;
using npu_train::testing::error_of, npu_train::testing::has, npu_train::testing::TempDir;

namespace {

constexpr const char* kSummary =
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us),"
    "Block Dim,Input Shapes\n"
    "0,4294967295,1,2,aclnnConvolution_Conv2d_Conv2DV2,Conv2DV2,dynamic,AI_CORE,10,250.5,0,8,\"\"\"2,3,8,8;4,3,3,3\"\"\"\n"
    "0,4294967295,2,2,aclnnConvolution_Conv2d_Conv2DV2,Conv2DV2,dynamic,AI_CORE,20,249.5,0,8,\"\"\"2,3,8,8;4,3,3,3\"\"\"\n"
    "0,4294967295,3,2,aclnnInplaceAdds_AddAiCore_Add,Add,dynamic,AI_VECTOR_CORE,30,100,0,8,N/A\n"
    "0,4294967295,4,2,aclnnSort_SortAiCpu_Sort,Sort,N/A,AI_CPU,40,400,0,N/A,N/A\n"
    "0,4294967295,N/A,N/A,hcom_allReduce__1_1,N/A,N/A,HCCL,50,N/A,0,N/A,N/A\n";
constexpr const char* kStatistic =
    "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"
    "0,Cast,AI_VECTOR_CORE,240,23077.4,1.18,96.155,2708.32,10.561\n"
    "0,MatMulV2,AI_CORE,332,17945.3,1.28,54.052,329.68,8.212\n";

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

Json profile_of(const std::vector<std::pair<std::string, double>>& operators) {
  auto list = Json::array();
  for (const auto& [name, seconds] : operators)
    list.push_back(Json::object({{"name", name}, {"phase", "forward"}, {"calls", 3}, {"seconds", seconds}}));
  return Json::object({{"operators", std::move(list)}});
}

const Json& row_with(const Json& report, const std::string& name) {
  for (const auto& row : report.at("rows", "t").items("t"))
    for (const char* key : {"operators", "kernels"})
      for (const auto& item : row.at(key, "t").items("t"))
        if (item.text("t") == name) return row;
  throw Error(ErrorKind::Internal, "t", name);
}

}  // namespace

TEST_CASE("op_summary: launches are summed by type, function and core") {
  const TempDir dir;
  write(dir / "PROF_1/mindstudio_profiler_output/op_summary_20260306151015.csv", kSummary);
  write(dir / "PROF_1/mindstudio_profiler_output/op_statistic_20260306151015.csv", kStatistic);
  const auto table = read_msprof(dir.path());
  REQUIRE(table.files.size() == 1);
  CHECK(has(table.files[0], "op_summary_"));
  REQUIRE(table.kernels.size() == 4);
  const auto& first = table.kernels[0];
  CHECK(first.type == "Conv2DV2");
  CHECK(first.function == "aclnnConvolution");
  CHECK(first.core == "AI_CORE");
  CHECK(first.count == 2);
  CHECK(first.seconds == doctest::Approx(500e-6));
  CHECK(table.kernels[1].core == "AI_CPU");
  CHECK(table.kernels[3].type == "hcom_allReduce__1_1");  // the row has no type
  CHECK(table.kernels[3].seconds == 0);
}

TEST_CASE("op_statistic, and slices of one kind") {
  const TempDir dir;
  write(dir / "op_statistic_1.csv", kStatistic);
  write(dir / "op_statistic_slice_0_2.csv", "\xEF\xBB\xBFModel Name,OP Type,Core Type,Count,Total Time\r\nnet,Cast,AI_VECTOR_CORE,2,5\r\n");
  const auto table = read_msprof(dir.path());
  CHECK(table.files.size() == 2);
  REQUIRE(table.kernels.size() == 2);
  CHECK(table.kernels[0].type == "Cast");
  CHECK(table.kernels[0].count == 242);
  const auto text = merged_report(profile_of({}), "profile.json", table).text();
  for (const auto& file : table.files) CHECK(has(text, file.substr(file.rfind('/') + 1)));
  CHECK(table.kernels[0].seconds == doctest::Approx(23082.4e-6));
  CHECK(read_msprof(dir / "op_statistic_1.csv").kernels.size() == 2);
}

TEST_CASE("operators and kernels are merged by operator, and what has no counterpart stays") {
  const TempDir dir;
  write(dir / "op_summary_1.csv", kSummary);
  const auto report = merged_report(profile_of({{"conv2d", 0.003}, {"add_", 0.001}, {"view", 0.001}}), "profile.json",
                                    read_msprof(dir / "op_summary_1.csv"))
                          .json();
  CHECK(report.at("host_seconds", "t").number("t") == doctest::Approx(0.005));
  CHECK(report.at("device_seconds", "t").number("t") == doctest::Approx(1e-3));
  CHECK(report.at("ai_cpu_seconds", "t").number("t") == doctest::Approx(4e-4));
  const auto& convolution = row_with(report, "conv2d");
  CHECK(convolution.at("kernels", "t").items("t")[0].text("t") == "Conv2DV2");
  CHECK(convolution.at("device_share", "t").number("t") == doctest::Approx(0.5));
  CHECK(convolution.at("host_share", "t").number("t") == doctest::Approx(0.6));
  CHECK(convolution.at("launches", "t").integer("t") == 2);
  CHECK(row_with(report, "add_").at("kernels", "t").items("t")[0].text("t") == "Add");
  CHECK(row_with(report, "view").at("kernels", "t").items("t").empty());
  CHECK(row_with(report, "Sort").at("operators", "t").items("t").empty());
  CHECK(report.at("rows", "t").items("t").size() == 5);
  const auto text = merged_report(profile_of({{"conv2d", 0.003}}), "profile.json", read_msprof(dir / "op_summary_1.csv")).text();
  CHECK(has(text, "40 % of the device's time is on the AI CPU"));
  // the name of the launching function has priority over the kernel's type
  write(dir / "op_summary_2.csv",
        "Op Name,OP Type,Task Type,Task Duration(us)\naclnnMatmul_Transpose_TransposeBatchMatMul,TransposeBatchMatMul,AI_CORE,7\n");
  const auto product = merged_report(profile_of({{"linear", 1}}), "profile.json", read_msprof(dir / "op_summary_2.csv")).json();
  REQUIRE(row_with(product, "linear").at("kernels", "t").items("t").size() == 1);
  CHECK(row_with(product, "linear").at("kernels", "t").items("t")[0].text("t") == "TransposeBatchMatMul");
  // kernels are matched by their types alone
  write(dir / "op_statistic_1.csv", kStatistic);
  const auto types = merged_report(profile_of({{"linear", 1}, {"to", 1}}), "profile.json", read_msprof(dir / "op_statistic_1.csv")).json();
  CHECK(row_with(types, "linear").at("launches", "t").integer("t") == 332);
  CHECK(row_with(types, "to").at("launches", "t").integer("t") == 240);
}

TEST_CASE("a name belongs to one family") {
  std::vector<std::string> names;
  for (const auto& row : npu_train::detail::facts_rows(facts::kernels, "kernels.tsv", 3)) {
    for (const auto name : npu_train::detail::split_view(row[1], ' ')) names.emplace_back(name);
    for (const auto name : npu_train::detail::split_view(row[2], ' ')) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  CHECK((std::adjacent_find(names.begin(), names.end()) == names.end()));
}

TEST_CASE("tables that are not msprof's, and profiles without operators") {
  const TempDir dir;
  const auto fails = [&](const std::string& text, ErrorKind kind, const char* words) {
    write(dir / "op_summary_1.csv", text);
    const auto error = error_of([&] { read_msprof(dir / "op_summary_1.csv"); });
    CAPTURE(error.what());
    CHECK((error.kind() == kind));
    CHECK(has(error.what(), words));
  };
  fails("a,b\n1,2\n", ErrorKind::Data, "there is no column OP Type");
  fails("Op Name,OP Type,Task Type,Task Duration(us)\nx,Add,AI_CORE,much\n", ErrorKind::Data, "op_summary_1.csv:2: 'much'");
  fails("Op Name,OP Type,Task Type,Task Duration(us)\nx,Add,AI_CORE,-1\n", ErrorKind::Data, "'-1'");
  fails("Op Name,OP Type,Task Type,Task Duration(us)\nx,Add,AI_CORE,inf\n", ErrorKind::Data, "'inf'");
  fails("OP Type,Core Type,Count,Total Time(us)\nAdd,AI_CORE,1.5,1\n", ErrorKind::Data, "a number of launches");
  fails("OP Type,Core Type,Count,Total Time(us)\nAdd,AI_CORE\n", ErrorKind::Data, "2");
  fails("", ErrorKind::Data, "op_summary_1.csv");
  fails("OP Type,Core Type,Count,Total Time(us)\n", ErrorKind::Data, "no rows");
  std::string many = "OP Type,Core Type,Count,Total Time(us)\n";
  for (int i = 0; i < 2; ++i) many += "Add,AI_CORE,999999999999999,1\n";
  fails(many, ErrorKind::Data, "more than 1e15 launches of Add");
  for (const char* calls : {"9223372036854775807", "-1"}) {
    const auto profile = parse_json(std::string(R"({"operators":[{"name":"add","calls":)") + calls + R"(,"seconds":1}]})", "profile.json");
    CHECK(has(error_of([&] { merged_report(profile, "profile.json", {}); }).what(), "calls of add"));
  }
  const TempDir empty;
  CHECK(has(error_of([&] { read_msprof(empty.path()); }).what(), "there is no op_summary_*.csv"));
  CHECK((error_of([&] { read_msprof(empty / "missing.csv"); }).kind() == ErrorKind::Data));
  const auto none = error_of([&] { merged_report(Json::object({{"windows", 1}}), "profile.json", {}); });
  CHECK((none.kind() == ErrorKind::Usage));
  CHECK(has(none.what(), "trainer.profiler=chrome"));
}
