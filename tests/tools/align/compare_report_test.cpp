#include "testing.hpp"

#include "npu_train/io/csv.hpp"
#include "npu_train/tools/align/compare.hpp"

using namespace npu_train;
using npu_train::testing::has;

namespace {

DumpItem item(const std::string& name, double max) {
  DumpItem out{.name = name, .side = "output", .dtype = "torch.float32", .shape = {2, 3}};
  out.max = max, out.min = -1, out.mean = 0.5, out.norm = 2;
  return out;
}

// Returns a comparison of two values of one layer, of which one agrees and the other does not, and of one value that only A has.
DumpComparison sample(ItemComparison::Kind kind, const std::string& layer = "conv1") {
  const auto name = "Module." + layer + ".Conv2d.forward.0";
  CallComparison call{.a = name, .b = name, .layer = layer, .type = "Conv2d", .direction = "forward"};
  for (const double max : {1.0, 4.0}) {
    ItemComparison value{.a = name + ".output." + std::to_string(call.items.size()), .b = name + ".output.0", .side = "output"};
    value.item_a = item(value.a, max);
    value.item_b = item(value.b, 1.0);
    value.kind = kind;
    value.metrics.cosine = 0.5;
    value.metrics.max_abs = max - 1;
    value.error = max - 1;
    value.failed = max > 1;
    if (value.failed) value.message = "differs by 3, allowed 0.001";
    call.items.push_back(value);
  }
  call.failed = true;
  CallComparison only{.a = "Module.extra.Linear.forward.0", .b = "", .layer = "extra", .type = "Linear", .direction = "forward"};
  ItemComparison lone{.a = only.a, .b = "", .side = ""};
  lone.kind = ItemComparison::Kind::OneSided;
  only.items.push_back(lone);
  StepComparison step{.step = 3, .rank = "rank0", .calls = {call, only}};
  step.compared = 2, step.failed = 1, step.one_sided = 1;
  DumpComparison out;
  out.a = "left", out.b = "right";
  out.steps = {step};
  out.agrees = false;
  out.first.found = true;
  out.first.step = 3;
  out.first.call = name;
  out.first.layer = layer;
  out.first.sentence = "conv1 began it";
  out.first.likely = {"rounding"};
  out.first.advice = {"fp32"};
  return out;
}

}  // namespace

TEST_CASE("the text ends with where and whether, worst rows first") {
  const auto text = to_text(sample(ItemComparison::Kind::Tensor));
  CHECK(has(text, "first divergence: conv1 began it"));
  CHECK(has(text, "likely: rounding"));
  CHECK(text.find("output.1") < text.find("extra"));
  CHECK_FALSE(has(text, "output.0 "));  // equal values need no row
  CHECK(text.starts_with("The runs differ: 1 value is beyond tolerance. 2 values of 1 step were compared.\n"));
  auto part = sample(ItemComparison::Kind::Tensor);
  part.sampled = true;
  part.steps[0].failed = 0;
  CHECK(has(to_text(part), "The part that was read agrees within tolerance; the rest was not read"));
}

TEST_CASE("the CSV has msprobe's columns for each kind of dump") {
  const std::string front =
      "NPU Name,Bench Name,NPU Dtype,Bench Dtype,NPU Tensor Shape,Bench Tensor Shape,NPU Requires_grad,Bench Requires_grad,";
  const std::string summary = "NPU max,NPU min,NPU mean,NPU l2norm,Bench max,Bench min,Bench mean,Bench l2norm,";
  const std::string back = "Requires_grad Consistent,Result,Err_message,NPU_Stack_Info,";
  using Kind = ItemComparison::Kind;
  for (const auto& [kind, header] :
       {std::pair(Kind::Tensor, front + "Cosine,EucDist,MaxAbsErr,MaxRelativeErr,One Thousandth Err Ratio,Five Thousandths Err Ratio," +
                                    summary + back + "Data_name,Step,"),
        std::pair(Kind::Statistics, front +
                                        "Max diff,Min diff,Mean diff,L2norm diff,MaxRelativeErr,MinRelativeErr,MeanRelativeErr,"
                                        "NormRelativeErr," +
                                        summary + back + "Step,"),
        std::pair(Kind::Checksum, front + "NPU MD5,BENCH MD5," + back + "Step,")}) {
    const auto text = to_csv(sample(kind));
    CHECK(text.starts_with(header));  // as msprobe 26.2 wrote it for dumps of each kind
    const auto table = parse_csv(text, "compare.csv");
    CHECK(table.rows.size() == 3);
    CHECK(table.rows[0][table.index("NPU Name")] == "Module.conv1.Conv2d.forward.0.output.0");
    CHECK(table.rows[0][table.index("NPU_Stack_Info")] == "N/A");
    CHECK(table.rows[2][table.index("Verdict")] == "A only");
    CHECK(table.rows[2][table.index("Result")] == "N/A");
  }
}

