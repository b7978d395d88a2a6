#include "testing.hpp"

#include <fstream>

#include "environment_variable.hpp"
#include "nets.hpp"
#include "npu_train/export/onnx.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/train/model_task.hpp"
#include "only_if.hpp"
#include "onnx_files.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Exports a case from one batch, to run it with another one.
void add_case(OnnxFiles& files, const OnnxCase& c, int64_t opset, const std::filesystem::path& file) {
  const auto model = model_of(c);
  const auto unseen = batch_of(rows_of(c.inputs, 5));
  export_onnx(model, batch_of(c.inputs), file, {.opset = opset});
  files.add(file.filename(), file, unseen, model.forward(unseen), 1e-5);
}

void check_cases(const std::vector<OnnxCase>& cases, const std::vector<int64_t>& opsets) {
  const TempDir dir;
  OnnxFiles files;
  for (const auto opset : opsets)
    for (const auto& c : cases) {
      const auto name = c.name + "-" + std::to_string(opset);
      CAPTURE(name);
      CHECK_NOTHROW(add_case(files, c, opset, dir / name));
    }
  files.check();
}

void check_file(const std::filesystem::path& file, const Batch& inputs, const Outputs& expected, double tolerance) {
  OnnxFiles files;
  files.add(file.filename(), file, inputs, expected, tolerance);
  files.check();
}

}  // namespace

TEST_CASE("layers, at an unseen batch" * only_if(has_onnxruntime(), kNoOnnxruntime)) { check_cases(layer_cases(), {15, 17, 20}); }

TEST_CASE("arithmetic, at an unseen batch" * only_if(has_onnxruntime(), kNoOnnxruntime)) { check_cases(arithmetic_cases(), {15, 17, 20}); }

TEST_CASE("shapes and reductions, at an unseen batch" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  check_cases(shape_cases(), {15, 17, 20});
}

