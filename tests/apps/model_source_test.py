"""Every command that computes with a model builds the same one: weights of transformers, timm and nanoGPT, and adapters of
PEFT, whose logits Python gives. Skipped without the packages; the Python that has them is that of python_weights_test.py."""
import json
import pathlib
import random
import tempfile
import unittest

from images import png_of
from peers import MODELS_PYTHON, Peer
from programs import SOURCE, ProgramTest, main, npu_tool

PEER = Peer(MODELS_PYTHON, transformers='import any_torchvision, numpy\nfrom transformers import GPT2LMHeadModel, LlamaForCausalLM', timm='import timm', peft='import peft')
SCRIPT = SOURCE / 'tests/apps/python_sources.py'
LIMIT = 1e-5  # relative to the largest logit
TOKENS = '3,7,1,30,2,9,4,50'  # the text that python_sources.py uses
SIZES = ('model.vocab_size=96', 'model.context=64', 'model.layers=2', 'model.heads=4', 'model.dim=64')
LLAMA = ('--model', 'llama', *SIZES, 'model.kv_heads=2', 'model.hidden=128', 'model.norm_eps=1e-6')
GPT2 = ('--model', 'gpt2', *SIZES)
VIT = ('--model', 'vit', '--num-classes', '10', 'model.image_size=32', 'model.patch_size=8', 'model.dim=32', 'model.depth=2', 'model.heads=2')
# case of python_sources.py -> model, file, further keys
TEXTS = {'llama': (LLAMA, 'llama'), 'attention adapter': (LLAMA, 'llama', 'model.lora.from={dir}/attention'), 'rslora adapter': (LLAMA, 'llama', 'model.lora.from={dir}/rslora'),
         'nanogpt': (GPT2, 'nanogpt.pt'), 'nanogpt without biases': (GPT2, 'unbiased.pt', 'model.bias=false')}
IMAGES = {'timm.pth.tar ema': (VIT, 'timm.pth.tar'), 'timm.pth.tar plain': (VIT, 'timm.pth.tar', 'model.weights_key=model'), 'old.pth': (VIT, 'old.pth')}


@unittest.skipUnless(PEER.has('transformers', 'timm'), 'transformers and timm are not installed (scripts/setup --dev; NPU_TRAIN_MODELS_PYTHON)')
class ModelSources(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix='npu_train_')
        cls.files = pathlib.Path(cls.folder.name)
        source = random.Random(3)
        pixels = bytes(source.randrange(256) for _ in range(3 * 32 * 32))
        (cls.files / 'image.png').write_bytes(png_of(32, pixels))
        (cls.files / 'image.rgb').write_bytes(pixels)
        cls.made = cls.python('make', [])

    @classmethod
    def tearDownClass(cls): cls.folder.cleanup()

    @classmethod
    def python(cls, what, jobs):
        (cls.files / 'jobs.json').write_text(json.dumps(jobs))
        code, out, error = PEER.run(SCRIPT, what, cls.files, cls.files / 'jobs.json')
        assert code == 0, out + error
        return json.loads(out.splitlines()[-1])

    def arguments(self, case, table):
        model, file, *keys = table[case]
        return [*model, *(key.format(dir=self.files) for key in keys)], self.files / file

    def test_all_commands_build_the_model_of_python(self):
        made = self.made
        if not PEER.has('peft'): print('skipped: adapters: peft is not installed (scripts/setup --dev)')
        else: self.assertIn('rslora adapter', made['cases'])
        jobs = []

        def job(case, name, images, *command):
            self.assertDone(npu_tool(*command))
            jobs.append({'case': case, 'file': str(name), 'images': images})
        for number, case in enumerate(made['cases']):
            images, text = case in IMAGES, case in TEXTS
            model, file = self.arguments(case, IMAGES if images else TEXTS)
            out = self.dir / f'{number}'
            exported = out.with_suffix('.ts.pt')
            job(case, exported, images, 'export', *model, '--weights', file, '--to', exported)
            if images: job(case, out.with_suffix('.npy'), True, 'predict', *model, '--weights', file, '--device', 'cpu', '--logits', out.with_suffix('.npy'), self.files / 'image.png')
            if text: job(case, out.with_suffix('.npy'), False, 'generate', *model, '--weights', file, '--device', 'cpu', '--tokens', TOKENS, '--max-new-tokens', '0', '--logits', out.with_suffix('.npy'))
            if 'adapter' in case: job(case, out.with_suffix('.safetensors'), False, 'weights', *model, '--from', file, '--to', out.with_suffix('.safetensors'), '--as', 'hf')
        differences = self.python('compare', jobs)
        self.assertEqual(len(differences), len(jobs))
        for entry in jobs: self.assertLess(differences[entry['file']], LIMIT, entry)
        print('largest difference of', len(jobs), max(differences.values()))
        # The shapes do not show the number of heads.
        self.assertFails(npu_tool('export', *GPT2, 'model.heads=8', '--weights', self.files / 'nanogpt.pt', '--to', self.dir / 'x.pt'), 6, 'model_args.n_head is 4, model.heads is 8', 'model.heads=4')
        self.assertFails(npu_tool('export', *GPT2, '--weights', self.files / 'unbiased.pt', '--to', self.dir / 'x.pt'), 6, 'model.bias=false')
        # A summary counts the parameters of the network, and accepts the sizes of the model as the same keys.
        self.assertEqual(json.loads(self.assertDone(npu_tool('summary', 'model={name: llama, ' + ', '.join(k[6:].replace('=', ': ') for k in LLAMA[2:]) + '}', '--json')))['parameters'], made['parameters'])


if __name__ == '__main__': main()
