"""Model folders of Hugging Face: each either has the outputs of transformers, or is refused with the name of the key that our network does not have.
The Python with transformers is NPU_TRAIN_MODELS_PYTHON, .venv/models (scripts/setup --dev), or this one."""
import json
import pathlib
import random
import shutil
import tempfile
import unittest

from images import png_of
from peers import MODELS_PYTHON, Peer
from programs import ProgramTest, in_full, main, needs_onnxruntime, npu_tool, run_dir, train_app

try:
    import numpy
    import torch
    torch.set_num_threads(1)
except ImportError: torch = None

PEER = Peer(MODELS_PYTHON, transformers='import any_torchvision, numpy\nfrom transformers import MistralForCausalLM')
SCRIPT = pathlib.Path(__file__).with_name('python_hub.py')
LIMIT = 1e-5  # relative to the largest output
TEXT = list(range(1, 24))
DECODERS = ('llama', 'mistral', 'qwen2', 'gpt2')
IMAGES = ('vit', 'deit', 'deit_one_head', 'resnet')
NAMES = {'mistral': 'llama', 'bert_classes': 'bert', 'deit': 'vit', 'deit_one_head': 'vit', 'resnet': 'resnet18'}  # our models for these files
# A change of each kind of key, with the expected result: '' if the outputs are those of transformers, otherwise the words of the refusal.
SELECTION = {
    'llama': {'rope_parameters_1': '', 'rope_parameters_2': 'rope_type is dynamic', 'rope_parameters_4': '', 'tie_word_embeddings_0': ''},
    'mistral': {'as_it_is': '', 'sliding_window_1': ''},
    'qwen2': {'as_it_is': '', 'use_sliding_window_0': 'use_sliding_window is true'},
    'gpt2': {'activation_function_0': '', 'n_head_0': '', 'tie_word_embeddings_0': '', 'scale_attn_weights_0': 'scale_attn_weights is false'},
    'bert': {'hidden_act_2': '', 'num_attention_heads_0': ''},
    'vit': {'hidden_act_0': '', 'hidden_act_5': 'hidden_act is gelu_10', 'layer_norm_eps_0': ''},
    'deit': {'as_it_is': ''},
    'resnet': {'as_it_is': '', 'downsample_in_first_stage_0': 'downsample_in_first_stage is true'},
    'clip': {'text_config_eos_token_id_0': '', 'vision_config_hidden_act_1': 'hidden_act is quick_gelu, model.activation is gelu'},
}
KINDS = (*SELECTION, 'bert_classes', 'deit_one_head')
SOME_OTHERS = ('granite', 'gemma', 'helium', 'smollm3', 'roberta', 'vit_msn')


NO_TRANSFORMERS = torch is None or not PEER.has('transformers'), 'transformers is not installed (pip install transformers; NPU_TRAIN_MODELS_PYTHON)'


def make(folder, jobs):
    """Writes the files of transformers for jobs {model_type: options of python_hub.py} to folder/MODEL_TYPE. Returns the fields of the
    variants."""
    for name in jobs: (folder / name).mkdir()
    (folder / 'jobs.json').write_text(json.dumps([{'type': name, 'folder': str(folder / name)} | more for name, more in jobs.items()]))
    code, out, error = PEER.run(SCRIPT, folder / 'jobs.json')
    if code != 0: raise AssertionError(out + error)
    return json.loads(out.splitlines()[-1])


class HubTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        """Uses one process of Python for the complete selection."""
        cls.folders = tempfile.TemporaryDirectory(prefix='npu_train_')
        cls.addClassCleanup(cls.folders.cleanup)
        cls.made = make(pathlib.Path(cls.folders.name), cls.jobs)

    def images(self):
        """The images of python_hub.py, whose values image files can have."""
        out = []
        for i, pixels in enumerate(torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(7))):
            out.append(self.dir / f'{i}.png')
            out[-1].write_bytes(png_of(32, bytes((pixels * 255).round().to(torch.uint8).permute(1, 2, 0).flatten().tolist())))
        return out

    def run_tool(self, kind, folder, *keys, out, name=None):
        """Runs npu_tool with a folder, whose config.json has the options. Writes the outputs to `out`.npy, or the network to `out`.pt."""
        model = ('--model', name or NAMES.get(kind, kind))
        if kind in DECODERS:
            return npu_tool('generate', *model, '--weights', folder, '--device', 'cpu', '--tokens', ','.join(map(str, TEXT)), '--max-new-tokens', '0', '--logits', f'{out}.npy', *keys)
        if kind in IMAGES:
            size = ('model.image_size=32',) if kind == 'resnet' else ()
            return npu_tool('predict', *model, '--weights', folder, '--device', 'cpu', '--logits', f'{out}.npy', *size, *keys, *self.images())
        return npu_tool('export', *model, '--weights', folder, '--to', f'{out}.pt', *keys)

    def outputs(self, kind, out):
        if pathlib.Path(f'{out}.npy').exists(): return torch.from_numpy(numpy.load(f'{out}.npy'))
        net, ids = torch.jit.load(f'{out}.pt'), torch.tensor([TEXT])
        with torch.no_grad():
            if kind.startswith('bert'): return net(ids, torch.ones_like(ids), torch.zeros_like(ids))[0]
            pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(7))
            pixels = (pixels * 255).round() / 255
            mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
            found = net((pixels - mean) / std, torch.tensor([TEXT, TEXT[::-1]]))
            return torch.cat(found[:2])

    def difference(self, kind, folder, out):
        found, wanted = self.outputs(kind, out), torch.from_numpy(numpy.load(folder / 'outputs.npy'))
        self.assertEqual(found.shape, wanted.shape)
        return ((found - wanted).abs().max() / wanted.abs().max()).item()

    def shapes(self, folder):
        content = (folder / 'model.safetensors').read_bytes()
        header = json.loads(content[8:8 + int.from_bytes(content[:8], 'little')])
        return {name: t['shape'] for name, t in header.items() if name != '__metadata__'}