namespace {

// Returns a cell of the CSV file for a comparison of one call, whose input and output `change` alters.
template <class Change>
std::string csv_cell(ItemComparison::Kind kind, const char* column, size_t row, Change&& change) {
  auto comparison = sample(kind);
  auto& items = comparison.steps[0].calls[0].items;
  items[1].item_a = items[1].item_b = item(items[1].a, 1);
  items[1].metrics = {};
  items[0] = items[1];
  items[0].a = items[0].item_a.name = "Module.conv1.Conv2d.forward.0.input.0";
  change(items[0], items[1]);
  const auto table = parse_csv(to_csv(comparison), "compare.csv");
  return table.rows.at(row)[table.index(column)];
}

}  // namespace

TEST_CASE("Result follows msprobe's rules") {
  using Kind = ItemComparison::Kind;
  const auto result = [](Kind kind, auto&& change) { return csv_cell(kind, "Result", 1, change); };
  for (const auto kind : {Kind::Tensor, Kind::Statistics}) {
    CHECK(result(kind, [](auto&, auto&) {}) == "pass");
    CHECK(result(kind, [](auto&, auto& out) { out.item_a.max = npu_train::testing::kNaN; }) == "error");
    CHECK(result(kind, [](auto&, auto& out) { out.item_a.max = out.item_b.min = npu_train::testing::kInf; }) == "pass");  // inf on both
    CHECK(result(kind, [](auto&, auto& out) { out.item_b.requires_grad = true; }) == "error");
    CHECK(result(kind, [](auto&, auto& out) { out.item_b.dtype = "torch.float16"; }) == "error");
    CHECK(result(kind, [](auto&, auto& out) { out.item_b.shape = {3, 2}; }) == "error");
  }
  // compared values: outputs are judged relative to inputs
  CHECK(result(Kind::Tensor, [](auto&, auto& out) { out.metrics.one_thousandth = 0.05; }) == "error");
  CHECK(result(Kind::Tensor, [](auto&, auto& out) {
          out.metrics.one_thousandth = 0.05;
          out.item_a.shape = out.item_b.shape = {};
        }) == "pass");
  CHECK(result(Kind::Tensor, [](auto& in, auto& out) { in.metrics.one_thousandth = out.metrics.one_thousandth = 0.05; }) == "pass");
  CHECK(result(Kind::Tensor, [](auto&, auto& out) { out.metrics.cosine = 0.85; }) == "warning");
  CHECK(result(Kind::Tensor, [](auto& in, auto& out) { in.metrics.cosine = out.metrics.cosine = 0.5; }) == "pass");
  // compared statistics
  CHECK(result(Kind::Statistics, [](auto&, auto& out) { out.item_a.norm = 4; }) == "error");
  CHECK(result(Kind::Statistics, [](auto& in, auto& out) { in.item_a.norm = out.item_a.norm = 4; }) == "pass");
  CHECK(result(Kind::Statistics, [](auto& in, auto& out) { in.item_a.norm = 2.04, out.item_a.norm = 2.6; }) == "warning");
  CHECK(csv_cell(Kind::Statistics, "NormRelativeErr", 1, [](auto&, auto& out) { out.item_a.norm = 3; }) == "50%");
  // no verdict on operators like empty(), whose memory is not written yet
  const auto of_empty = [](auto& in, auto& out) {
    in.a = "Torch.empty.0.forward.input.0", out.a = "Torch.empty.0.forward.output.0";
    out.item_a.max = npu_train::testing::kNaN;
  };
  CHECK(result(Kind::Tensor, of_empty) == "pass");
  CHECK(result(Kind::Checksum, [](auto&, auto& out) { out.item_a.crc = "1", out.item_b.crc = "2"; }) == "error");
  CHECK(result(Kind::Checksum, [](auto&, auto& out) { out.item_a.crc = "1"; }) == "warning");
  CHECK(
      has(csv_cell(Kind::Checksum, "Err_message", 1, [](auto&, auto& out) { out.item_a.crc = "1", out.item_b.crc = "2"; }), "[\"error: "));
}