namespace {

std::string refusal(const std::function<at::Tensor(Xs)>& forward, const OnnxOptions& options = {},
                    const at::Tensor& x = at::randn({4, 3})) {
  const TempDir dir;
  const OnnxCase c{"refused", {x}, forward};
  const auto error = error_of([&] { export_onnx(model_of(c), batch_of(c.inputs), dir / "m.onnx", options); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(std::filesystem::is_empty(dir.path()));  // leaves no partial file
  return error.what();
}

struct Written {
  explicit Written(const Model& m, const Batch& example, const OnnxOptions& options = {})
      : model(m), result(export_onnx(model, example, path, options)) {}
  TempDir dir;
  std::filesystem::path path = dir / "m.onnx";
  Model model;
  OnnxExport result;
};

std::string text_of(const std::filesystem::path& path) { return read_file(path, 1 << 24); }

}  // namespace

TEST_CASE("networks of users at an unseen batch, and at an unseen number of tokens" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  torch::manual_seed(0);
  const TempDir dir;
  OnnxFiles files;
  const at::NoGradGuard no_grad;
  for (const auto& net : net_cases()) {
    auto unseen = rows_of(net.inputs, 5);
    if (!net.model.inputs.empty()) unseen[0] = at::cat({unseen[0], unseen[0].slice(1, 0, 3)}, 1);
    for (const auto opset : {15, 17, 20})
      for (const auto dtype : {at::kFloat, at::kHalf}) {
        const auto name = net.name + "-" + std::to_string(opset) + "-" + c10::toString(dtype);
        export_onnx(net.model, batch_of(net.inputs), dir / name, {.opset = opset, .dtype = dtype});
        net.model.module->eval();
        files.add(name, dir / name, batch_of(unseen), net.model.forward(batch_of(unseen)), dtype == at::kHalf ? 2e-3 : 1e-5);
      }
  }
  files.check();
}

TEST_CASE("the file names its inputs, outputs and free sizes, and the operators of its opset") {
  const Model causal = net_cases()[2].model;
  const auto batch = batch_of(net_cases()[2].inputs);
  const Written w(causal, batch, {.metadata = {{"npu_train.classes", "cat\ndog"}}});
  REQUIRE(w.result.inputs.size() == 1);
  CHECK(w.result.inputs[0].name == "x");
  CHECK((w.result.inputs[0].dtype == at::kLong));
  CHECK(w.result.inputs[0].shape[0].name == "batch");
  CHECK(w.result.inputs[0].shape[1].name == "tokens");
  REQUIRE(w.result.outputs.size() == 1);
  CHECK(w.result.outputs[0].name == "scores");
  CHECK(w.result.outputs[0].shape[0].name == "batch");
  CHECK(w.result.outputs[0].shape[1].name == "tokens");
  CHECK(w.result.outputs[0].shape[2].size == 30);
  CHECK(w.result.operators.at("LayerNormalization") == 1);
  CHECK(w.result.recorded.at("aten::scaled_dot_product_attention") == 1);
  CHECK(w.result.warnings.empty());
  CHECK(has(text_of(w.path), "npu_train.version"));
  CHECK(has(text_of(w.path), "cat\ndog"));
  CHECK(Written(causal, batch, {.opset = 15}).result.operators.count("LayerNormalization") == 0);
  const Written fixed(causal, batch, {.dynamic = {"batch"}});
  CHECK(fixed.result.inputs[0].shape[1].size == 6);
  CHECK_FALSE(fixed.result.inputs[0].shape[1].free());
}

TEST_CASE("a tied weight is in the file once, with its name") {
  torch::nn::Embedding words(40, 32);
  const auto model =
      model_of([words](const Batch& batch) mutable { return Outputs(torch::linear(words(batch.at("x")), words->weight)); }, words.ptr());
  const Written w(model, batch_of({at::randint(40, {4, 6}, at::kLong)}));
  CHECK(has(text_of(w.path), "weight"));
  CHECK(w.result.bytes > 40 * 32 * 4);
  CHECK(w.result.bytes < 40 * 32 * 4 + 1000);
}

TEST_CASE("large weights are in a second file, aligned, and the data of a replaced model are removed" *
          only_if(has_onnxruntime(), kNoOnnxruntime)) {
  torch::nn::Linear layer(64, 64), small(64, 2);
  layer->register_module("small", small);
  const auto model = model_of([=](const Batch& batch) mutable { return Outputs(small(layer(layer(batch.at("x"))))); }, layer.ptr());
  const auto batch = batch_of({at::randn({4, 64})});
  const TempDir dir, replaced;
  const auto path = dir / "m.onnx";
  OnnxFiles judged;
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(dir.path()), std::filesystem::directory_iterator()); };
  const auto weights = static_cast<uint64_t>(layer->weight.nbytes());
  CHECK(export_onnx(model, batch, path, {.external_above = weights + 1024}).data.empty());  // both weights and biases: 17160 bytes
  const auto first = export_onnx(model, batch, path, {.external_above = weights});
  CHECK(first.data_bytes == weights);
  CHECK(first.bytes < weights);
  CHECK(files() == 2);
  const auto rows = batch_of({at::randn({5, 64})});
  std::filesystem::copy(dir.path(), replaced.path());
  judged.add("replaced", replaced / "m.onnx", rows, model.forward(rows), 1e-5);
  layer->weight.data().mul_(2);
  const auto second = export_onnx(model, batch, path, {.external_above = 0});
  CHECK(second.data != first.data);
  CHECK(files() == 2);
  judged.add("second", path, rows, model.forward(rows), 1e-5);
  judged.check();
  export_onnx(model, batch, path);
  CHECK(files() == 1);
  const auto few = model_of([=](const Batch& b) mutable { return Outputs(small(b.at("x"))); }, small.ptr());
  CHECK(export_onnx(few, batch, path, {.external_above = 0}).data.empty());  // each weight is too small for a file of its own
  CHECK(files() == 1);
}