@unittest.skipIf(*NO_TRANSFORMERS)
class EveryField(HubTest):
    jobs = {kind: {'variants': [name for name in names if name != 'as_it_is']} for kind, names in SELECTION.items()} | {name: {} for name in SOME_OTHERS}

    def never_a_third_thing(self, folder, kind, name, field):
        """Checks that the outputs are equal, or that npu_tool refuses the folder and names the field. Returns the message, or an empty
        text."""
        folder, out = pathlib.Path(folder) / kind / name, self.dir / f'{kind}_{name}'
        code, said, error = self.run_tool(kind, folder, out=out)
        if code != 0:
            self.assertEqual(code, 6, said + error)
            self.assertIn(field, error)
            return error
        self.assertLess(self.difference(kind, folder, out), LIMIT, (kind, name))
        return ''

    def test_a_change_of_one_field_is_computed_or_refused(self):
        for kind, names in SELECTION.items():
            for name, words in names.items():
                with self.subTest(kind, name=name):
                    said = self.never_a_third_thing(self.folders.name, kind, name, self.made[kind][name])
                    self.assertIn(words, said)
                    self.assertEqual(bool(words), bool(said), said)

    @in_full
    def test_every_field_is_computed_or_refused(self):
        made = make(self.dir, {kind: {'full': True} for kind in KINDS})
        for kind, variants in made.items():
            refused = set()
            for name, field in variants.items():
                with self.subTest(kind, name=name):
                    if self.never_a_third_thing(self.dir, kind, name, field): refused.add(name)
            print(kind, len(variants), 'variants, refused:', *sorted(refused))
            self.assertGreater(len(variants) - len(refused), 2, kind)

    def check_others(self, folder, made, names):
        for name in names:
            self.assertEqual(made[name], {'as_it_is': ''}, name)
            weights = pathlib.Path(folder) / name / 'as_it_is'
            model = 'bert_tiny' if 'bert' in name or name.endswith('text') else 'vit' if name.startswith(('vit', 'ijepa')) else 'clip_tiny' if 'clip' in name else 'llama_tiny'
            with self.subTest(name, model=model):
                model_type = json.loads((weights / 'config.json').read_text())['model_type']
                self.assertFails(npu_tool('weights', '--from', weights, '--model', model), 6, f'model_type is {model_type}, model.name is {model}')

    def test_other_networks_with_equal_names_are_refused(self): self.check_others(self.folders.name, self.made, SOME_OTHERS)

    @in_full
    def test_every_other_network_with_equal_names_is_refused(self):
        code, out, error = PEER.run(SCRIPT, '--others')
        self.assertEqual(code, 0, error)
        self.assertGreater(len(json.loads(out)), 30)
        self.check_others(self.dir, make(self.dir, {name: {} for name in json.loads(out)}), json.loads(out))


