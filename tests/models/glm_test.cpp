#include "testing.hpp"

#include "npu_train/models/glm.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "models/decoder_rows.hpp"
#include "npu_train/base/file_backed_memory.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;

namespace {

constexpr int64_t kBos = 255, kGmask = 254, kMask = 253;

at::Tensor glm_ids(int64_t batch, int64_t length) { return at::randint(0, kMask, {batch, length}, at::kLong); }

// Returns random tokens. In each sequence, [gMASK] and bos are at `prefix` - 1 and `prefix`.
at::Tensor with_gap(int64_t batch, int64_t length, int64_t prefix) {
  at::Tensor out = glm_ids(batch, length);
  out.select(1, prefix - 1).fill_(kGmask);
  out.select(1, prefix).fill_(kBos);
  return out;
}

Model glm_of(int64_t layers) {
  auto options = glm_tiny_options();
  options.layers = layers;
  return glm(options);
}

// Returns for each token the largest change of its logits if token `place` of the first sequence changes.
at::Tensor changes(const Model& model, const at::Tensor& x, int64_t place) {
  at::Tensor other = x.clone();
  other[0][place] = (x[0][place].item<int64_t>() + 1) % kMask;
  return (model.forward(other) - model.forward(x)).abs().amax(2)[0];
}

}  // namespace

TEST_CASE("GLM: names, shapes and number of parameters") {
  auto options = glm_tiny_options();
  const Model model = glm(options);
  CHECK(parameters_of(*model.module).numel() == 256 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64);
  CHECK(testing::parameter(model, "blocks.1.attention.query_key_value.bias").sizes() == at::IntArrayRef({192}));
  CHECK(testing::parameter(model, "blocks.0.mlp.fc2.weight").sizes() == at::IntArrayRef({64, 256}));
  options.tie_embeddings = false;
  options.hidden = 100;
  const Model untied = glm(options);
  CHECK(testing::parameter(untied, "head.weight").sizes() == at::IntArrayRef({256, 64}));
  CHECK(testing::parameter(untied, "blocks.0.mlp.fc1.weight").sizes() == at::IntArrayRef({100, 64}));
  CHECK(untied.forward(glm_ids(1, 3)).sizes() == at::IntArrayRef({1, 3, 256}));
  for (const auto& p : parameters_of(*untied.module)) {
    CAPTURE(p.name);
    if (p.name.ends_with("bias"))
      CHECK(p.value.abs().max().item<double>() == 0);
    else if (p.name.find("ln") != std::string::npos)
      CHECK(((p.value.min().item<double>() == 1 && p.value.max().item<double>() == 1)));
    else
      CHECK(p.value.std().item<double>() ==
            doctest::Approx(p.name.starts_with("blocks") ? 1 / std::sqrt(p.value.size(1)) : 0.02).epsilon(0.08));
  }
}

TEST_CASE("GLM: its norms stay fp32 where other parameters are cast, and every layer gives bf16") {
  const Model model = glm(glm_tiny_options());
  CHECK(norm_parameters_of(*model.module).size() == 2 * (2 * 2 + 1));
  for (const auto& p : parameters_of(*model.module))
    if (p.name.find("ln") == std::string::npos) p.value.set_data(p.value.to(at::kBFloat16));
  CHECK(((model.forward(with_gap(2, 9, 4)).scalar_type() == at::kBFloat16)));
}

TEST_CASE("GLM: the prefix is seen in both directions, what follows only from later on") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(1);
  const Model model = glm(glm_tiny_options());
  const at::Tensor x = with_gap(1, 11, 5);
  const auto in_prefix = changes(model, x, 3), after = changes(model, x, 7);
  CHECK(in_prefix.min().item<double>() > 1e-4);
  CHECK(after.narrow(0, 0, 7).max().item<double>() == 0);
  CHECK(after.narrow(0, 7, 4).min().item<double>() > 1e-4);
  // Without bos, all attention is causal.
  const at::Tensor plain = glm_ids(1, 11);
  const auto causal = changes(model, plain, 3);
  CHECK(causal.narrow(0, 0, 3).max().item<double>() == 0);
  CHECK(causal.narrow(0, 3, 8).min().item<double>() > 1e-4);
  // A sequence does not change the mask of another one in the batch.
  const at::Tensor both = model.forward(at::cat({x, plain}));
  CHECK((both[0] - model.forward(x)[0]).abs().max().item<double>() < 1e-5);
  CHECK((both[1] - model.forward(plain)[0]).abs().max().item<double>() < 1e-5);
}