TEST_CASE("plain arguments and checksums are in the table and the JSON") {
  using Kind = ItemComparison::Kind;
  const auto argument = [](auto& in, auto&) {
    in.kind = Kind::Value;
    in.item_a = in.item_b = {.name = in.a, .side = "input", .dtype = {}};
    in.item_a.type = in.item_b.type = "float";
    in.item_a.value = "0.1", in.item_b.value = "0.2";
  };
  CHECK(csv_cell(Kind::Tensor, "NPU Dtype", 0, argument) == "<class 'float'>");
  CHECK(csv_cell(Kind::Tensor, "Bench max", 0, argument) == "0.2");
  for (const auto kind : {Kind::Tensor, Kind::Checksum}) CHECK(csv_cell(kind, "Result", 0, argument) == "error");
  const auto crc = [](auto&, auto& out) { out.item_a.crc = "0000000a", out.metrics.crc_b = 11; };
  CHECK(csv_cell(Kind::Tensor, "NPU CRC-32", 1, crc) == "0000000a");
  CHECK(csv_cell(Kind::Tensor, "Bench CRC-32", 1, crc) == "0000000b");
  CHECK(csv_cell(Kind::Tensor, "Identical", 1, [](auto&, auto& out) { out.metrics.identical = false; }) == "False");
  auto comparison = sample(Kind::Checksum);
  CHECK_FALSE(has(to_html(comparison), "CRC-32 A"));
  comparison.steps[0].calls[0].items[0].item_a.crc = "0000000a";
  CHECK(has(to_html(comparison), "CRC-32 A"));
  const auto json = to_json(comparison);
  const auto& of_item = json.at("steps", "j").items("j").at(0).at("calls", "j").items("j").at(0).at("items", "j").items("j").at(0);
  CHECK(of_item.at("crc32", "j").items("j").at(0).text("j") == "0000000a");
}

TEST_CASE("NaN on both sides is reported") {
  auto comparison = sample(ItemComparison::Kind::Tensor);
  auto& metrics = comparison.steps[0].calls[0].items[0].metrics;
  metrics.nan_a = 2;
  CHECK_FALSE(has(to_text(comparison), "NaN on both sides"));
  metrics.nan_b = 2;
  CHECK(has(to_text(comparison), "step 3: 1 value with NaN on both sides"));
  auto statistics = sample(ItemComparison::Kind::Statistics);
  auto& item = statistics.steps[0].calls[0].items[1];
  item.item_a.max = item.item_b.max = npu_train::testing::kNaN;
  CHECK(has(to_text(statistics), "NaN on both sides"));
}

TEST_CASE("one of anything has no s") {
  auto comparison = sample(ItemComparison::Kind::Tensor);
  auto& step = comparison.steps[0];
  step.compared = step.one_sided = step.skipped = step.not_compared = 1;
  const auto text = to_text(comparison);
  for (const auto* part : {"1 value of 1 step was compared", "1 value or call on one side only", "1 call excluded", "1 value could not"})
    CHECK(has(text, part));
  CHECK_FALSE(has(text, "1 values"));
  step.compared = 1200;
  CHECK(has(to_text(comparison), "1,200 values of 1 step were compared"));
}