@unittest.skipIf(*NO_TRANSFORMERS)
class OneFolder(HubTest):
    """Options that a user sets, with those of the file."""
    jobs = {'mistral': {}, 'vit': {}}

    def setUp(self):
        super().setUp()
        self.folder = self.dir / 'mistral'
        shutil.copytree(pathlib.Path(self.folders.name) / 'mistral' / 'as_it_is', self.folder)

    def rewrite(self, **changes):
        path = self.folder / 'config.json'
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def logits(self, *keys, name='llama'): return self.run_tool('mistral', self.folder, *keys, out=self.dir / 'found', name=name)

    def test_what_the_user_sets_must_be_that_of_the_file(self):
        self.assertDone(self.logits('model.heads=4', 'model.sliding_window=5', 'model.norm_eps=1e-6'))
        self.assertLess(self.difference('mistral', self.folder, self.dir / 'found'), LIMIT)
        self.assertDone(self.logits('model.context=23'))  # allows shorter texts
        for keys, words in ((('model.heads=2',), 'num_attention_heads is 4, model.heads is 2'), (('model.sliding_window=0',), 'sliding_window is 5, model.sliding_window is 0'),
                            (('model.norm_eps=1e-5',), 'set model.norm_eps=1e-06'), (('model.context=65',), 'max_position_embeddings is 64, model.context is 65'),
                            (('model.rope_scaling={type: linear, factor: 2}',), 'rope_type is none, model.rope_scaling.type is linear'), (('model.dim=64',), 'hidden_size is 32')):
            with self.subTest(keys): self.assertFails(self.logits(*keys), 6, words)
        self.assertFails(self.logits(name='llama_tiny'), 6, 'vocab_size is 61, model.vocab_size is 256')  # llama_tiny is a named size
        said = self.logits('model.sliding_window=0', 'model.weights_strict=false')
        self.assertDone(said)
        self.assertIn('sliding_window is 5, model.sliding_window is 0', said[2])
        self.assertGreater(self.difference('mistral', self.folder, self.dir / 'found'), 1000 * LIMIT)

    def test_a_key_that_is_unknown_is_refused_unless_it_is_empty(self):
        self.rewrite(new_factor=None, new_list=[], new_text='', dtype='bfloat16', use_cache=False)
        self.assertDone(self.logits())
        for value in (3, False, 'x', [1], {'a': 1}):
            self.rewrite(new_factor=value)
            self.assertFails(self.logits(), 6, 'new_factor is ', 'which is unknown here', 'model.weights_strict=false')
        self.assertDone(self.logits('model.weights_strict=false'))
        self.rewrite(new_factor=None, rope_parameters={'rope_type': 'default', 'rope_theta': 10000.0, 'new_factor': 2})
        self.assertFails(self.logits(), 6, 'rope_parameters.new_factor is 2')

    @needs_onnxruntime
    def test_a_window_with_cached_keys_and_in_an_exported_file(self):
        generate = lambda *more: json.loads(self.assertDone(npu_tool('generate', '--model', 'llama', '--weights', self.folder, '--device', 'cpu', '--tokens', '3,1,4,1,5',
                                                                    '--max-new-tokens', '20', '--temperature', '0', '--json', *more)))['tokens']
        self.assertEqual(generate(), generate('--no-cache'))
        said = json.loads(self.assertDone(npu_tool('export', '--model', 'llama', '--weights', self.folder, '--to', self.dir / 'm.onnx', '--dynamic', 'batch,tokens', '--check', '--json')))
        for check in said['checks']: self.assertTrue(check['agrees'] and check['difference'] < 1e-5, check)

    def test_a_folder_alone_builds_the_network(self):
        """No step of the training changes a weight, so its checkpoint must have the outputs of transformers."""
        tokens = self.dir / 'tokens.bin'
        tokens.write_bytes(bytes(b for _ in range(200) for b in (random.Random(3).randrange(61), 0)))
        config = self.config(f'''
device: cpu
precision: 32-true
model: {{weights: {self.folder}}}
data: {{name: tokens, train: {tokens}, context: 23, batch_size: 2, num_workers: 0}}
task: {{name: language_model}}
optimizer: {{name: sgd, lr: 0}}
trainer: {{max_steps: 1, threads: 1}}
''')
        said = json.loads(self.assertDone(npu_tool('summary', config, '--json')))
        self.assertEqual(said['parameters'], sum(numpy.prod(s) for s in self.shapes(self.folder).values()))
        self.assertDone(train_app(config, f'output.dir={self.dir}/out'))
        self.assertDone(npu_tool('generate', '--checkpoint', run_dir(self.dir / 'out'), '--device', 'cpu', '--tokens', ','.join(map(str, TEXT)), '--max-new-tokens', '0',
                                 '--logits', self.dir / 'found.npy'))
        self.assertLess(self.difference('mistral', self.folder, self.dir / 'found'), LIMIT)
        (self.folder / 'config.json').unlink()
        self.assertFails(train_app(config, f'output.dir={self.dir}/none'), 2, "the key 'name' is missing")

    def test_commands_need_no_name_next_to_a_folder(self):
        for name in ('mistral', 'vit'):
            folder = pathlib.Path(self.folders.name) / name / 'as_it_is'
            said = json.loads(self.assertDone(npu_tool('summary', f'model={{weights: {folder}}}', '--json')))
            self.assertEqual(said['parameters'], sum(numpy.prod(s) for s in self.shapes(folder).values()), name)
        self.assertFails(npu_tool('summary', f'model={{name: vit, weights: {self.folder}}}'), 6, 'model_type is mistral')
        generate = ('generate', '--weights', self.folder, '--device', 'cpu', '--tokens', '3,1,4', '--max-new-tokens', '5', '--temperature', '0', '--json')
        tokens = lambda *more: json.loads(self.assertDone(npu_tool(*generate, *more)))['tokens']
        self.assertEqual(tokens(), tokens('--model', 'llama'))
        (self.folder / 'config.json').unlink()
        self.assertFails(npu_tool(*generate), 2, 'no model is named', 'has no config.json that describes one')

    def test_a_folder_of_an_unknown_network_has_no_model(self):
        self.rewrite(model_type='granite')
        config = self.config(f'model: {{weights: {self.folder}}}\ndata: {{name: generated_text}}\ntask: {{name: language_model}}\n')
        self.assertFails(train_app(config, 'output.dir=""'), 6, 'model_type is granite', 'known here')


if __name__ == '__main__': main()