TEST_CASE("GLM: the order of tokens shows in the prefix and after it, and the place of the mask in what follows") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(2);
  const Model model = glm_of(/*layers=*/1);  // with more layers, the causal mask alone would make the order visible
  const auto last = [&](const at::Tensor& x) { return model.forward(x)[0][-1]; };
  const auto swapped = [](const at::Tensor& x, int64_t a, int64_t b) {
    at::Tensor out = x.clone();
    out[0][a] = x[0][b];
    out[0][b] = x[0][a];
    return out;
  };
  const at::Tensor x = with_gap(1, 12, 6);
  CHECK((last(swapped(x, 1, 2)) - last(x)).abs().max().item<double>() > 1e-3);
  CHECK((last(swapped(x, 8, 9)) - last(x)).abs().max().item<double>() > 1e-3);
  // Puts two mask tokens into the prefix. Their order in the text is the same; only which of them gives the position differs.
  at::Tensor first = x.clone();
  first[0][2] = kMask;
  at::Tensor second = first.clone();
  first[0][5] = 7, second[0][5] = kGmask;
  CHECK((last(first) - last(second)).abs().max().item<double>() > 1e-3);
}

TEST_CASE("GLM: a sequence in pieces gives the logits of all tokens up to then") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(4);
  const Model model = glm(glm_tiny_options());
  for (const int64_t prefix : {0, 1, 4, 9, 20}) {
    CAPTURE(prefix);
    at::Tensor x = prefix > 0 ? with_gap(2, 64, prefix) : glm_ids(2, 64);
    if (prefix == 9) x[1][9] = 3;  // this sequence has no prefix, and the other one has
    const auto more = model.start_sequence();
    int64_t first = 0;
    for (const int64_t size : {5, 1, 7, 1, 50}) {
      const at::Tensor logits = more(x.narrow(1, first, size)), expected = model.forward(x.narrow(1, 0, first + size));
      CHECK((logits - expected.narrow(1, first, size)).abs().max().item<double>() < 1e-4);
      first += size;
    }
    REQUIRE(first == 64);
    CHECK(testing::error_of([&] { more(glm_ids(2, 1)); }).kind() == ErrorKind::Usage);
  }
}

TEST_CASE("GLM: gradients with checkpointed blocks are equal") {
  torch::manual_seed(5);
  const Model model = glm(glm_tiny_options());
  const at::Tensor x = at::cat({with_gap(2, 17, 6), glm_ids(1, 17)}), y = glm_ids(3, 17);
  const auto gradients = [&](const Model& m) {
    m.module->zero_grad();
    // Runs another pass, with other masks, between forward and backward.
    const at::Tensor loss = at::cross_entropy_loss(m.forward(x).flatten(0, 1), y.flatten());
    m.forward(with_gap(3, 17, 2));
    loss.backward();
    return testing::gradients_of(m);
  };
  const auto plain = gradients(model);
  for (const auto& recomputed : {std::vector<bool>{true, true, true, false}, std::vector<bool>{true, true, true, true}}) {
    testing::check_equal(plain, gradients(with_checkpoints(model, recomputed)));
  }
  const auto batches = [](int64_t n) {
    Batch out;
    out.set("input", with_gap(n, 9, 4));
    return out;
  };
  const auto costs = block_costs(model, batches, 4);
  CHECK(costs.size() == 4);
}