TEST_CASE("the JSON holds everything, and reads back") {
  const auto json = parse_json(to_json(sample(ItemComparison::Kind::Tensor)).dump(), "json");
  CHECK_FALSE(json.at("agrees", "j").boolean("j"));
  CHECK(json.at("first_divergence", "j").at("layer", "j").text("j") == "conv1");
  const auto& call = json.at("steps", "j").items("j").at(0).at("calls", "j").items("j").at(0);
  CHECK(call.at("items", "j").items("j").at(1).at("metrics", "j").at("max_abs", "j").number("j") == 3);
}

TEST_CASE("hostile names stay text on the page and on the terminal") {
  const std::string evil = "</script><img src=x onerror=alert(1)>\x1b[31m";
  const auto comparison = sample(ItemComparison::Kind::Tensor, evil);
  const auto page = to_html(comparison);
  CHECK_FALSE(has(page, "<img src=x"));
  CHECK(has(page, "&lt;img src=x"));
}

TEST_CASE("on a narrow terminal the verdict comes first, names are complete, and empty columns are omitted") {
  const std::string layer = "encoder.layers.encoder_layer_11.self_attention.out_proj";
  const auto comparison = sample(ItemComparison::Kind::Statistics, layer);
  const auto text = to_text(comparison, 80);
  CAPTURE(text);
  CHECK(text.starts_with("The runs differ"));
  CHECK(has(text, "\n  Module." + layer + ".Conv2d.forward.0.output.1\n  differs by 3, allowed 0.001\n"));
  CHECK_FALSE(has(text, "..."));
  CHECK(has(text, "\nverdict  "));
  CHECK_FALSE(has(text, "cosine"));
  CHECK_FALSE(has(text, "max abs"));
  CHECK(has(to_text(sample(ItemComparison::Kind::Tensor, layer), 80), "cosine"));
  size_t begin = text.find("\nverdict");
  for (size_t end; (end = text.find('\n', begin + 1)) != std::string::npos; begin = end)
    CHECK(end - begin - 1 <= (has(text.substr(begin, end - begin), "Module.") ? 120 : 80));
  CHECK(has(to_text(comparison, 200), "Module." + layer + ".Conv2d.forward.0.output.1  differs by 3"));  // one line, as there is room
}

TEST_CASE("the verdict is one plain sentence that says how much exceeds the tolerance, and why") {
  auto comparison = sample(ItemComparison::Kind::Tensor);
  comparison.agrees = true;
  comparison.first = {};
  auto& step = comparison.steps[0];
  step.failed = 0, step.one_sided = 0, step.compared = 3224, step.rounding = 55;
  const auto page = to_html(comparison);
  CHECK(
      has(page,
          "The runs agree within rounding; 55 values exceed the tolerance, all explained by rounding after ReLU and pooling. 3,224 values "
          "of 1 step were compared."));
  step.other_places = 55;
  CHECK(has(to_text(comparison), "all explained by kernels that fuse a norm with the operators after it."));
  step.drifted = true, step.other_places = 0;
  CHECK(
      has(to_text(comparison), "rounding, amplified by ReLU, pooling and updates (from step 3 on, smaller faults would not be detected)"));
}

TEST_CASE("the page has a bar with its name for each layer") {
  const auto page = to_html(sample(ItemComparison::Kind::Tensor));
  CHECK_FALSE(has(page, "Error by layer"));  // no bars without an error
  auto comparison = sample(ItemComparison::Kind::Tensor);
  comparison.steps[0].calls[0].output_error = 0.25;
  const auto with_error = to_html(comparison);
  CHECK(has(with_error, "Error by layer, forward of step 3"));
  CHECK(has(with_error, "<span class=\"name\">conv1</span>"));
  CHECK(has(with_error, "<span class=\"value\">0.25</span>"));
  CHECK(has(with_error, "first difference of the runs"));
}
