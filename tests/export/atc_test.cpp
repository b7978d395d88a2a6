#include "testing.hpp"

#include "npu_train/export/atc.hpp"
#include "npu_train/io/file.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns the description of an image classifier, as export_onnx gives it.
OnnxExport classifier_export() {
  OnnxExport out;
  out.inputs = {{.name = "input", .dtype = at::kFloat, .shape = {"batch", 3, 24, 32}}};
  out.outputs = {{.name = "output", .dtype = at::kFloat, .shape = {"batch", 10}}};
  out.recorded = {{"aten::relu", 2}, {"aten::_add_relu.Scalar", 1}};
  return out;
}

bool has_word(const AtcJob& job, const std::string& word) {
  return std::find(job.command.begin(), job.command.end(), word) != job.command.end();
}

}  // namespace

TEST_CASE("the command has the shapes, the chip, the precision and the normalisation of bytes") {
  const TempDir dir;
  const auto job = write_atc_job(dir / "m.onnx", classifier_export(), {},
                                 {.soc = "Ascend910B1", .batches = {1}, .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}});
  CHECK(job.command[0] == "atc");
  CHECK(has_word(job, "--model=" + (dir / "m.onnx").string()));
  CHECK(has_word(job, "--output=" + (dir / "m").string()));
  CHECK(has_word(job, "--soc_version=Ascend910B1"));
  CHECK(has_word(job, "--input_format=NCHW"));
  CHECK(has_word(job, "--input_shape=input:1,3,24,32"));
  CHECK(has_word(job, "--precision_mode=allow_mix_precision"));
  CHECK(has_word(job, "--insert_op_conf=" + (dir / "m.aipp.cfg").string()));
  const auto aipp = read_file(job.aipp, 1 << 20);
  for (const auto* line : {"input_format : RGB888_U8", "src_image_size_w : 32", "src_image_size_h : 24", "min_chn_0 : 123.675",
                           "var_reci_chn_0 : 0.01712475383", "min_chn_2 : 103.53", "var_reci_chn_1 : 0.0175070028"})
    CHECK(has(aipp, line));
  CHECK(has(read_file(job.script, 1 << 20), "\natc --framework=5 --model="));
  REQUIRE(job.remarks.size() == 1);
  CHECK(has(job.remarks[0], "aten::_add_relu.Scalar: cpu_fallback"));
}

TEST_CASE("several batch sizes, fp16, and inputs that are not images") {
  const TempDir dir;
  const auto job = write_atc_job(dir / "m.onnx", classifier_export(), {.dtype = at::kHalf}, {.soc = "310P3", .batches = {1, 8}});
  CHECK(has_word(job, "--input_shape=input:-1,3,24,32"));
  CHECK(has_word(job, "--dynamic_batch_size=1,8"));
  CHECK(has_word(job, "--precision_mode=must_keep_origin_dtype"));
  CHECK(job.aipp.empty());
  CHECK_FALSE(std::filesystem::exists(dir / "m.aipp.cfg"));
  auto tokens = classifier_export();
  tokens.inputs = {{.name = "x", .dtype = at::kLong, .shape = {"batch", 16}}, {.name = "y", .dtype = at::kLong, .shape = {2}}};
  const auto text = write_atc_job(dir / "t.onnx", tokens, {}, {.soc = "310P3"});
  CHECK(has_word(text, "--input_format=ND"));
  CHECK(has_word(text, "--input_shape=x:1,16;y:2"));
}

TEST_CASE("what ATC does not accept is refused before a file is written") {
  const TempDir dir;
  const auto refused = [&](const OnnxExport& exported, const OnnxOptions& options, const AtcOptions& atc) {
    const auto error = error_of([&] { write_atc_job(dir / "m.onnx", exported, options, atc); });
    CHECK(error.kind() == ErrorKind::Usage);
    CHECK(std::filesystem::is_empty(dir.path()));
    return std::string(error.what());
  };
  CHECK(has(refused(classifier_export(), {}, {.soc = "H100"}), "H100"));
  CHECK(has(refused(classifier_export(), {.opset = 19}, {.soc = "910B1"}), "opset 19; ATC accepts 11 to 18"));
  CHECK(has(refused(classifier_export(), {}, {.soc = "910B1", .batches = {0}}), "--atc-batch 1,8"));
  CHECK(has(refused(classifier_export(), {}, {.soc = "910B1", .mean = {0.5}, .std = {0.5}}), "1 channels; the input 'input' has 3"));
  auto free = classifier_export();
  free.inputs[0].shape[2] = Extent("height");
  CHECK(has(refused(free, {}, {.soc = "910B1"}), "hint: export with --dynamic batch"));
}

TEST_CASE("a compiler that is absent, fails, or writes nothing") {
  const TempDir dir;
  CHECK_FALSE(run_atc({.command = {"no_such_atc"}}));
  const AtcJob failing{.command = {"sh", "-c", "echo E10001 bad operator; exit 1"}, .script = dir / "m.atc.sh"};
  const auto error = error_of([&] { run_atc(failing); });
  CHECK(error.kind() == ErrorKind::Device);
  CHECK(has(error.what(), "E10001 bad operator"));
  CHECK(has(error_of([&] { run_atc({.command = {"true"}, .output = dir / "m.om"}); }).what(), "wrote no"));
  CHECK(run_atc({.command = {"touch", (dir / "m.om").string()}, .output = dir / "m.om"}));
}