TEST_CASE("GLM: several threads predict with different masks at once") {
  torch::manual_seed(6);
  const Model model = glm(glm_tiny_options());
  std::vector<at::Tensor> inputs, expected;
  c10::AutoGradMode no_grad(false);
  for (int64_t i = 0; i < 4; ++i) {
    inputs.push_back(with_gap(2, 12, 2 + 2 * i));
    expected.push_back(model.forward(inputs.back()));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < inputs.size(); ++i)
    threads.emplace_back([&, i] {
      c10::AutoGradMode of_thread(false);
      for (int repeat = 0; repeat < 20; ++repeat)
        if ((model.forward(inputs[i]) - expected[i]).abs().max().item<double>() > 1e-4) ++wrong;
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("GLM: invalid sizes and inputs are one error each") {
  using testing::says;
  const auto refused = [&](const auto& change, const std::string& word) {
    auto options = glm_tiny_options();
    change(options);
    says([&] { glm(options); }, ErrorKind::Usage, word);
  };
  refused([](GlmOptions& o) { o.heads = 32; }, "dim is 64; it must be a multiple of 4 * heads = 128");
  refused([](GlmOptions& o) { o.vocab_size = 255; }, "bos_token is 255; allowed: 0 to 254 (vocab_size - 1)");
  refused([](GlmOptions& o) { o.gmask_token = -1; }, "gmask_token is -1");
  refused([](GlmOptions& o) { o.mask_token = 255; }, "bos_token is 255, as a mask token is; they must differ");
  refused([](GlmOptions& o) { o.layers = 0; }, "must be at least 1");
  auto huge = glm_6b_options();
  huge.layers = 4096;
  says([&] { glm(huge); }, ErrorKind::OutOfMemory, "825,386,475,520 parameters in fp32 need 3.0 TiB");
  {
    const testing::TempDir dir;
    const FileBackedMemory files(dir.path());
    huge.dim = 1 << 16;
    says([&] { glm(huge); }, ErrorKind::OutOfMemory,
         "of this host are free, its memory and the disk of " + dir.path().string() + " together; hint: set TMPDIR");
  }
  const Model model = glm(glm_tiny_options());
  says([&] { model.forward(glm_ids(1, 65)); }, ErrorKind::Usage, "glm");
  at::Tensor wrong = glm_ids(2, 4);
  wrong[1][2] = 256;
  says([&] { model.forward(wrong); }, ErrorKind::Data, "token 2 of sequence 1 is 256; allowed: 0 to 255");
  says(
      [&] {
        model.blocks[1].forward({}, at::zeros({1, 4, 64}));
      },
      ErrorKind::Usage, "block 0 runs in another context than the block embed");
}

TEST_CASE("GLM: rows of a padded batch give the logits of each text alone, with prefixes and without") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(5);
  const Model model = glm_of(2);
  testing::check_padded_batch(model, glm_ids(3, 50));
  at::Tensor x = with_gap(3, 50, 40);
  x[1][12] = kMask;
  x[2][0] = kBos;  // in the padding
  testing::check_padded_batch(model, x, {45, 1, 4});
  // The piece with bos recomputes all tokens.
  const auto more = model.start_batch(at::tensor({0, 7, 31}, at::kLong));
  more(x.narrow(1, 0, 38));
  const at::Tensor logits = more(x.narrow(1, 38, 12));
  for (int64_t row = 0; row < 3; ++row) {
    const int64_t begin = std::vector<int64_t>{0, 7, 31}[static_cast<size_t>(row)];
    const at::Tensor alone = model.forward(x.narrow(0, row, 1).narrow(1, begin, 50 - begin));
    CHECK((alone.narrow(1, 38 - begin, 12) - logits.narrow(0, row, 1)).abs().max().item<double>() < 1e-5);
  }
}

TEST_CASE("GLM: packed documents have the logits and gradients of each alone, with prefixes and without") {
  torch::manual_seed(6);
  at::Tensor x = glm_ids(1, 60);
  testing::check_packed_documents(glm_of(2), x);
  // The documents begin at 0, 17, 18 and 48; the last 3 tokens are padding.
  x[0][9] = kGmask;
  x[0][10] = kBos;
  x[0][17] = kBos;
  x[0][20] = kMask;
  x[0][33] = kBos;
  x[0][40] = kBos;  // the second bos of a document is an ordinary token
  x[0][58] = kBos;
  testing::check_packed_documents(glm_of(2), x);
}