TEST_CASE("a layer that cannot be exported is named, with what to write instead") {
  const auto unknown = refusal([](Xs v) { return at::fft_fft(v[0]).abs(); });
  CHECK(has(unknown, "operator aten::"));
  CHECK(has(unknown, "has no form in ONNX opset 17"));
  torch::nn::BatchNorm1d norm(3);
  torch::nn::Sequential net(norm);
  const auto model = model_of(
      [norm](const Batch& batch) mutable {
        return Outputs(
            at::batch_norm(batch.at("x"), norm->weight, norm->bias, norm->running_mean, norm->running_var, true, 0.1, 1e-5, false));
      },
      net.ptr());
  const auto error = error_of([&] { Written(model, batch_of({at::randn({4, 3})})); });
  CHECK(has(error.what(), "operator aten::batch_norm of the layer '0' (number 1 of the forward) is in training mode; hint: call eval()"));
  CHECK(has(refusal([](Xs v) { return v[0] + at::rand({3}); }), "draws random numbers"));
  CHECK(has(refusal([](Xs v) { return at::dropout(v[0], 0.5, true); }), "is in training mode"));
}

TEST_CASE("decisions of the host are refused or reported") {
  CHECK(has(refusal([](Xs v) { return v[0] * v[0].max().item<double>(); }), "gives the host a number"));
  CHECK(has(refusal([](Xs v) { return v[0].sum().gt(0).item<bool>() ? v[0] : -v[0]; }), "torch::where"));
  const Written w(model_of(OnnxCase{"equal", {}, [](Xs v) { return at::equal(v[0], v[1]) ? v[0] : v[0] + v[1]; }}),
                  batch_of({at::randn({4, 3}), at::randn({4, 3})}));
  REQUIRE(w.result.warnings.size() == 1);
  CHECK(has(w.result.warnings[0], "aten::equal (number 1 of the forward) compares two values"));
}

TEST_CASE("memory that is read after a write through another view is refused") {
  const auto stale = [](const std::function<at::Tensor(Xs)>& forward) { CHECK(has(refusal(forward), "has changed through another view")); };
  stale([](Xs v) {
    auto y = v[0].neg();
    y.select(1, 0).fill_(0);
    return y + 1;
  });
  stale([](Xs v) {
    auto y = v[0].neg();
    const auto first = y.select(1, 0);
    y.mul_(2);
    return first + 1;
  });
  stale([](Xs v) {
    auto y = v[0].neg();
    y.select(1, 0).add_(1);
    return y;
  });
  const auto state = at::zeros({3});
  const auto counts = [state](Xs v) {
    const auto before = v[0] + state;
    return before + state.add_(1);
  };
  CHECK(has(refusal(counts), "reads a constant that the forward changes in place"));
  CHECK(has(refusal([](Xs v) { return v[0].clone().unsqueeze_(0); }), "changes the shape of a tensor in place"));
}

TEST_CASE("a constant that is changed in place later keeps its first content where it was read before" *
          only_if(has_onnxruntime(), kNoOnnxruntime)) {
  const auto counts = [](Xs v) {
    auto h = at::zeros({3});
    const auto before = v[0] + h;
    h = h.add_(2);
    return before * 10 + h;
  };
  check_cases({{"state", {at::randn({4, 3})}, counts}}, {17});
}

TEST_CASE("sizes that depend on the batch in another way are refused with both sizes") {
  const auto odd = refusal([](Xs v) { return at::zeros({v[0].size(0) + 1, 3}).slice(0, 1) + v[0]; });
  CHECK(has(odd, "has a size that is not a multiple of a free size: 3 where batch is 2, 4 where batch is 3"));
  CHECK(has(refusal([](Xs v) { return v[0].sum(0) / v[0].size(0); }), "has the option 'other' 2, and 3 where batch is 3"));
  CHECK(has(refusal([](Xs v) { return v[0].size(0) > 2 ? v[0].neg() : v[0].abs(); }),
            "the forward runs operator aten::abs (number 1 of the forward) where batch is 2"));
  CHECK(has(refusal([](Xs v) { return at::cat(v[0].unbind(0)); }), "where batch is 2, and operator aten::unbind.int"));
}

