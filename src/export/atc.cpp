#include "npu_train/export/atc.hpp"

#include <algorithm>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/process.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/operator_support.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

constexpr const char* kAtc = "atc";
constexpr int64_t kLastOpsetOfAtc = 18;  // CANN 8.5
constexpr const char* kTorch = "2.13";
constexpr size_t kShownOutput = 2000;

bool is_image(const OnnxValue& input) { return input.shape.size() == 4 && (input.shape[1].size == 1 || input.shape[1].size == 3); }

std::string shape_of(const OnnxValue& input, const std::vector<int64_t>& batches) {
  std::vector<std::string> sizes;
  for (const auto& extent : input.shape) {
    check(!extent.free() || extent.name == "batch", ErrorKind::Usage, kAtc, "the size '", extent.name, "' of the input '", input.name,
          "' is free; ATC needs fixed sizes except for the batch; hint: export with --dynamic batch");
    sizes.push_back(!extent.free() ? std::to_string(extent.size) : batches.size() == 1 ? std::to_string(batches[0]) : "-1");
  }
  return input.name + ":" + join(sizes, ",");
}

// Returns the configuration of AIPP, which computes out = (in - min) * var_reci per channel, on bytes.
std::string aipp_text(const OnnxValue& input, const AtcOptions& atc) {
  const auto channels = static_cast<size_t>(input.shape[1].size);
  check(atc.mean.size() == channels && atc.std.size() == channels, ErrorKind::Usage, kAtc, "the normalisation has ", atc.mean.size(),
        " channels; the input '", input.name, "' has ", channels);
  std::string out =
      str_cat("aipp_op {\n  aipp_mode : static\n  related_input_rank : 0\n  input_format : ", channels == 3 ? "RGB888_U8" : "YUV400_U8",
              "\n  src_image_size_w : ", input.shape[3].size, "\n  src_image_size_h : ", input.shape[2].size,
              "\n  crop : false\n  csc_switch : false\n  rbuv_swap_switch : false\n");
  for (size_t c = 0; c < channels; ++c)
    out +=
        str_cat("  min_chn_", c, " : ", shortest(255 * atc.mean[c]), "\n  var_reci_chn_", c, " : ", shortest(1 / (255 * atc.std[c])), "\n");
  return out + "}\n";
}

std::vector<std::string> remarks_on(const std::map<std::string, int64_t>& recorded, const AscendOperators& chip) {
  std::vector<std::string> out;
  for (const auto& [name, count] : recorded) {
    const auto library = name.substr(0, name.find("::")), rest = name.substr(name.find("::") + 2);
    const auto dot = rest.find('.');
    const auto facts = chip.find(library, rest.substr(0, dot), dot == std::string::npos ? "" : rest.substr(dot + 1));
    if (facts.support != OperatorSupport::Native && facts.support != OperatorSupport::Composite)
      out.push_back(name + ": " + support_name(facts.support) + (facts.limits.empty() ? "" : ": " + facts.limits));
  }
  return out;
}

}  // namespace

AtcJob write_atc_job(const std::filesystem::path& model, const OnnxExport& exported, const OnnxOptions& options, const AtcOptions& atc) {
  const AscendOperators chip(atc.soc, kTorch);
  check(options.opset <= kLastOpsetOfAtc, ErrorKind::Usage, kAtc, "opset ", options.opset, "; ATC accepts 11 to ", kLastOpsetOfAtc,
        " (CANN 8.0: to 15); hint: --opset 17, or --opset 15");
  check(!atc.batches.empty() && *std::min_element(atc.batches.begin(), atc.batches.end()) >= 1, ErrorKind::Usage, kAtc,
        "no batch size, or one below 1; hint: --atc-batch 1,8");
  auto stem = model;
  stem.replace_extension();
  AtcJob job{.command = {},
             .script = stem.string() + ".atc.sh",
             .aipp = {},
             .output = stem.string() + ".om",
             .remarks = remarks_on(exported.recorded, chip)};
  if (!chip.assumed().empty()) job.remarks.push_back(chip.assumed());
  std::vector<std::string> shapes;
  for (const auto& input : exported.inputs) shapes.push_back(shape_of(input, atc.batches));
  const bool image = !exported.inputs.empty() && is_image(exported.inputs[0]);
  job.command = {"atc", "--framework=5", "--model=" + model.string(), "--output=" + stem.string(), "--soc_version=" + chip.soc(),
                 std::string("--input_format=") + (image ? "NCHW" : "ND"), "--input_shape=" + join(shapes, ";"),
                 // For fp32, ATC selects the operators that may compute in fp16; for fp16, the file already determines them.
                 std::string("--precision_mode=") + (options.dtype == at::kHalf ? "must_keep_origin_dtype" : "allow_mix_precision")};
  if (atc.batches.size() > 1) {
    std::vector<std::string> sizes;
    for (const auto size : atc.batches) sizes.push_back(std::to_string(size));
    job.command.push_back("--dynamic_batch_size=" + join(sizes, ","));
  }
  if (!atc.mean.empty()) {
    check(image, ErrorKind::Usage, kAtc, "a normalisation is for images [batch, 1 or 3 channels, height, width]");
    job.aipp = stem.string() + ".aipp.cfg";
    write_file_atomic(job.aipp, aipp_text(exported.inputs[0], atc));
    job.command.push_back("--insert_op_conf=" + job.aipp.string());
  }
  write_file_atomic(job.script,
                    "#!/bin/sh\n# Compiles the model for " + chip.soc() + "; needs CANN's set_env.sh.\n" + shell_words(job.command) + "\n");
  std::filesystem::permissions(job.script, std::filesystem::perms::owner_exec, std::filesystem::perm_options::add);
  return job;
}

bool run_atc(const AtcJob& job) {
  const auto ran = run_command(job.command, {.deadline = std::nullopt});
  if (ran.end == CommandResult::End::NotFound) return false;
  const auto shown = ran.output.size() > kShownOutput ? ran.output.substr(ran.output.size() - kShownOutput) : ran.output;
  check(ran.ok(), ErrorKind::Device, kAtc, "failed: ", shown, "; hint: run ", job.script.string(), " with --log=debug");
  check(std::filesystem::exists(job.output), ErrorKind::Device, kAtc, "ended without an error, but wrote no ", job.output.string(), ": ",
        shown);
  return true;
}

}  // namespace npu_train