TEST_CASE("options that are not valid, and models that do not fit") {
  const auto same = [](Xs v) { return v[0] + 1; };
  CHECK(has(refusal(same, {.opset = 14}), "opset 14; allowed: 15 to 20"));
  CHECK(has(refusal(same, {.opset = 21}), "opset 21; allowed: 15 to 20"));
  CHECK(has(refusal(same, {.dtype = at::kBFloat16}), "allowed: float32, float16"));
  CHECK(has(refusal(same, {.dynamic = {"tokens"}}), "no input has a free size 'tokens'; the inputs have: batch"));
  torch::nn::Linear layer(3, 2);
  auto model = model_of([layer](const Batch& batch) mutable { return Outputs(layer(batch.at("x"))); }, layer.ptr());
  model.inputs = {{.name = "x", .dtype = at::kFloat, .shape = {"batch", 3}, .range = {}}};
  CHECK(has(error_of([&] { Written(model, batch_of({at::randn({4, 2})})); }).what(), "the model accepts Float [batch, 3]"));
  const auto unwritable = error_of([&] { export_onnx(model, batch_of({at::randn({4, 3})}), "/proc/no/m.onnx"); });
  CHECK(unwritable.kind() == ErrorKind::Checkpoint);
  layer->to(at::kHalf);
  CHECK(has(error_of([&] { Written(model, batch_of({at::randn({4, 3})})); }).what(), "the parameter 'weight' is Half"));
}

TEST_CASE("fp16: sensitive operators keep fp32" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  torch::nn::Linear layer(3, 3);
  const auto model = model_of(
      [layer](const Batch& batch) mutable { return Outputs(layer(batch.at("x")).pow(2).mean(1, true).add(1e-9).rsqrt()); }, layer.ptr());
  const auto batch = batch_of({at::randn({4, 3})});
  layer->weight.data().fill_(1e-4);
  layer->bias.data().zero_();
  const Written w(model, batch, {.dtype = at::kHalf});
  // 1e-9 is 0 in fp16, so the sum with it must not be computed in fp16.
  check_file(w.path, batch, model.forward(batch), 2e-3);
}

TEST_CASE("fp16: a weight that does not fit is refused") {
  torch::nn::Linear layer(3, 3);
  layer->weight.data()[0][0] = 1e5;
  const auto model = model_of([layer](const Batch& batch) mutable { return Outputs(layer(batch.at("x"))); }, layer.ptr());
  CHECK(has(error_of([&] {
              Written(model, batch_of({at::randn({4, 3})}), {.dtype = at::kHalf});
            }).what(),
            "'weight' has values beyond 65504"));
}

TEST_CASE("fp16: a number that both types read is exact where fp32 is computed" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  const auto forward = [](Xs v) { return (v[0] * 1e-4).pow(2).mean(1, true).add(1e-9).rsqrt() * (v[0] + 1e-9); };
  const auto x = at::ones({4, 3}) * 0.1;
  const Written w(model_of(OnnxCase{"both", {x}, forward}), batch_of({x}), {.dtype = at::kHalf});
  check_file(w.path, batch_of({x}), Outputs(forward({x})), 2e-3);
}

TEST_CASE("resizing to a fixed size does not scale a free one" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  auto model = model_of(OnnxCase{"resize", {}, [](Xs v) { return at::upsample_nearest2d(v[0], at::IntArrayRef{16, 16}); }});
  model.inputs = {{.name = "x", .dtype = at::kFloat, .shape = {"batch", 2, "height", 8}, .range = {}}};
  const Written w(model, batch_of({at::randn({4, 2, 8, 8})}), {.dynamic = {"batch", "height"}});
  const auto unseen = batch_of({at::randn({5, 2, 4, 8})});
  check_file(w.path, unseen, model.forward(unseen), 1e-6);
}

TEST_CASE("names that occur twice, and arithmetic with booleans, are refused") {
  torch::nn::Linear layer(3, 2);
  const auto named = [&](const std::string& input, const std::string& output) {
    const auto model = model_of(
        [=](const Batch& batch) mutable {
          return Outputs(std::vector<Outputs::Field>{{output, layer(batch.at(input))}});
        },
        layer.ptr());
    Batch batch;
    batch.set(input, at::randn({4, 3}));
    return std::string(error_of([&] { Written(model, batch); }).what());
  };
  CHECK(has(named("x", "bias"), "have the name 'bias'"));
  CHECK(has(named("weight", "y"), "have the name 'weight'"));
  CHECK(has(refusal([](Xs v) { return (v[0] > 0) + (v[0] < 1); }), "computes with booleans"));
}

TEST_CASE("modes of modules are restored, a task is exported through its forward") {
  torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Dropout(0.5));
  net->train();
  net[1]->eval();
  const auto model = model_of([net](const Batch& batch) mutable { return Outputs(net->forward(batch.at("x"))); }, net.ptr());
  const auto batch = batch_of({at::randn({4, 3})});
  const Written w(model, batch);
  CHECK(net->is_training());
  CHECK(net[0]->is_training());
  CHECK_FALSE(net[1]->is_training());
  const TempDir dir;
  const auto of_task = task(model, [](const Outputs& out, const Batch&) { return out.first().mean(); });
  CHECK(export_onnx(*of_task, batch, dir / "t.onnx").bytes == w.result.bytes);
  CHECK(text_of(dir / "t.onnx") == text_of(w.path));
}

namespace {

// A linear layer with one weight, and its file.
struct Exported {
  Exported() {
    layer->weight.data().fill_(2);
    model = model_of([layer = layer](const Batch& batch) mutable { return Outputs(layer->forward(batch.at("x"))); }, layer.ptr());
    export_onnx(model, batch_of({at::randn({4, 3})}), path);
  }
  FileComparison checked() const { return check_onnx(path, model, rows, kOnnxTolerance); }
  const Batch rows = batch_of({at::arange(12, at::kFloat).view({4, 3}), at::ones({4})});  // the file does not read the second field
  TempDir dir;
  std::filesystem::path path = dir / "m.onnx";
  torch::nn::Linear layer{3, 2};
  Model model;
};

}  // namespace

TEST_CASE("a correct file agrees, in any mode of the module, which keeps it" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  const Exported e;
  e.model.module->train();
  const auto found = e.checked();
  CHECK(has(found.by, "onnxruntime 1."));
  CHECK(found.agrees());
  CHECK(found.difference < 1e-6);
  CHECK(e.model.module->is_training());
}

TEST_CASE("a file whose weights are others differs" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  const Exported e;
  e.layer->weight.data()[0][0] = 2.01;
  const auto changed = e.checked();
  CHECK_FALSE(changed.agrees());
  CHECK(changed.difference > 1e-4);
  CHECK(changed.difference < 1e-2);
  e.layer->weight.data().fill_(kNaN);
  CHECK(e.checked().difference == kInf);
}

TEST_CASE("a file that onnxruntime cannot run is an error of data" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  const Exported e;
  std::ofstream(e.path, std::ios::binary) << "not a model";
  const auto error = error_of([&] { e.checked(); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "onnxruntime cannot run"));
  CHECK(has(error.what(), "m.onnx"));
}

TEST_CASE("a file is not checked without Python, and by one without onnxruntime") {
  const Exported e;
  const auto not_checked = [&](const std::filesystem::path& python) {
    const EnvironmentVariable named("NPU_TRAIN_ONNX_PYTHON", python);
    const auto error = error_of([&] { e.checked(); });
    CHECK(error.kind() == ErrorKind::Device);
    CHECK(has(error.what(), "[check_onnx] not checked: "));
    CHECK(has(error.what(), "pip install onnxruntime"));
    return std::string(error.what());
  };
  CHECK(has(not_checked(e.dir / "absent"), "there is no program " + (e.dir / "absent").string()));
  std::ofstream(e.dir / "python") << "#!/bin/sh\necho \"No module named 'onnxruntime'\"\nexit 3\n";
  std::filesystem::permissions(e.dir / "python", std::filesystem::perms::owner_all);
  CHECK(has(not_checked(e.dir / "python"), "python cannot import onnxruntime: No module named 'onnxruntime'; hint: "));
}

TEST_CASE("a Python that ends early is an error of data") {
  const Exported e;
  const EnvironmentVariable named("NPU_TRAIN_ONNX_PYTHON", "/bin/false");
  const auto error = error_of([&] { e.checked(); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "onnxruntime has ended early"));
}
